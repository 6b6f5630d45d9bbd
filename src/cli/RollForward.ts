/** `paid-once roll-forward`: gives a database that was restored from a backup what its topic has and it has not (docs/restore.md). */
import { Console, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import * as Config from "../Config.ts"
import { countOf } from "../platform/Plural.ts"
import { by, json, named, operatorOf, print, reason } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

/** The command. */
export const rollForward = Command.make(
  "roll-forward",
  {
    json,
    dryRun: Flag.Boolean("dry-run").pipe(
      Flag.withDescription("change nothing, tell what the database has lost"),
      Flag.withDefault(false)
    ),
    reason: Flag.optional(reason),
    by
  },
  Effect.fnUntraced(function* ({ by, dryRun, json, reason }) {
    if (!dryRun && Option.isNone(reason)) {
      yield* Console.error("paid-once: roll-forward needs --reason, which the audit keeps, or --dry-run")
      return yield* Effect.fail(new ExitStatus(2))
    }
    const config = yield* Config.load
    const main = yield* Effect.promise(() => import("../main/RollForward.ts"))
    const { nameOf } = yield* Effect.promise(() => import("../main/Storage.ts"))
    yield* named(`the database is ${nameOf(config)}`)
    const operator = dryRun ? ("dry run" as const) : operatorOf({ by, reason: Option.getOrElse(reason, () => "") })
    const result = yield* main.rollForward(config, operator)
    const { applied, collisions, gaps, read } = result
    yield* print(json, { ...result, dryRun }, () => [
      `Read ${countOf(read, "record")}.`,
      `${dryRun ? "The database has lost" : "Wrote"} ${countOf(applied, "event")}.`,
      ...collisions.map(
        (id) => `Order ${id} has used a version for another event: it was left alone (docs/restore.md).`
      ),
      ...gaps.map(
        (id) => `Order ${id} lacks an event that the topic has no more: it was left alone (docs/restore.md).`
      ),
      ...(dryRun ? [] : ["The consumers read the topic from its first record when they start."])
    ])
    if (collisions.length + gaps.length > 0 || (dryRun && applied > 0)) return yield* Effect.fail(new ExitStatus(1))
  })
)
