/**
 * `bench latency`: from an event's commit to its acknowledgement by Kafka, at a steady 500 events a second.
 *
 * Three blocks take turns. The floor has no outbox: kafkajs alone sends the record right after the commit. The second one has a writer in
 * the dispatcher's process, which is woken in memory. The third one has a writer with a control connection of its own, and the dispatcher
 * is woken through NOTIFY. Writers start their transactions by the clock, however long the last one takes.
 */
import { Effect, Layer } from "effect"
import { Broker } from "../src/brokers/Broker.ts"
import { toRecord } from "../src/brokers/Envelope.ts"
import { laneCount, laneOf, partitionOf } from "../src/outbox/Lane.ts"
import { LaneWorkers } from "../src/outbox/LaneWorkers.ts"
import { Publisher } from "../src/outbox/Publisher.ts"
import { Transaction } from "../src/platform/Transaction.ts"
import * as Aggregates from "./Aggregates.ts"
import { Environment } from "./Environment.ts"
import { quantile, show, type Spread, spread, table } from "./Figures.ts"
import * as RawClient from "./RawClient.ts"
import * as Service from "./Service.ts"
import { type Load, reset, sampleEvent, steadily, topic, until } from "./Workload.ts"

/** When each aggregate's event was committed and acknowledged, by this process's clock, in milliseconds. */
const committed = new Map<string, number>()
const acknowledged = new Map<string, number>()

/** Kafka, with the time of each record's acknowledgement. */
const watched = Layer.effect(
  Broker,
  Effect.map(Broker, (broker) =>
    Broker.of({
      ...broker,
      publish: (batch) =>
        Effect.tap(broker.publish(batch), () =>
          Effect.sync(() => {
            const now = performance.now()
            for (const { key } of batch.records) acknowledged.set(key, now)
          })
        )
    })
  )
)

/** The latencies of a load's events in milliseconds, once all are acknowledged. */
const measured = <E, R>(load: Load, one: (id: string) => Effect.Effect<void, E, R>) =>
  Effect.gen(function* () {
    committed.clear()
    acknowledged.clear()
    const ids = yield* steadily(load, one)
    yield* until(Effect.sync(() => acknowledged.size >= committed.size))
    return ids.map((id) => (acknowledged.get(id) ?? Number.NaN) - (committed.get(id) ?? Number.NaN))
  })

const noteCommit = (id: string) =>
  Effect.flatMap(Transaction, ({ afterCommit }) => afterCommit(Effect.sync(() => committed.set(id, performance.now()))))

const throughOutbox = (id: string) => Transaction.run(Effect.andThen(noteCommit(id), Aggregates.create(id)))

const floor = (load: Load) =>
  Effect.gen(function* () {
    const { brokers } = yield* Environment
    const producer = yield* RawClient.connect(brokers)
    return yield* measured(
      load,
      Effect.fnUntraced(function* (id) {
        yield* Transaction.run(
          Effect.gen(function* () {
            const { sql } = yield* Transaction
            yield* noteCommit(id)
            yield* sql`INSERT INTO bench_aggregates VALUES (${id}, 1, 'new')`
          })
        )
        const { headers, key, value } = toRecord(sampleEvent(id, 1))
        const partition = partitionOf(laneOf(id), Service.partitions)
        yield* Effect.promise(() =>
          producer.send({ topic, acks: -1, messages: [{ key, value: Buffer.from(value), headers, partition }] })
        )
        acknowledged.set(id, performance.now())
      })
    )
  }).pipe(Effect.scoped)

const names = [
  "kafkajs right after the commit",
  "outbox, writer in the same process",
  "outbox, writer elsewhere (NOTIFY)"
] as const
const quantiles = [0.5, 0.9, 0.99] as const

/** Runs `rounds` rounds of `seconds` for each block. Figures in milliseconds. */
export const latency = Effect.fnUntraced(
  function* (options: { readonly rate: number; readonly rounds: number; readonly seconds: number }) {
    const load = { seconds: options.seconds, rate: options.rate }
    yield* Aggregates.make
    const workers = yield* LaneWorkers
    yield* (yield* Publisher).prepare(topic)
    yield* until(Effect.map(workers.lanes, (held) => held.length === laneCount))
    const round = Effect.all([
      Effect.andThen(reset, floor(load)),
      Effect.andThen(reset, measured(load, throughOutbox)),
      Effect.andThen(reset, Effect.provide(measured(load, throughOutbox), Service.writer))
    ])
    // A process gets faster during its first minute, so a warm one is measured.
    yield* Effect.repeat(round, { times: 1 })
    const taken = yield* Effect.forEach(Array.from({ length: options.rounds }), () => round)
    return {
      workload: options,
      blocks: names.map((name, column) => ({
        name,
        millis: Object.fromEntries(
          quantiles.map((q) => [`p${q * 100}`, spread(taken.map((round) => quantile(round[column] ?? [], q)))])
        ) as Readonly<Record<"p50" | "p90" | "p99", Spread>>
      }))
    }
  },
  Effect.provide(Service.dispatcher({ archive: true, broker: (kafka) => Layer.provide(watched, kafka) }))
)

/** The result for a reader. */
export const print = ({ blocks, workload }: Effect.Success<ReturnType<typeof latency>>): string =>
  [
    `${workload.rounds} rounds of ${workload.seconds} s at ${workload.rate} events/s: commit to ack in ms, median of the rounds (least … most)`,
    "",
    table(
      ["", "p50", "p90", "p99"],
      blocks.map(({ millis, name }) => [name, show(millis.p50, 2), show(millis.p90, 2), show(millis.p99, 2)])
    )
  ].join("\n")
