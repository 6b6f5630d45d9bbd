/**
 * `bench consume`: how many events one process applies in a second, where an event's effect is one row. It also measures the time from an
 * event's commit to its effect, at a steady 500 and 2,000 events a second with Kafka, and at 500 with the embedded broker. Its writer is a process of its
 * own.
 *
 * The backlog is in the topic before the clock starts, and each block reads it as a new consumer, from the first record on. For comparison
 * Postgres alone writes the same rows in transactions of the same size.
 */
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import * as Path from "node:path"
import * as EmbeddedBroker from "../src/brokers/embedded/EmbeddedBroker.ts"
import type { Broker } from "../src/brokers/Broker.ts"
import * as Envelope from "../src/brokers/Envelope.ts"
import * as Consumer from "../src/inbox/Consumer.ts"
import { Inbox } from "../src/inbox/Inbox.ts"
import * as Consumers from "../src/main/Consumers.ts"
import type { Subscriber } from "../src/inbox/Subscriber.ts"
import { laneCount, laneOf, partitionOf } from "../src/outbox/Lane.ts"
import { LaneWorkers } from "../src/outbox/LaneWorkers.ts"
import { Publisher } from "../src/outbox/Publisher.ts"
import { Ids } from "../src/platform/Ids.ts"
import { Transaction } from "../src/platform/Transaction.ts"
import * as Database from "../src/postgres/Database.ts"
import * as DeferredBegin from "../src/postgres/fast/DeferredBegin.ts"
import * as Cpu from "./Cpu.ts"
import { Environment, Side } from "./Environment.ts"
import { quantile, show, type Spread, spread, table } from "./Figures.ts"
import * as RawClient from "./RawClient.ts"
import * as Child from "./outside/Child.ts"
import type { Load, Written } from "./outside/OpenLoop.ts"
import * as Service from "./Service.ts"
import { aggregateCount, aggregates, sampleEvent, topic, until } from "./Workload.ts"

/** Records in one send while the topic is filled. */
const fillBatch = 1_000

/** What the figures should be on a machine with two cores, by the name of their row. Events a second. */
const leastRates: Readonly<Record<string, number>> = { "slices, handleMany": 40_000, "slices, handle for each": 20_000 }

/** The same for commit to effect with Kafka, by the events a second. Milliseconds. */
const mostMillis: Readonly<Record<number, { readonly p50: number; readonly p99: number }>> = {
  500: { p50: 5, p99: 15 },
  2_000: { p50: 8, p99: 25 }
}

type AppliedEvent = Parameters<Subscriber["handle"]>[0]

/** A subscriber with one row for each event, written by one statement for each slice or for each event. */
const oneRow = (
  name: string,
  options: { readonly many: boolean; readonly onEffect?: (event: AppliedEvent) => void }
) => {
  const handleMany: NonNullable<Subscriber["handleMany"]> = Effect.fnUntraced(function* (events) {
    const { afterCommit, sql } = yield* Transaction
    yield* sql`
      INSERT INTO bench_effects SELECT ${name}, * FROM unnest(
        ${events.map(({ eventId }) => eventId)}::uuid[], ${events.map(({ aggregateId }) => aggregateId)}::text[])`
    if (options.onEffect !== undefined) {
      yield* afterCommit(Effect.sync(() => events.forEach((event) => options.onEffect!(event))))
    }
  })
  const subscriber: Subscriber = {
    name,
    topic,
    firstSight: "from-version-1",
    handle: (event) => handleMany([event]),
    ...(options.many ? { handleMany } : {})
  }
  return subscriber
}

/** Writes the backlog, one event for each aggregate in turn, as the dispatcher would send it. */
const fill = Effect.fnUntraced(function* (count: number) {
  const { brokers } = yield* Environment
  const producer = yield* RawClient.connect(brokers)
  const ids = aggregates()
  const { next } = yield* Ids
  const records = Array.from({ length: count }, (_, index) => {
    const id = ids[index % aggregateCount]!
    // Ids of version 7, as the outbox draws them: random ones would be marked at random places of the index, in the partition of strays.
    const event = { ...sampleEvent(id, Math.floor(index / aggregateCount) + 1), eventId: next() }
    const { headers, key, value } = Envelope.toRecord(event)
    return { key, value: Buffer.from(value), headers, partition: partitionOf(laneOf(id), Service.partitions) }
  })
  for (let at = 0; at < count; at += fillBatch) {
    yield* Effect.promise(() =>
      producer.send({ topic, acks: -1, messages: records.slice(at, at + fillBatch) }).then(() => undefined)
    )
  }
}, Effect.scoped)

const effects = (name: string) =>
  Effect.flatMap(Side, (sql) =>
    Effect.map(
      sql<{ readonly count: number }>`SELECT count(*)::int4 AS count FROM bench_effects WHERE consumer = ${name}`,
      ([row]) => row?.count ?? 0
    )
  )

/** One block: a new consumer of the topic, from its start to the last effect. Returns events a second. */
const block = Effect.fnUntraced(function* (count: number, many: boolean) {
  const name = `bench-${randomUUID()}`
  let started = 0
  let applied = 0
  const subscriber = oneRow(name, {
    many,
    onEffect: () => {
      // Joining a group takes a second, which is not part of applying.
      started ||= performance.now()
      applied += 1
    }
  })
  yield* Effect.scoped(
    Effect.andThen(Layer.build(Layer.fresh(Consumer.layer(subscriber))), until(Effect.sync(() => applied >= count)))
  )
  const seconds = (performance.now() - started) / 1_000
  const counted = yield* effects(name)
  if (counted !== count) return yield* Effect.die(new Error(`${counted} effects of ${count} events`))
  return count / seconds
})

/** Postgres alone: the same rows, a transaction for each slice, with one concurrent client for each partition. */
const floor = Effect.fnUntraced(function* (count: number, sliceSize: number) {
  const sql = yield* SqlClient.SqlClient
  const name = `floor-${randomUUID()}`
  const began = performance.now()
  yield* Effect.forEach(
    Array.from({ length: Math.ceil(count / sliceSize) }),
    () => {
      const ids = Array.from({ length: sliceSize }, () => randomUUID())
      return sql.withTransaction(
        sql`INSERT INTO bench_effects SELECT ${name}, id, id::text FROM unnest(${ids}::uuid[]) AS id`
      )
    },
    { concurrency: Service.partitions, discard: true }
  )
  return count / ((performance.now() - began) / 1_000)
})

const consumers = Consumers.steps.pipe(
  Layer.provideMerge(Inbox.layer),
  Layer.provide(Service.reservedFor("consumers", Consumers.connections, Consumers.plans))
)

const throughput = Effect.fnUntraced(function* (options: { readonly events: number; readonly rounds: number }) {
  yield* (yield* Publisher).prepare(topic)
  yield* fill(options.events)
  const { sliceSize } = yield* Consumer.ConsumerSettings
  const round = Effect.all([
    block(options.events, true),
    block(options.events, false),
    floor(options.events, sliceSize)
  ])
  yield* block(options.events, true)
  const taken = yield* Effect.forEach(Array.from({ length: options.rounds }), () => round)
  return ["slices, handleMany", "slices, handle for each", "Postgres alone, the effects' rows"].map((name, column) => ({
    name,
    eventsPerSecond: spread(taken.map((round) => round[column]!))
  }))
})

/** The writer's transactions before its load, so that the writer is warm. */
const warmUpTransactions = 500

/** The loads of all runs: each run's consumer reads those of the runs before it, too. */
let loads = 0

/** From commit to effect in milliseconds, at `rate` events a second that a process of its own writes; and the CPU of an event in microseconds. */
const latencies = Effect.fnUntraced(function* (options: { readonly rate: number; readonly seconds: number }) {
  const { databaseUrl } = yield* Environment
  const workers = yield* LaneWorkers
  yield* (yield* Publisher).prepare(topic)
  /** When each event of the present load was applied. The topic has the backlog, too. */
  let applied: { readonly phase: number; readonly times: Float64Array; left: number } | undefined
  const applies = (event: AppliedEvent) => {
    const { index, phase } = event.data as { readonly index: number; readonly phase: number }
    if (applied === undefined || applied.phase !== phase) return
    applied.times[index] = Child.now()
    applied.left -= 1
  }
  yield* Effect.forkScoped(
    Layer.launch(Consumer.layer(oneRow(`latency-${randomUUID()}`, { many: true, onEffect: applies })))
  )
  yield* until(Effect.map(workers.lanes, (held) => held.length === laneCount))
  const writer = yield* Child.start(Path.resolve(import.meta.dirname, "outside/Writer.ts"), {
    DATABASE_URL: Redacted.value(databaseUrl)
  })
  yield* writer.call("warmUp", { topic, transactions: warmUpTransactions })
  const load = Effect.fnUntraced(function* (rate: number, seconds: number) {
    const count = rate * seconds
    const phase = ++loads
    const ofLoad = { phase, times: new Float64Array(count), left: count }
    applied = ofLoad
    const { committed } = yield* writer.call<Written>("run", { topic, phase, rate, seconds } satisfies Load)
    yield* until(Effect.sync(() => ofLoad.left === 0))
    return [...ofLoad.times].map((time, index) => time - committed[index]!)
  })
  // Its effects show that the consumer has joined its group.
  yield* load(1, 1)
  // A process gets faster during its first minute, so a warm one is measured.
  yield* load(options.rate, options.seconds)
  const before = yield* Cpu.sample
  const millis = yield* load(options.rate, options.seconds)
  const { node, postgres = Number.NaN } = Cpu.between(before, yield* Cpu.sample)
  const micros = (seconds: number) => (seconds / millis.length) * 1e6
  return { millis, cpuMicros: { node: micros(node), postgres: micros(postgres) } }
}, Effect.scoped)

const quantiles = [0.5, 0.9, 0.99] as const

const onBroker = (broker?: Layer.Layer<Broker, never, Layer.Services<typeof EmbeddedBroker.layer>>) =>
  consumers.pipe(
    Layer.provideMerge(
      Service.dispatcher({ archive: true, ...(broker === undefined ? {} : { broker: () => broker as never }) })
    )
  )

/** Of the given rate: 500 a second and 2,000. */
const multiples = [1, 4]

/** Runs all blocks. Latencies are measured at `rate` events a second and at four times that. */
export const consume = Effect.fnUntraced(
  function* (options: {
    readonly events: number
    readonly rounds: number
    readonly rate: number
    readonly seconds: number
  }) {
    const side = yield* Side
    yield* side`CREATE TABLE bench_effects (consumer text NOT NULL, event_id uuid NOT NULL, aggregate_id text NOT NULL)`
    yield* Effect.logInfo(`a backlog of ${options.events} events, ${options.rounds} rounds`)
    const rates = yield* Effect.provide(throughput(options), onBroker())
    const latencyAt = (name: string, rate: number, broker: ReturnType<typeof onBroker>) =>
      Effect.gen(function* () {
        yield* Effect.logInfo(`${name} at ${rate}/s, for ${options.seconds} s twice`)
        yield* side`TRUNCATE outbox_events, event_log, processed_events, consumer_cursors`
        const { cpuMicros, millis } = yield* Effect.provide(latencies({ rate, seconds: options.seconds }), broker)
        const ofMillis = Object.fromEntries(quantiles.map((q) => [`p${q * 100}`, quantile(millis, q)]))
        return { name, rate, millis: ofMillis, cpuMicros }
      })
    const withKafka = yield* Effect.forEach(multiples, (times) => latencyAt("Kafka", options.rate * times, onBroker()))
    return {
      workload: { ...options, partitions: Service.partitions, aggregates: aggregateCount },
      rates,
      latency: [...withKafka, yield* latencyAt("embedded broker", options.rate, onBroker(EmbeddedBroker.layer))]
    }
    // As the service's own connections: without it each transaction has one round trip more.
  },
  Effect.provideService(Database.SocketSetup, DeferredBegin.install)
)

const rate = (value: Spread) => show(value, 0)

/** The result for a reader. */
export const print = ({ latency, rates, workload }: Effect.Success<ReturnType<typeof consume>>): string =>
  [
    `${workload.rounds} rounds of ${workload.events} events in ${workload.partitions} partitions, one consumer process, one row of effect each`,
    "",
    table(
      ["", "events/s", "at least"],
      rates.map(({ eventsPerSecond, name }) => [name, rate(eventsPerSecond), String(leastRates[name] ?? "")])
    ),
    "",
    `commit to effect in ms, for ${workload.seconds} s, and CPU of an event in µs: dispatcher and consumer share one Node; Postgres serves the writer, too`,
    "",
    table(
      ["", "events/s", "p50", "p90", "p99", "p50 at most", "p99 at most", "Node", "Postgres"],
      latency.map(({ cpuMicros, millis, name, rate }) => {
        const limit = name === "Kafka" ? mostMillis[rate] : undefined
        return [
          name,
          String(rate),
          ...quantiles.map((q) => (millis[`p${q * 100}`] ?? Number.NaN).toFixed(1)),
          String(limit?.p50 ?? ""),
          String(limit?.p99 ?? ""),
          cpuMicros.node.toFixed(0),
          cpuMicros.postgres.toFixed(0)
        ]
      })
    )
  ].join("\n")
