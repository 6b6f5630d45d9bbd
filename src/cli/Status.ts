/** `paid-once status`: one screen of what waits, what is paused, and what needs a person. */
import { Effect } from "effect"
import { Command } from "effect/cli"
import * as PaymentReport from "../application/views/PaymentReport.ts"
import { StatusReport } from "../application/views/StatusReport.ts"
import type { Decision, StatusView } from "../application/views/StatusView.ts"
import { LaneReport, type LaneView } from "../operations/reports/LaneReport.ts"
import { lasting } from "../platform/Lasting.ts"
import { countOf } from "../platform/Plural.ts"
import { ConsumerLag, type Lag } from "../operations/reports/ConsumerLag.ts"
import { json, onBroker, print, table } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

interface Found extends StatusView {
  readonly lanes: ReadonlyArray<LaneView>
  readonly lag: ReadonlyArray<Lag>
}

const read: Effect.Effect<Found, never, StatusReport | LaneReport | ConsumerLag> = Effect.gen(function* () {
  return {
    ...(yield* StatusReport.use((report) => report.read)),
    lanes: yield* LaneReport.use((report) => report.lanes),
    lag: yield* ConsumerLag.use((report) => report.all)
  }
})

/** How many lanes each process owns, and how many nobody does. A lane has one owner for all topics. */
const ownersOf = (lanes: ReadonlyArray<LaneView>): readonly [string, string] => {
  const owners = [...new Map(lanes.map(({ lane, owner }) => [lane, owner])).values()]
  const processes = [...new Set(owners)].filter((owner) => owner !== null)
  const ownedBy = (process: string | null) => owners.filter((owner) => owner === process).length
  return [
    processes.length === 0 ? "no dispatcher runs" : processes.map((one) => `${ownedBy(one)} at ${one}`).join(", "),
    ownedBy(null) === 0 ? "" : `${ownedBy(null)} without an owner`
  ]
}

/** The consumer's lag, and how many of its partitions nobody reads. */
const lagOf = ({ lag, partitions }: Lag): string => {
  const unread = partitions.filter(({ owner }) => owner === null).length
  return lag === null
    ? "lag unknown"
    : `lag ${lag}${unread === 0 ? "" : `, ${unread} of ${countOf(partitions.length, "partition")} without a reader`}`
}

const retry = (who: string, count: number, thing: string, sinceSeconds: number | null, cause: string | null) =>
  `Retrying: ${who}, ${countOf(count, thing)}${sinceSeconds === null ? "" : `, for ${lasting(sinceSeconds)}`}${cause === null ? "" : `: ${cause}`}`

/** A line for each retry: who retries, since when, and why. */
const retriesOf = ({ consumers, outbox, tasks }: Found): ReadonlyArray<string> => [
  ...[{ ...outbox, who: "the outbox" }, ...consumers.map((one) => ({ ...one, who: one.consumer }))]
    .filter(({ retrying }) => retrying > 0)
    .map(({ retrying, retryingCause, retryingSeconds, who }) =>
      retry(who, retrying, "event", retryingSeconds, retryingCause)
    ),
  ...tasks
    .filter(({ state }) => state === "retrying")
    .map(({ count, sinceSeconds, type }) => retry("the workers", count, `${type} task`, sinceSeconds, null))
]

/** A decision as a line, with the command that shows it. */
const lineOf = ({ command, count, sinceSeconds, what }: Decision) =>
  `${count} ${what}${sinceSeconds === null ? "" : `, for ${lasting(sinceSeconds)}`}: ${command}`

const shown = (found: Found): ReadonlyArray<string> => {
  const { consumers, decisions, lag, lanes, mail, outbox, paused, payments, tasks } = found
  const silent = lag.find(({ unknown }) => unknown !== null)
  return [
    ...table([
      [
        "outbox",
        `${outbox.queued} queued, the oldest for ${outbox.oldestQueuedSeconds.toFixed(1)} s`,
        `${outbox.retrying} retrying, ${outbox.parked} parked, ${outbox.dead} dead`
      ],
      ["lanes", ...ownersOf(lanes)],
      ["broker", silent === undefined ? "answers" : `no answer: ${silent.unknown}`, ""],
      ...consumers.map(({ consumer, dead, gaps, parked, retrying }) => {
        const behind = lag.find((one) => one.consumer === consumer)
        return [
          consumer,
          behind === undefined ? "lag unknown" : lagOf(behind),
          `${retrying} retrying, ${parked} parked, ${dead} dead, ${countOf(gaps, "gap")}`
        ]
      }),
      ["payments", `${payments.charging} charging, ${payments.refunding} refunding`, `${payments.manual} manual`],
      ["mail", `${mail.waiting} waiting`, `${mail.dead} dead`],
      ...tasks.map(({ count, state, type }) => [`task ${type}`, `${count} ${state}`, ""])
    ]),
    ...(payments.areMore ? [`There are more payments: each status is counted up to ${PaymentReport.countLimit}.`] : []),
    ...paused.map(
      ({ actor, kind, name, pausedAt, reason }) => `Paused: ${kind} ${name}, since ${pausedAt} by ${actor}: ${reason}`
    ),
    ...retriesOf(found),
    "",
    ...(decisions.length === 0
      ? ["Nothing needs a decision."]
      : ["Needs a decision:", ...decisions.map((decision) => `  ${lineOf(decision)}`)])
  ]
}

/** The command. */
export const status = Command.make(
  "status",
  { json },
  Effect.fnUntraced(function* ({ json }) {
    const found = yield* onBroker(read)
    yield* print(json, found, () => shown(found))
    if (found.decisions.length > 0) return yield* Effect.fail(new ExitStatus(1))
  })
)
