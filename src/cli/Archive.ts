/** `paid-once archive refill`: fills the archive from the topic, where retention has dropped events or it was off (docs/replay.md). */
import { Console, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { erasable } from "../application/erasure/Places.ts"
import * as Config from "../Config.ts"
import { brokerOf, consumed, topicNames } from "../main/Names.ts"
import { type NamedEvent, type Progress, Refill, type Refilled } from "../operations/refill/Refill.ts"
import { countOf, plural } from "../platform/Plural.ts"
import { ago, by, json, known, named, operatorOf, print, reason } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"
import { tellingOf } from "./Telling.ts"

const lineOf =
  (dryRun: boolean) =>
  ({ filled, read, total }: Progress): string =>
    `${countOf(read, "record")} of ${countOf(total, "record")}, ${countOf(filled, "event")} ${dryRun ? "lacking" : "filled in"}.`

const nameOf = ({ aggregateId, aggregateType, eventId, version }: NamedEvent): string =>
  `${aggregateType} ${aggregateId} version ${version} (${eventId})`

const lines = (refilled: Refilled): ReadonlyArray<string> => {
  const { different, dryRun, erased, filled, foreign, named, older, present, read, topic, unknown } = refilled
  return [
    dryRun
      ? `The archive lacks ${countOf(filled, "event")} of the ${countOf(read, "record")} of topic ${topic}.`
      : `Filled ${countOf(filled, "event")} into the archive, from ${countOf(read, "record")} of topic ${topic}.`,
    ...(present === 0 ? [] : [`  ${countOf(present, "event")} ${plural(present, "was", "were")} there already.`]),
    ...(older === 0 ? [] : [`  ${countOf(older, "event")} from before --since.`]),
    ...(foreign === 0 ? [] : [`  ${countOf(foreign, "record")} that no outbox has sent, left out.`]),
    ...(unknown === 0
      ? []
      : [
          `  ${countOf(unknown, "event")} that no consumer has applied, left out: ${named.unknown.map(nameOf).join(", ")}${unknown > named.unknown.length ? " first" : ""}.`,
          "  They come by themselves, unless the database is behind its topic, as paid-once doctor tells, or a consumer was moved past them, as paid-once reconcile tells."
        ]),
    ...(erased === 0
      ? []
      : [`  ${countOf(erased, "event")} whose customer is erased in the archive, left as it is there.`]),
    ...(different === 0
      ? []
      : [
          `  ${countOf(different, "event")} that the archive has otherwise, left as it is there: ${named.different.map(nameOf).join(", ")}${different > named.different.length ? " first" : ""}.`
        ])
  ]
}

const refill = Command.make(
  "refill",
  {
    topic: Flag.String("topic").pipe(
      Flag.withDescription(`the topic: ${topicNames.join(", ")}`),
      Flag.withDefault(topicNames[0]!)
    ),
    since: ago("since", "only what the topic got in this last time, for example 12h or 3d"),
    dryRun: Flag.Boolean("dry-run").pipe(
      Flag.withDescription("change nothing, count what the archive lacks"),
      Flag.withDefault(false)
    ),
    reason: Flag.optional(reason),
    by,
    json
  },
  Effect.fnUntraced(function* ({ by, dryRun, json, reason, since, topic }) {
    yield* known("topic", topicNames, topic)
    if (!dryRun && Option.isNone(reason)) {
      yield* Console.error("paid-once: archive refill needs --reason, which the audit keeps, or --dry-run")
      return yield* Effect.fail(new ExitStatus(2))
    }
    const config = yield* Config.load
    const main = yield* Effect.promise(() => import("../main/ArchiveRefill.ts"))
    const { nameOf: databaseOf } = yield* Effect.promise(() => import("../main/Storage.ts"))
    yield* named(`the broker is ${brokerOf(config)}`)
    yield* named(`the database is ${databaseOf(config)}`)
    const source = {
      topic,
      consumers: consumed.filter((one) => one.topic === topic).map(({ name }) => name),
      erasable,
      ...(Option.isNone(since) ? {} : { sinceSeconds: since.value })
    }
    const operator = dryRun ? undefined : operatorOf({ by, reason: Option.getOrElse(reason, () => "") })
    const refilled = yield* Refill.use(({ run }) =>
      run(
        source,
        operator,
        tellingOf(json, ({ phase }) => phase, lineOf(dryRun))
      )
    ).pipe(
      Effect.provide(main.refill(config)),
      Effect.catchTag(["RefillRefused", "BrokerUnavailable", "TopicUnavailable"], (error) =>
        Effect.andThen(Console.error(`paid-once: ${error.message}`), Effect.fail(new ExitStatus(1)))
      )
    )
    yield* print(json, refilled, () => lines(refilled))
    if (refilled.different > 0) return yield* Effect.fail(new ExitStatus(1))
  })
)

/** The command. Exit status 1 where the refill is refused, or an event of the topic is another one in the archive. */
export const archive = Command.make("archive").pipe(
  Command.withSubcommands([
    refill.pipe(Command.withDescription("Fill in events that the archive has lost and the topic still has"))
  ])
)
