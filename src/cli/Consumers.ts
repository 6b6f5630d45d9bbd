/** `paid-once consumers list|lag|pause|resume`, and `paid-once dispatcher pause|resume`: what reads and sends events. */
import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { consumerNames, topicNames } from "../main/Names.ts"
import { ConsumerLag, type Lag } from "../operations/reports/ConsumerLag.ts"
import { InboxReport } from "../operations/reports/InboxReport.ts"
import { PauseDecisions } from "../operations/pauses/PauseDecisions.ts"
import { json, knownIfGiven, onBroker, onDatabase, print, table } from "./Operator.ts"
import { pauseCommands } from "./Pauses.ts"
import { ExitStatus } from "./Process.ts"

const list = Command.make(
  "list",
  { json },
  Effect.fnUntraced(function* ({ json }) {
    const found = yield* onDatabase(
      Effect.gen(function* () {
        const { counts } = yield* InboxReport
        const pauses = (yield* (yield* PauseDecisions).all).filter(({ kind }) => kind === "consumer")
        return yield* Effect.forEach(consumerNames, (consumer) =>
          Effect.map(counts(consumer), (one) => ({
            consumer,
            ...one,
            paused: pauses.find(({ name }) => name === consumer) ?? null
          }))
        )
      })
    )
    yield* print(json, found, () =>
      table([
        ["CONSUMER", "RETRYING", "GAPS", "PARKED", "DEAD", "PAUSED"],
        ...found.map(({ consumer, dead, gaps, parked, paused, retrying }) => [
          consumer,
          ...[retrying, gaps, parked, dead].map(String),
          paused === null ? "" : `since ${paused.pausedAt} by ${paused.actor}: ${paused.reason}`
        ])
      ])
    )
  })
).pipe(Command.withDescription("List the consumers, and what of each waits"))

const lagLines = (found: ReadonlyArray<Lag>): ReadonlyArray<string> => [
  ...table([
    ["CONSUMER", "PARTITION", "LAG", "COMMITTED", "END", "OWNER"],
    ...found.flatMap(({ consumer, lag, partitions, topic }) => [
      [consumer, topic, lag === null ? "unknown" : String(lag), "", "", ""],
      ...partitions.map((one) => [
        "",
        String(one.partition),
        String(one.lag),
        one.committed ?? "",
        one.end,
        one.owner ?? ""
      ])
    ])
  ]),
  ...found.flatMap(({ consumer, unknown }) => (unknown === null ? [] : [`${consumer}: ${unknown}`]))
]

const lag = Command.make(
  "lag",
  {
    json,
    consumer: Flag.String("consumer").pipe(
      Flag.withDescription(`only of this consumer: ${consumerNames.join(", ")}`),
      Flag.optional
    )
  },
  Effect.fnUntraced(function* ({ consumer, json }) {
    const name = yield* knownIfGiven("consumer", consumerNames, consumer)
    const all = yield* onBroker(ConsumerLag.use((report) => report.all))
    const found = all.filter((one) => name === undefined || one.consumer === name)
    yield* print(json, { items: found }, () => lagLines(found))
    if (found.some(({ lag }) => lag === null)) return yield* Effect.fail(new ExitStatus(1))
  })
).pipe(
  Command.withDescription("How far each consumer is behind, by partition, and who reads it; exit status 1 if unknown")
)

/** The command. */
export const consumers = Command.make("consumers").pipe(
  Command.withSubcommands([
    list,
    lag,
    ...pauseCommands("consumer", consumerNames, "Read and apply no more events; they wait in the topic.")
  ])
)

/** The command. */
export const dispatcher = Command.make("dispatcher").pipe(
  Command.withSubcommands(pauseCommands("topic", topicNames, "Send no more events to a topic; they wait in the queue."))
)
