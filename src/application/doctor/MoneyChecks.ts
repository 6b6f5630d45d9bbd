/** The doctor's checks of the business: what needs a person, what is paused, and whether the gateway and the mail server answer. */
import { Effect } from "effect"
import { type Check, notChecked, told } from "../../operations/doctor/Check.ts"
import { lasting } from "../../platform/Lasting.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import { numberOf } from "../../platform/Plural.ts"
import { GatewayLedger } from "../GatewayLedger.ts"
import { StatusReport } from "../views/StatusReport.ts"

const decisions: Check<StatusReport> = {
  group: "decisions",
  name: "dead-letters",
  run: Effect.map(
    StatusReport.use(({ read }) => read),
    (status) =>
      told(
        "nothing needs a decision",
        status.decisions.map(({ command, count, sinceSeconds, what }) => ({
          problem: `${numberOf(count)} ${what}${sinceSeconds === null ? "" : `, for ${lasting(sinceSeconds)}`}`,
          fix: "Look at each, and decide: try again, give up, settle, or repair",
          command: command.replace("paid-once", "npm run paid-once --")
        }))
      )
  )
}

/** The command that resumes what is paused. */
const resumeOf = (kind: string, name: string): string =>
  `npm run paid-once -- ${kind === "topic" ? "dispatcher" : kind === "consumer" ? "consumers" : "tasks"} resume ${name} --reason "…"`

const pauses: Check<StatusReport> = {
  group: "decisions",
  name: "pauses",
  run: Effect.map(
    StatusReport.use(({ read }) => read),
    ({ paused }) =>
      told(
        "nothing is paused",
        paused.map(({ actor, kind, name, pausedAt, reason }) => ({
          problem: `${kind} ${name} is paused since ${pausedAt} by ${actor}: ${reason}`,
          fix: "Resume it once its reason is gone",
          command: resumeOf(kind, name)
        }))
      )
  )
}

/** A customer waits for the gateway, and then for us: above a second he sees it. */
const slowGatewayMillis = 1_000

/** No payment has this key, and a look-up moves no money. */
const noKey = "00000000-0000-7000-8000-000000000000"

/** Asks the gateway's ledger for nothing. */
export const gateway: Check<GatewayLedger> = {
  group: "gateway",
  name: "gateway-time",
  run: Effect.gen(function* () {
    const began = yield* Monotonic.millis
    const answer = yield* Effect.result(GatewayLedger.use(({ find }) => find([noKey])))
    const took = (yield* Monotonic.millis) - began
    const fix = {
      fix: "Look at the gateway's own status, and at GATEWAY_URL; payments of unknown outcome are looked up by themselves",
      command: "npm run paid-once -- payments list --status charging"
    }
    if (answer._tag === "Failure") return told("", [{ ...fix, problem: answer.failure.message }])
    return told(
      `the gateway answers in ${took.toFixed(0)} ms`,
      took <= slowGatewayMillis
        ? []
        : [
            {
              ...fix,
              problem: `the gateway took ${(took / 1_000).toFixed(1)} s for a look-up: each payment waits for it`
            }
          ]
    )
  })
}

/** In the place of {@link gateway} where there is none but the sandbox. */
export const noGateway: Check = {
  group: "gateway",
  name: "gateway-time",
  run: Effect.succeed(
    notChecked("without GATEWAY_URL the gateway is the sandbox inside the service, which has no address")
  )
}

export const checks: ReadonlyArray<Check<StatusReport>> = [decisions, pauses]
