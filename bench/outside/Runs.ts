/** Runs one contender in a fresh process with a topic of its own: a steady load, or a backlog. */
import { Clock, Effect, Schedule } from "effect"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import * as Cpu from "../Cpu.ts"
import { Side } from "../Environment.ts"
import { quantile } from "../Figures.ts"
import * as Child from "./Child.ts"
import type { Contender } from "./Contenders.ts"
import type { Load, Written } from "./OpenLoop.ts"
import type { Arrived } from "./Reader.ts"
import type { Topics } from "./Topics.ts"

/** What every run needs. */
export interface Setting {
  readonly topics: Topics
  readonly variables: Readonly<Record<string, string>>
  /** Filled before the first run, so that no reader is cold. */
  readonly warmUpTopic: string
  readonly warmUpRecords: number
}

/** An event was lost or overtaken. A figure of such a run is worth nothing. */
const broken = (contender: Contender, what: string) => Effect.die(new Error(`${contender.name}: ${what}`))

/** Waits for a condition that other processes make true; each look costs them something. */
const patiently = <E, R>(condition: Effect.Effect<boolean, E, R>, everyMillis: number) =>
  Effect.repeat(condition, { until: (holds) => holds, schedule: Schedule.spaced(everyMillis) })

/** Far longer than any contender takes for what is left: then something is lost. */
const lostAfterMillis = 120_000

const reader = Effect.fnUntraced(function* (setting: Setting, topic: string) {
  const child = yield* Child.start(Path.resolve(import.meta.dirname, "Reader.ts"), setting.variables)
  yield* child.call("subscribe", [setting.warmUpTopic, topic])
  return child
})

/** The reader once it is warm. It has joined its group, and knows both topics. */
const warmReader = Effect.fnUntraced(function* (setting: Setting, topic: string) {
  const child = yield* reader(setting, topic)
  yield* patiently(
    Effect.map(child.call<number>("records"), (records) => records >= setting.warmUpRecords),
    50
  )
  yield* child.call("forget")
  return child
})

/** Empty tables, and no checkpoint or vacuum due. */
const clear = Effect.fnUntraced(function* ({ queue, tables }: Contender) {
  const sql = yield* Side
  yield* sql.unsafe(`TRUNCATE ${tables.join(", ")}`)
  yield* sql.unsafe(`VACUUM ANALYZE ${queue}`)
  yield* sql`CHECKPOINT`
})

const startRelay = Effect.fnUntraced(function* ({ relay, script }: Contender, { variables }: Setting) {
  const began = yield* Clock.currentTimeMillis
  const started = yield* ServiceProcess.start({
    roles: "dispatcher",
    env: { ...variables, ...relay },
    ...(script === undefined ? {} : { script })
  })
  return { pid: started.pid, readyMillis: (yield* Clock.currentTimeMillis) - began }
})

/** CPU seconds of each process. Those of Postgres include what it did for the writer. */
const cpuOf = Effect.fnUntraced(function* (relay: number, writer: number) {
  const { kafka = Number.NaN, postgres = Number.NaN } = yield* Cpu.sample
  return { relay: Cpu.secondsOf(relay), postgres, kafka, writer: Cpu.secondsOf(writer) }
})
type CpuSeconds = Effect.Success<ReturnType<typeof cpuOf>>

const quantiles = [0.5, 0.95, 0.99, 0.999, 1] as const
const figuresOf = (millis: ReadonlyArray<number>) => {
  const [p50, p95, p99, p999, max] = quantiles.map((q) => quantile(millis, q)) as [
    number,
    number,
    number,
    number,
    number
  ]
  return { p50, p95, p99, p999, max }
}

/** What a load came to. Latencies in milliseconds. */
export interface Phase {
  readonly events: number
  /** Events a second that the writer committed. Far below the rate, the machine was too slow for the load, and the run says little. */
  readonly committedPerSecond: number
  /** From the commit's answer to the arrival at the reader. */
  readonly fromCommit: ReturnType<typeof figuresOf>
  /** From the time at which the event was due: with the writer's own delays. */
  readonly fromDue: ReturnType<typeof figuresOf>
  /** From the commit, for each second of the load. */
  readonly eachSecond: ReadonlyArray<{ readonly mean: number; readonly p99: number }>
  /** From the load's start to the last arrival. */
  readonly cpu: CpuSeconds
}

/** The steady loads of a run: right after the start, and again after some more of it. */
export interface Steady {
  readonly readyMillis: number
  readonly duplicates: number
  readonly cold: Phase
  readonly warm: Phase
}

/** A steady load for a fresh process, and then the same load again. Checks that every event arrived, in its aggregate's order. */
export const steady = (
  contender: Contender,
  setting: Setting,
  topic: string,
  { rate, seconds, warmUpSeconds }: { readonly rate: number; readonly seconds: number; readonly warmUpSeconds: number }
) =>
  Effect.gen(function* () {
    yield* clear(contender)
    yield* setting.topics.acquire(topic)
    const reads = yield* warmReader(setting, topic)
    const writes = yield* Child.start(contender.writer.file, { ...setting.variables, ...contender.writer.env })
    yield* writes.call("warmUp", { topic, transactions: 500 })
    const relay = yield* startRelay(contender, setting)

    const load = Effect.fnUntraced(function* (phase: number, forSeconds: number) {
      const count = rate * forSeconds
      yield* reads.call("expect", { phase, count })
      const before = yield* cpuOf(relay.pid, writes.pid)
      const { committed, due } = yield* writes.call<Written>("run", {
        topic,
        phase,
        rate,
        seconds: forSeconds
      } satisfies Load)
      yield* patiently(
        Effect.map(reads.call<number>("missing"), (missing) => missing === 0),
        20
      ).pipe(
        Effect.timeoutOrElse({
          duration: lostAfterMillis,
          orElse: () => broken(contender, "an event did not arrive")
        })
      )
      const after = yield* cpuOf(relay.pid, writes.pid)
      const arrived = yield* reads.call<Arrived>("arrived")
      const fromCommit = [...arrived.times].map((time, index) => time - committed[index]!)
      return {
        arrived,
        figures: {
          events: count,
          committedPerSecond: (count * 1_000) / (Math.max(...committed) - due[0]!),
          fromCommit: figuresOf(fromCommit),
          fromDue: figuresOf([...arrived.times].map((time, index) => time - due[index]!)),
          eachSecond: Array.from({ length: forSeconds }, (_, second) => {
            const part = fromCommit.slice(second * rate, (second + 1) * rate)
            return { mean: part.reduce((sum, millis) => sum + millis, 0) / part.length, p99: quantile(part, 0.99) }
          }),
          cpu: {
            relay: after.relay - before.relay,
            postgres: after.postgres - before.postgres,
            kafka: after.kafka - before.kafka,
            writer: after.writer - before.writer
          }
        } satisfies Phase
      }
    })

    const cold = yield* load(1, seconds)
    if (warmUpSeconds > 0) yield* load(2, warmUpSeconds)
    const warm = yield* load(3, seconds)
    const { duplicates, overtaking, versions } = warm.arrived
    if (overtaking > 0)
      return yield* broken(contender, `${overtaking} events overtook an earlier one of their aggregate`)
    const written = yield* writes.call<ReadonlyMap<string, number>>("versions")
    const lost = [...written].filter(([id, version]) => version !== (versions.get(id) ?? 0)).length
    if (lost > 0) return yield* broken(contender, `${lost} aggregates lack their last event`)
    return { readyMillis: relay.readyMillis, duplicates, cold: cold.figures, warm: warm.figures } satisfies Steady
  }).pipe(Effect.scoped)

/** What a backlog came to. */
export interface Backlog {
  /** From the process's start to its first records in the topic. */
  readonly firstMillis: number
  /** From then on, until the queue was empty. */
  readonly eventsPerSecond: number
  readonly cpu: Omit<CpuSeconds, "writer">
  readonly duplicates: number
}

/** A backlog that a fresh process finds. Checks afterwards that every event is in the topic, in its aggregate's order. */
export const backlog = (contender: Contender, setting: Setting, topic: string, events: number) =>
  Effect.gen(function* () {
    const sql = yield* Side
    yield* clear(contender)
    yield* setting.topics.acquire(topic)
    yield* contender.fill(events, topic)
    yield* sql`CHECKPOINT`
    const drained = yield* Effect.scoped(
      Effect.gen(function* () {
        const began = Child.now()
        const relay = yield* startRelay(contender, setting)
        let first = { size: 0, millis: 0, cpu: yield* cpuOf(relay.pid, relay.pid) }
        const look = Effect.gen(function* () {
          const size = yield* setting.topics.size(topic)
          if (first.size === 0 && size > 0) {
            first = { size, millis: Child.now(), cpu: yield* cpuOf(relay.pid, relay.pid) }
          }
          if (size < events) return false
          const left = yield* sql.unsafe(`SELECT FROM ${contender.queue} LIMIT 1`)
          return left.length === 0
        })
        yield* Effect.timeoutOrElse(patiently(look, 10), {
          duration: lostAfterMillis,
          orElse: () => broken(contender, "the queue is not drained")
        })
        const seconds = (Child.now() - first.millis) / 1_000
        const cpu = yield* cpuOf(relay.pid, relay.pid)
        return {
          firstMillis: first.millis - began,
          eventsPerSecond: (events - first.size) / seconds,
          cpu: {
            relay: cpu.relay - first.cpu.relay,
            postgres: cpu.postgres - first.cpu.postgres,
            kafka: cpu.kafka - first.cpu.kafka
          }
        }
      })
    )
    const records = yield* setting.topics.size(topic)
    const reads = yield* reader(setting, topic)
    const all = records + setting.warmUpRecords
    yield* patiently(
      Effect.map(reads.call<number>("records"), (read) => read >= all),
      50
    )
    const { duplicates, overtaking, versions } = yield* reads.call<Arrived>("arrived")
    const arrived = [...versions.values()].reduce((sum, version) => sum + version, 0) - setting.warmUpRecords
    if (overtaking > 0)
      return yield* broken(contender, `${overtaking} events overtook an earlier one of their aggregate`)
    if (arrived !== events) return yield* broken(contender, `${arrived} of ${events} events arrived`)
    return { ...drained, duplicates } satisfies Backlog
  }).pipe(Effect.scoped)
