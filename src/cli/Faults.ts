/** `paid-once faults list|set|clear`: failures on purpose, in the running processes that take them (FAULTS=on). */
import { Console, Effect } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { ArmedFaults } from "../operations/faults/ArmedFaults.ts"
import { Fault, FaultAction } from "../platform/FaultInjection.ts"
import { by, json, onDatabase, operatorOf, print, reason, table } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

const point = Argument.String("point").pipe(
  Argument.withDescription("the fault point, as `faults list --all` shows it")
)

/** A point, an action or a delay that can't be is wrong usage. */
const orWrong = <A, E, R>(work: Effect.Effect<A, E, R>) =>
  Effect.catchIf(
    work,
    (error): error is E => error instanceof Error && "_tag" in error && wrongTags.has(String(error._tag)),
    (error) => Effect.andThen(Console.error(`paid-once: ${(error as Error).message}`), Effect.fail(new ExitStatus(2)))
  )
const wrongTags = new Set(["FaultPointUnknown", "FaultImpossible"])

/** The last strikes that a terminal has room for; `--json` shows more. */
const shownStrikes = 20

const list = Command.make(
  "list",
  {
    json,
    all: Flag.Boolean("all").pipe(
      Flag.withDescription("every point, with the actions that mean something there"),
      Flag.withDefault(false)
    )
  },
  Effect.fnUntraced(function* ({ all, json }) {
    const { faults, known, processes, strikes } = yield* onDatabase(
      ArmedFaults.use(({ known, list }) => Effect.map(list, (found) => ({ ...found, known })))
    )
    yield* print(json, { faults, processes, strikes, ...(all ? { known } : {}) }, () => [
      ...(all
        ? table([["POINT", "ACTIONS"], ...known.map(({ actions, point }) => [point, actions.join(", ")])])
        : faults.length === 0
          ? ["No fault is armed."]
          : table([
              ["POINT", "ACTION", "LEFT", "DELAY", "SINCE", "BY"],
              ...faults.map(({ action, actor, armedAt, delayMillis, point, reason, times }) => [
                point,
                action,
                String(times),
                delayMillis === 0 ? "" : `${delayMillis} ms`,
                armedAt,
                `${actor}: ${reason}`
              ])
            ])),
      ...(all || strikes.length === 0
        ? []
        : table([
            ["STRUCK", "POINT", "ACTION", "PROCESS"],
            ...strikes
              .slice(0, shownStrikes)
              .toReversed()
              .map(({ action, at, delayMillis, point, process }) => [
                at,
                point,
                delayMillis === 0 ? action : `${action} of ${delayMillis} ms`,
                process
              ])
          ])),
      processes.length === 0
        ? "No running process takes faults: none was started with FAULTS=on."
        : `Taken by ${processes.join(", ")}.`
    ])
  })
).pipe(Command.withDescription("List armed faults, what has struck, and the processes that take faults"))

const set = Command.make(
  "set",
  {
    json,
    point,
    action: Argument.Literals("action", FaultAction.literals).pipe(
      Argument.withDescription("what happens there: the point must have it")
    ),
    times: Flag.Int("times").pipe(
      Flag.withDescription("how often it strikes, over all processes"),
      Flag.withSchema(Fault.fields.times),
      Flag.withDefault(1)
    ),
    delayMillis: Flag.Int("delay-millis").pipe(
      Flag.withDescription("how long a delay takes"),
      Flag.withSchema(Fault.fields.delayMillis),
      Flag.withDefault(0)
    ),
    reason,
    by
  },
  Effect.fnUntraced(function* ({ action, by, delayMillis, json, point, reason, times }) {
    const decided = yield* onDatabase(
      orWrong(
        ArmedFaults.use((faults) => faults.set(point, { action, times, delayMillis }, operatorOf({ by, reason })))
      )
    )
    yield* print(json, decided, () => [`${point} is armed${decided.changed ? "" : " already"}.`])
  })
).pipe(Command.withDescription("Arm a fault in all processes that run with FAULTS=on; refused where none does"))

const clear = Command.make(
  "clear",
  { json, point, reason, by },
  Effect.fnUntraced(function* ({ by, json, point, reason }) {
    const decided = yield* onDatabase(
      orWrong(ArmedFaults.use((faults) => faults.clear(point, operatorOf({ by, reason }))))
    )
    yield* print(json, decided, () => [`${point} is clear${decided.changed ? "" : " already"}.`])
  })
).pipe(Command.withDescription("Take an armed fault back"))

/** The command. */
export const faults = Command.make("faults").pipe(Command.withSubcommands([list, set, clear]))
