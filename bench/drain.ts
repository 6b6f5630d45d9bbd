/**
 * `bench drain`: how fast committed events reach Kafka, compared with the parts alone.
 *
 * Each round runs its blocks one after the other, so that a noisy minute hits all of them:
 *
 * - kafkajs alone, with the same records in the same batches and as many in flight;
 * - Postgres alone, with the dispatcher's own fetch and mark on the same rows, without a broker;
 * - the dispatcher with all its guarantees.
 *
 * The last two run with the archive off and on. A first round warms up the JITs and is not counted.
 */
import { Clock, Effect, Metric } from "effect"
import { Lane, laneCount } from "../src/outbox/Lane.ts"
import { LaneWorkers } from "../src/outbox/LaneWorkers.ts"
import { Queue } from "../src/outbox/Queue.ts"
import { Publisher } from "../src/outbox/Publisher.ts"
import { LaneWakeup } from "../src/outbox/LaneWakeup.ts"
import * as Cpu from "./Cpu.ts"
import { Environment } from "./Environment.ts"
import { median, show, spread, table } from "./Figures.ts"
import * as RawClient from "./RawClient.ts"
import * as Service from "./Service.ts"
import { fill, fullBatch, reset, topic, until } from "./Workload.ts"

const lanes = Array.from({ length: laneCount }, (_, lane) => Lane.make(lane))

/** Batches in flight, and concurrent lanes, where the parts are measured alone: as many as the topic has partitions. */
const sideBySide = Service.partitions

/** The result of one block. */
interface Block {
  readonly name: string
  readonly events: number
  readonly seconds: number
  readonly cpu: Cpu.CpuSeconds
}

/** Times `work`, which returns how many events it handled. */
const block = <E, R>(name: string, work: Effect.Effect<number, E, R>) =>
  Effect.gen(function* () {
    const before = yield* Cpu.sample
    const started = yield* Clock.currentTimeNanos
    const events = yield* work
    const seconds = Number((yield* Clock.currentTimeNanos) - started) / 1e9
    return { name, events, seconds, cpu: Cpu.between(before, yield* Cpu.sample) } satisfies Block
  })

/** Events that this process has marked so far. */
const published = Effect.map(Metric.snapshot, (metrics) =>
  metrics.reduce(
    (sum, metric) =>
      metric.id === "outbox_events_published_total" && metric.type === "Counter"
        ? sum + Number(metric.state.count)
        : sum,
    0
  )
)

/** kafkajs alone. */
const raw = (count: number) =>
  Effect.gen(function* () {
    const { brokers } = yield* Environment
    const producer = yield* RawClient.connect(brokers)
    const batches = RawClient.batches(fullBatch, Service.partitions)
    // Connections and metadata are ready before the clock starts.
    yield* RawClient.send(producer, topic, batches, 1, 1)
    return yield* block("kafkajs alone", RawClient.send(producer, topic, batches, count, sideBySide))
  }).pipe(Effect.scoped)

/** The dispatcher's statements alone, on several lanes concurrently. */
const statements = (count: number, archive: boolean) =>
  Effect.gen(function* () {
    const queue = yield* Queue
    yield* reset
    yield* fill(count)
    const drainLane = Effect.fnUntraced(function* (lane: Lane) {
      let drained = 0
      while (true) {
        const [fetched] = yield* queue.fetch([{ lane, events: fullBatch, bytes: Number.MAX_SAFE_INTEGER }])
        const events = fetched?.events ?? []
        if (events.length === 0) return drained
        const receipt = { partition: lane % Service.partitions, baseOffset: BigInt(drained) }
        yield* queue.mark([{ lane, topic, events, receipt }])
        drained += events.length
      }
    })
    return yield* block(
      `Postgres alone, archive ${onOff(archive)}`,
      Effect.map(Effect.forEach(lanes, drainLane, { concurrency: sideBySide }), (counts) =>
        counts.reduce((sum, drained) => sum + drained, 0)
      )
    )
  }).pipe(Effect.provide(Service.queue({ archive })))

/** The dispatcher, as the service runs it. */
export const whole = (count: number, archive: boolean) =>
  Effect.gen(function* () {
    const workers = yield* LaneWorkers
    const publisher = yield* Publisher
    const wakeup = yield* LaneWakeup
    yield* publisher.prepare(topic)
    yield* until(Effect.map(workers.lanes, (held) => held.length === laneCount))
    yield* reset
    const before = yield* published
    // One transaction, so that all events appear at once.
    yield* fill(count)
    return yield* block(
      `dispatcher, archive ${onOff(archive)}`,
      Effect.andThen(
        Effect.forEach(lanes, wakeup.wake, { discard: true }),
        until(Effect.map(published, (now) => now - before >= count)).pipe(Effect.as(count))
      )
    )
  }).pipe(Effect.provide(Service.dispatcher({ archive })))

const onOff = (archive: boolean) => (archive ? "on" : "off")

const round = (count: number) =>
  Effect.all([raw(count), statements(count, false), whole(count, false), statements(count, true), whole(count, true)])

/** The cores of this machine, which the three parts share. */
const cores = Effect.sync(() => navigator.hardwareConcurrency)

const perEvent = (blocks: ReadonlyArray<Block>, part: keyof Cpu.CpuSeconds): number | undefined => {
  const values = blocks.flatMap(({ cpu, events }) => (cpu[part] === undefined ? [] : [(cpu[part] / events) * 1e6]))
  return values.length === 0 ? undefined : median(values)
}

/** Runs `rounds` rounds of `count` events and compares the dispatcher with the parts. */
export const drain = Effect.fnUntraced(function* (options: { readonly events: number; readonly rounds: number }) {
  yield* Effect.scoped(
    Effect.provide(
      Effect.flatMap(Publisher, (publisher) => publisher.prepare(topic)),
      Service.dispatcher({ archive: false })
    )
  )
  yield* round(Math.min(options.events, warmUpEvents))
  const rounds = yield* Effect.forEach(Array.from({ length: options.rounds }), () => round(options.events))
  const available = yield* cores
  const blocksOf = (column: number) => rounds.map((blocks) => blocks[column]!)
  const rate = ({ events, seconds }: Block) => events / seconds
  const parts = rounds[0]!.map(({ name }, column) => {
    const blocks = blocksOf(column)
    const cpu = {
      node: perEvent(blocks, "node"),
      postgres: perEvent(blocks, "postgres"),
      kafka: perEvent(blocks, "kafka")
    }
    return { name, eventsPerSecond: spread(blocks.map(rate)), cpuMicrosPerEvent: cpu }
  })
  const [kafkajs, statementsOff, wholeOff, statementsOn, wholeOn] = parts as [Part, Part, Part, Part, Part]
  /** The lowest of the three limits (client, Postgres, cores), and the share of it that the dispatcher reached, round by round. */
  const reached = (archive: string, alone: Part, dispatcher: Part) => {
    const { kafka = 0, node = 0, postgres = 0 } = dispatcher.cpuMicrosPerEvent
    const limits = {
      kafkajs: kafkajs.eventsPerSecond.median,
      postgres: alone.eventsPerSecond.median,
      cores: (available / (node + postgres + kafka)) * 1e6
    }
    const [by, least] = Object.entries(limits).reduce((a, b) => (b[1] < a[1] ? b : a))
    return {
      archive,
      limits,
      limitedBy: by,
      ofTheLimit: spread(
        blocksOf(parts.indexOf(dispatcher)).map((one, index) =>
          by === "cores"
            ? rate(one) / least
            : rate(one) / rate(blocksOf(parts.indexOf(by === "kafkajs" ? kafkajs : alone))[index]!)
        )
      ),
      ofKafkajs: spread(blocksOf(parts.indexOf(dispatcher)).map((one, index) => rate(one) / rate(blocksOf(0)[index]!)))
    }
  }
  return {
    workload: {
      ...options,
      dataBytes: 400,
      aggregates: 1_000,
      partitions: Service.partitions,
      recordsPerBatch: fullBatch,
      cores: available
    },
    parts,
    ratios: [reached("off", statementsOff, wholeOff), reached("on", statementsOn, wholeOn)]
  }
})

interface Part {
  readonly name: string
  readonly eventsPerSecond: ReturnType<typeof spread>
  readonly cpuMicrosPerEvent: { readonly [K in keyof Cpu.CpuSeconds]: number | undefined }
}

/** Enough events to warm up the JITs, in a short time. */
const warmUpEvents = 50_000

const micros = (value: number | undefined) => (value === undefined ? "–" : value.toFixed(1))

/** The result for a reader. */
export const print = ({ parts, ratios, workload }: Effect.Success<ReturnType<typeof drain>>): string =>
  [
    `${workload.rounds} rounds of ${workload.events} events, ${workload.dataBytes} bytes of data each, ${workload.aggregates} aggregates, ` +
      `${workload.partitions} partitions, ${workload.recordsPerBatch} records a batch, ${workload.cores} cores`,
    "",
    table(
      ["", "events/s", "Node µs", "Postgres µs", "Kafka µs"],
      parts.map(({ cpuMicrosPerEvent: cpu, eventsPerSecond, name }) => [
        name,
        show(eventsPerSecond, 0),
        micros(cpu.node),
        micros(cpu.postgres),
        micros(cpu.kafka)
      ])
    ),
    "",
    ...ratios.map(
      ({ archive, limitedBy, limits, ofKafkajs, ofTheLimit }) =>
        `archive ${archive}: ${show(ofTheLimit, 2)} of the least limit (${limitedBy}; kafkajs ${limits.kafkajs.toFixed(0)}, ` +
        `Postgres ${limits.postgres.toFixed(0)}, cores ${limits.cores.toFixed(0)}), ${show(ofKafkajs, 2)} of kafkajs alone`
    )
  ].join("\n")
