/** What every run from outside consists of: empty tables, a reader, relays, and their CPU. */
import { Clock, Effect, Schedule } from "effect"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import * as Cpu from "../Cpu.ts"
import { Side } from "../Environment.ts"
import * as Child from "./Child.ts"
import type { Contender } from "./Contenders.ts"
import { type Shape, variablesOf } from "./OpenLoop.ts"
import type { Arrived } from "./Reader.ts"
import { type Topics, usedRecords } from "./Topics.ts"

/** What every run needs. */
export interface Setting {
  readonly topics: Topics
  readonly variables: Readonly<Record<string, string>>
  /** Filled before the first run, so that no reader is cold. */
  readonly warmUpTopic: string
  readonly warmUpRecords: number
}

/** An event was lost or overtaken. A figure of such a run is worth nothing. */
export const broken = (contender: Contender, what: string) => Effect.die(new Error(`${contender.name}: ${what}`))

/** Waits for a condition that other processes make true; each look costs them something. */
export const patiently = <E, R>(condition: Effect.Effect<boolean, E, R>, everyMillis: number) =>
  Effect.repeat(condition, { until: (holds) => holds, schedule: Schedule.spaced(everyMillis) })

/** Far longer than any strict contender takes for what is left: then something is lost. */
export const lostAfterMillis = 120_000

/** A reader of the topic, from its start on. */
export const reader = Effect.fnUntraced(function* (setting: Setting, topic: string) {
  const child = yield* Child.start(Path.resolve(import.meta.dirname, "Reader.ts"), setting.variables)
  yield* child.call("subscribe", [setting.warmUpTopic, topic])
  return child
})

/** The reader of a used topic, once it is warm. It has joined its group, and knows both topics. */
export const warmReader = Effect.fnUntraced(function* (setting: Setting, topic: string) {
  yield* setting.topics.use(topic)
  const child = yield* reader(setting, topic)
  yield* patiently(
    Effect.map(child.call<number>("records"), (records) => records >= setting.warmUpRecords + usedRecords),
    50
  )
  yield* child.call("forget")
  return child
})

/** The writer of a load, warmed up with transactions that nobody sees. */
export const warmWriter = Effect.fnUntraced(function* (
  { named, writer }: Contender,
  { variables }: Setting,
  topic: string,
  shape: Shape
) {
  const child = yield* Child.start(writer.file, { ...variables, ...variablesOf(shape), ...writer.env })
  yield* child.call("warmUp", { topic: named(topic).topic, transactions: 500 })
  return child
})

/** Empty tables, and no checkpoint or vacuum due. */
export const clear = Effect.fnUntraced(function* ({ queue, tables }: Contender) {
  const sql = yield* Side
  yield* sql.unsafe(`TRUNCATE ${tables.join(", ")}`)
  yield* sql.unsafe(`VACUUM ANALYZE ${queue}`)
  yield* sql`CHECKPOINT`
})

/** A fresh process of the contender, for this topic. */
export const startRelay = Effect.fnUntraced(function* (
  { named, relay, script }: Contender,
  { variables }: Setting,
  topic: string
) {
  const began = yield* Clock.currentTimeMillis
  const started = yield* ServiceProcess.start({
    roles: "dispatcher",
    env: { ...variables, ...relay, ...named(topic).env },
    ...(script === undefined ? {} : { script })
  })
  return { ...started, readyMillis: (yield* Clock.currentTimeMillis) - began }
})

/** CPU seconds of each part. Those of Postgres include what it did for the writer. */
export interface CpuSeconds {
  readonly relay: number
  readonly postgres: number
  readonly kafka: number
  readonly writer: number
}

/** CPU seconds so far: those of all relays together. */
export const cpuOf = Effect.fnUntraced(function* (relays: ReadonlyArray<number>, writer?: number) {
  const { kafka = Number.NaN, postgres = Number.NaN } = yield* Cpu.sample
  return {
    relay: relays.reduce((sum, pid) => sum + Cpu.secondsOf(pid), 0),
    postgres,
    kafka,
    writer: writer === undefined ? 0 : Cpu.secondsOf(writer)
  } satisfies CpuSeconds
})

export const cpuBetween = (before: CpuSeconds, after: CpuSeconds): CpuSeconds => ({
  relay: after.relay - before.relay,
  postgres: after.postgres - before.postgres,
  kafka: after.kafka - before.kafka,
  writer: after.writer - before.writer
})

/** What a reader has seen of a contender's events, beside their times. */
export interface Faults {
  readonly duplicates: number
  /** Events that arrived after a later one of their aggregate. */
  readonly overtaken: number
}

/** Ends the benchmark where a strict contender has lost or reordered an event. */
export const judge = Effect.fnUntraced(function* (
  contender: Contender,
  { duplicates, gaps, overtaken, versions }: Arrived,
  written: ReadonlyMap<string, number>
) {
  const short = [...written].filter(([id, version]) => version > (versions.get(id) ?? 0)).length
  if (contender.isStrict && overtaken > 0)
    return yield* broken(contender, `${overtaken} events were overtaken by a later one of their aggregate`)
  if (contender.isStrict && (short > 0 || gaps > 0))
    return yield* broken(contender, `${short} aggregates lack their last event, and ${gaps} events are missing before`)
  return { duplicates, overtaken } satisfies Faults
})
