/**
 * `paid-once demo --stay`: the service as four processes of this one, until Ctrl-C, for a person who breaks them on the console's page Break it.
 */
import { Console, Effect, Redacted } from "effect"
import { ExitStatus } from "../Process.ts"
import { Problem } from "../../http/Problems.ts"
import * as BrokerSwitch from "./BrokerSwitch.ts"
import * as Children from "./Children.ts"
import * as Control from "./Control.ts"
import * as DrillRuns from "./DrillRuns.ts"

/** Where the demo's database is. */
export interface World {
  readonly env: Readonly<Record<string, string>>
  readonly ownerUrl: Redacted.Redacted
}

const noSuch = new Problem({
  status: 404,
  detail: "there are /processes/{name}/{action}, /broker/{action} and /drills/{name}"
})

/** As many as the page's story tells. */
const maxEvents = 100

/** Runs until it is interrupted. All processes end with the scope. */
export const stay = Effect.fnUntraced(function* ({ env, ownerUrl }: World) {
  const events: Array<{ readonly at: string; readonly what: string }> = []
  const tell = (what: string) =>
    Effect.suspend(() => {
      events.push({ at: new Date().toISOString(), what })
      if (events.length > maxEvents) events.shift()
      return Console.log(`  ${what}.`)
    })

  const children = yield* Children.make(tell)
  const broker = yield* BrokerSwitch.make(ownerUrl, tell)
  const drills = yield* DrillRuns.make(env, tell)
  /** A drill takes the broker away, and mends what it finds broken: a person's breakage would spoil it, or be mended. */
  const oneAtATime = (kind: string) =>
    Effect.suspend(() => {
      const running = drills.running()
      const detail =
        kind === "broker" && running !== undefined
          ? `the drill ${running} is running: the broker is left to it`
          : kind === "drills" && broker.isAway()
            ? "the broker is away: bring it back before a drill"
            : undefined
      return detail === undefined ? Effect.void : Effect.fail(new Problem({ status: 409, detail }))
    })
  const originOf = () => {
    const url = children.consoleUrl()
    return url === undefined ? undefined : new URL(url).origin
  }
  const controlled: Control.Controlled = {
    origin: originOf,
    state: () => ({
      processes: children.list(),
      broker: broker.isAway() ? "away" : "available",
      drills: drills.list(),
      events,
      signIn: new URL(children.consoleUrl() ?? "http://none").searchParams.get("token")
    }),
    act: ([kind = "", name = "", action = "", ...more]) =>
      more.length === 0 && kind === "processes"
        ? children.act(name, action)
        : action !== "" || more.length > 0
          ? Effect.fail(noSuch)
          : kind === "broker"
            ? Effect.andThen(oneAtATime(kind), broker.act(name))
            : kind === "drills"
              ? Effect.andThen(oneAtATime(kind), drills.act(name, originOf() ?? ""))
              : Effect.fail(noSuch)
  }
  const control = yield* Control.make(controlled)
  yield* children.startAll({ ...env, FAULTS: "on", DEMO_CONTROL_URL: control.url })
  const consoleUrl = children.consoleUrl()
  if (consoleUrl === undefined || children.list().some(({ state }) => state === "dead")) {
    return yield* Effect.fail(new ExitStatus(1))
  }
  const { origin, search } = new URL(consoleUrl)
  yield* Console.log(
    [
      "",
      "Make load on the page Orders, and break what you like on Break it:",
      `  ${origin}/console/break-it${search}#demo=${control.port}.${control.token}`,
      "The link signs in once. Keep the page open: it can start again what it has killed. Ctrl-C ends all of it.",
      ""
    ].join("\n")
  )
  return yield* Effect.never
})
