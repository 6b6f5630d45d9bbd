/** `paid-once roll-forward`: gives a database that was restored from a backup what its topic has and it has not (docs/restore.md). */
import { Console, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import * as Config from "../Config.ts"
import type { RolledForward } from "../application/rollforward/RollForward.ts"
import { ordersTopic } from "../domain/Events.ts"
import { brokerOf } from "../main/Names.ts"
import type { Progress } from "../main/RollForward.ts"
import { countOf, numberOf, plural } from "../platform/Plural.ts"
import { by, json, named, operatorOf, print, reason } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"
import { tellingOf } from "./Telling.ts"

const line = (progress: Progress): string =>
  progress.phase === "waiting"
    ? `Waiting until these groups have no members: ${progress.groups.map(({ group }) => group).join(", ")}.`
    : `${countOf(progress.read, "record")} of ${countOf(progress.total, "record")}, ${countOf(progress.applied, "event")} that the database has lost.`

const more = (count: number, listed: number): ReadonlyArray<string> =>
  count > listed ? [`  … and ${numberOf(count - listed)} more.`] : []

const lines = (result: RolledForward, dryRun: boolean): ReadonlyArray<string> => {
  const { applied, collided, collisions, forgotten, gapped, gaps, read } = result
  return [
    `Read ${countOf(read, "record")}.`,
    `${dryRun ? "The database has lost" : "Wrote"} ${countOf(applied, "event")}.`,
    ...(collided === 0
      ? []
      : [
          `${countOf(collided, "order")} ${plural(collided, "has", "have")} two histories. The topic's ${dryRun ? "would be" : "is"} left out, and a person decides: paid-once reconcile names them (docs/restore.md).`,
          ...collisions.map((id) => `  ${id}`),
          ...more(collided, collisions.length)
        ]),
    ...(gapped === 0
      ? []
      : [
          `${countOf(gapped, "order")} ${plural(gapped, "lacks", "lack")} an event that the topic has no more, or that can't be read. What follows it ${dryRun ? "would be" : "is"} left out, and a person decides: paid-once reconcile names their money (docs/restore.md).`,
          ...gaps.map((id) => `  ${id}`),
          ...more(gapped, gaps.length)
        ]),
    ...(forgotten === 0
      ? []
      : [
          `Of ${countOf(forgotten, "event")} nothing tells any more whether they are the database's own: archive and marks are past their retention.`
        ]),
    ...(dryRun ? [] : ["The consumers read the topic from its first record when they start."])
  ]
}

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
    yield* named(`the broker is ${brokerOf(config)}`)
    yield* named(`the topic is ${config.kafkaPrefix}${ordersTopic}`)
    yield* named(`the database is ${nameOf(config)}`)
    const operator = dryRun ? ("dry run" as const) : operatorOf({ by, reason: Option.getOrElse(reason, () => "") })
    const result = yield* main.rollForward(
      config,
      operator,
      tellingOf(json, ({ phase }) => phase, line)
    )
    yield* print(json, { ...result, dryRun }, () => lines(result, dryRun))
    const { applied, collided, gapped } = result
    if (collided + gapped > 0 || (dryRun && applied > 0)) return yield* Effect.fail(new ExitStatus(1))
  })
)
