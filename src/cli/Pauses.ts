/** `pause` and `resume` as subcommands of what can be paused. */
import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { PauseDecisions, type Target } from "../operations/pauses/PauseDecisions.ts"
import type { Kind } from "../operations/pauses/Pauses.ts"
import { by, json, known, onDatabase, operatorOf, print, reason } from "./Operator.ts"

/** The two commands for things of this kind, which have these names. */
export const pauseCommands = (kind: Kind, names: ReadonlyArray<string>, effect: string) => {
  const name = Argument.String("name").pipe(Argument.withDescription(`a ${kind}: ${names.join(", ")}`))
  const command = (action: "pause" | "resume", description: string) =>
    Command.make(
      action,
      { json, name, reason, by },
      Effect.fnUntraced(function* ({ by, json, name, reason }) {
        const target: Target = { kind, name: yield* known(kind, names, name) }
        const decided = yield* onDatabase(
          Effect.flatMap(PauseDecisions, (pauses) => pauses[action](target, operatorOf({ by, reason })))
        )
        yield* print(json, decided, () => [
          `The ${kind} ${name} is ${decided.status}${decided.changed ? "" : " already"}.`
        ])
      })
    ).pipe(Command.withDescription(description))
  return [
    command("pause", `${effect} Nothing is lost, and it survives restarts`),
    command("resume", `Go on where it stopped`)
  ] as const
}
