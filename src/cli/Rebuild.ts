/** `paid-once rebuild NAME`: makes a consumer's projection anew from the archive, while the consumer goes on. */
import { Console, Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { projections } from "../main/Names.ts"
import { type Progress, Rebuild, type Rebuilt } from "../operations/rebuild/Rebuild.ts"
import { countOf, numberOf } from "../platform/Plural.ts"
import { by, json, known, onDatabase, operatorOf, print, reason } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"
import { tellingOf } from "./Telling.ts"

const names = projections.map(({ subscriber }) => subscriber.name)

const left = (seconds: number | null): string =>
  seconds === null
    ? ""
    : `, ${seconds < 120 ? `${seconds} s` : seconds < 7_200 ? `${Math.ceil(seconds / 60)} min` : `${Math.ceil(seconds / 3_600)} h`} left`

const line = ({ done, perSecond, phase, secondsLeft, total }: Progress): string =>
  phase === "cleaning"
    ? "Deleting what an earlier rebuild has left."
    : phase === "emptying"
      ? "Deleting the rows beside, which nobody reads."
      : phase === "swapping"
        ? `${countOf(done, "event")} of ${numberOf(total)}. Swapping.`
        : `${countOf(done, "event")} of ${numberOf(total)}, ${numberOf(perSecond)} a second${left(secondsLeft)}.`

const lines = ({ consumer, events, seconds, tables }: Rebuilt): ReadonlyArray<string> => [
  `Rebuilt ${consumer} from ${countOf(events, "event")} in ${seconds.toFixed(1)} s.`,
  ...tables.map(({ added, changed, removed, table }) =>
    added + changed + removed === 0
      ? `  ${table}: it was right, and no row has changed.`
      : `  ${table}: ${countOf(changed, "row")} changed, ${removed} removed, and ${added} added.`
  )
]

/** The command. Exit status 1 where the rebuild is refused, with a sentence that says why: the projection is as it was. */
export const rebuild = Command.make(
  "rebuild",
  {
    name: Argument.String("projection").pipe(Argument.withDescription(`the consumer: ${names.join(", ")}`)),
    reason,
    by,
    json
  },
  Effect.fnUntraced(function* ({ by, json, name, reason }) {
    yield* known("projection", names, name)
    const projection = projections.find(({ subscriber }) => subscriber.name === name)!
    const operator = operatorOf({ by, reason })
    const rebuilt = yield* onDatabase(
      Rebuild.use(({ run }) =>
        run(
          projection,
          operator,
          tellingOf(json, ({ phase }) => phase, line)
        )
      )
    ).pipe(
      Effect.catchTag(["RebuildUnderWay", "EventsMissing", "RebuildFailed"], (error) =>
        Effect.andThen(Console.error(`paid-once: ${error.message}`), Effect.fail(new ExitStatus(1)))
      )
    )
    yield* print(json, rebuilt, () => lines(rebuilt))
  })
)
