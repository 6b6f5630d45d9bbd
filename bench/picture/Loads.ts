/** The scenes with a steady load: their runs, their table, their rows, and their part of the chart. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Environment, Side } from "../Environment.ts"
import { median, table } from "../Figures.ts"
import type { Contender } from "../outside/Contenders.ts"
import { usual } from "../outside/OpenLoop.ts"
import * as Processes from "../outside/Processes.ts"
import { type Phase, type Quantiles, type Steady, steady } from "../outside/Steady.ts"
import { cpuOfBoth, mostRatio, topicOf } from "../outside.ts"
import type { LoadScene } from "./Plan.ts"
import { type Row, value } from "./Rows.ts"
import type { Group } from "./Svg.ts"

/** A contender's rounds in a scene. */
export interface Entry {
  readonly name: string
  readonly key: string
  readonly isOurs: boolean
  readonly rounds: ReadonlyArray<Steady>
}

/** What a scene came to. */
export interface Load {
  readonly title: string
  readonly rate: number
  readonly isLimited: boolean
  /** See {@link isReached}. */
  readonly isReached: boolean
  readonly entries: ReadonlyArray<Entry>
}

/** Commits a backlog, and waits until the relay has published it. */
const publish = Effect.fnUntraced(function* (
  contender: Contender,
  setting: Processes.Setting,
  topic: string,
  count: number
) {
  const side = yield* Side
  yield* contender.fill?.(count, contender.named(topic).topic) ?? Effect.void
  const isPublished = Effect.gen(function* () {
    if ((yield* setting.topics.size(topic)) < count) return false
    return (yield* side.unsafe(contender.left)).length === 0
  })
  yield* Effect.timeoutOrElse(Processes.patiently(isPublished, 50), {
    duration: Processes.lostAfterMillis,
    orElse: () => Processes.broken(contender, `a backlog of ${count} did not come into the topic ${topic}`)
  })
})

/** Opens a transaction that stays open, and lets the relay publish a backlog that vacuum can't remove any more. */
const underOldReader = (contender: Contender, setting: Processes.Setting, published: number) =>
  Effect.fnUntraced(function* (topic: string) {
    const { databaseUrl } = yield* Environment
    const pool = Context.get(
      yield* Layer.build(PgClient.layer({ url: databaseUrl, maxConnections: 1 })),
      SqlClient.SqlClient
    )
    // The pool closes a connection that nobody has, and its transaction with it.
    const old = yield* pool.reserve
    yield* old.executeUnprepared("BEGIN ISOLATION LEVEL REPEATABLE READ", [], undefined)
    yield* old.executeUnprepared(`SELECT count(*) FROM ${contender.queue}`, [], undefined)
    yield* publish(contender, setting, topic, published)
  })

/** Fills the archive with copies of one published event. */
const withArchived = (contender: Contender, setting: Processes.Setting, count: number) =>
  Effect.fnUntraced(function* (topic: string) {
    const side = yield* Side
    yield* publish(contender, setting, topic, 1_000)
    yield* side.unsafe(archiveCopies(contender.archive ?? "", count))
    yield* side`CHECKPOINT`
  })

const columns =
  "topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id, data"
const copied = columns.replace("aggregate_version", "aggregate_version + number")

/** Each archive has an id of its own: ours a UUID of today, the simplest's a rising number. */
const archiveCopies = (archive: string, count: number): string => {
  const source = `(SELECT * FROM ${archive} LIMIT 1000) AS one, generate_series(1, ${Math.ceil(count / 1_000)}) AS number`
  return archive === "event_log"
    ? `INSERT INTO event_log (event_id, ${columns}, broker_partition, broker_offset, published_at)
       SELECT overlay(gen_random_uuid()::text PLACING substring(event_id::text FOR 13) FROM 1 FOR 13)::uuid, ${copied}, broker_partition,
              broker_offset, published_at FROM ${source}`
    : `INSERT INTO ${archive} (id, event_id, ${columns}, published_at)
       SELECT id + number::int8 * 1000000, gen_random_uuid(), ${copied}, published_at FROM ${source}`
}

/** Of 2,000/s, writers reach 0.84 and more while two cores are nearly full (docs/performance-log.md). Below this the schedule is a fiction. */
const leastReached = 0.7

/**
 * Whether the machine is quick enough for the rate: then at least one contender's writer reaches it. If none does, a load takes longer than planned,
 * and its figures say nothing about the rate.
 */
export const isReached = (
  rate: number,
  contenders: Iterable<ReadonlyArray<Readonly<Record<"cold" | "warm", Pick<Phase, "committedPerSecond">>>>>
): boolean =>
  [...contenders].some((rounds) =>
    rounds.every(({ cold, warm }) => [cold, warm].every((phase) => phase.committedPerSecond >= leastReached * rate))
  )

/** Runs a scene. The contenders take turns, in the other order in each second round. No further round follows a rate that was not reached. */
export const run = Effect.fnUntraced(function* (scene: LoadScene, setting: Processes.Setting) {
  const rounds = new Map<Contender, Array<Steady>>(scene.contenders.map((contender) => [contender, []]))
  // Some of the other peers' writers are slow by themselves.
  const isRateReached = () => !scene.isLimited || isReached(scene.rate, rounds.values())
  for (let round = 0; round < scene.rounds && isRateReached(); round++) {
    for (const contender of round % 2 === 0 ? scene.contenders : scene.contenders.toReversed()) {
      const before =
        scene.oldReader !== undefined
          ? underOldReader(contender, setting, scene.oldReader.published)
          : scene.archived !== undefined
            ? withArchived(contender, setting, scene.archived)
            : undefined
      const { aggregates = usual.aggregates, connections = usual.connections, dataBytes = usual.dataBytes } = scene
      const result = yield* steady(contender, setting, topicOf(contender), {
        ...scene,
        shape: { aggregates, connections, dataBytes },
        ...(before === undefined ? {} : { before })
      })
      rounds.get(contender)!.push(result)
    }
  }
  return {
    title: scene.title,
    rate: scene.rate,
    isLimited: scene.isLimited,
    isReached: isRateReached(),
    entries: scene.contenders.map((contender): Entry => ({
      name: contender.name,
      key: contender.key,
      isOurs: contender.script === undefined,
      rounds: rounds.get(contender)!
    }))
  } satisfies Load
})

const states = ["cold", "warm"] as const

const micros = ({ cpu, events }: Phase) => (cpuOfBoth(cpu) / events) * 1e6

/** The figures of each other contender beside ours: of this scene, or of the one with the same load that ours was in. None of a rate not reached. */
export const rows = (load: Load, ours: Entry | undefined): ReadonlyArray<Row> => {
  if (ours === undefined || !load.isReached) return []
  return load.entries
    .filter(({ isOurs }) => !isOurs)
    .flatMap(({ name, rounds: theirRounds }) => {
      const count = Math.min(ours.rounds.length, theirRounds.length)
      const row = (what: string, unit: Row["unit"], pick: (round: Steady) => number, isLimited: boolean): Row => ({
        what: `${load.title.replace(/, others$/, "")} ${what}`,
        unit,
        ours: ours.rounds.slice(0, count).map(pick),
        peer: name,
        theirs: theirRounds.slice(0, count).map(pick),
        ...(isLimited ? { limit: { bound: "most", ratio: mostRatio } as const } : {})
      })
      const warm = [
        row("warm: p99", "ms", (round) => round.warm.fromCommit.p99, load.isLimited),
        row("warm: CPU of an event", "µs", (round) => micros(round.warm), load.isLimited)
      ]
      // The scenes beside the plain load say one thing each.
      if (load.title !== `${load.rate}/s`) return warm
      return [
        row("cold: p99", "ms", (round) => round.cold.fromCommit.p99, load.isLimited),
        row("cold: CPU of an event", "µs", (round) => micros(round.cold), load.isLimited),
        row("warm: p50", "ms", (round) => round.warm.fromCommit.p50, false),
        ...warm,
        row("start until ready", "ms", ({ readyMillis }) => readyMillis, false)
      ]
    })
}

const quantiles = ["p50", "p95", "p99", "p999", "max"] as const

/** The scene for a reader: the medians of its rounds. */
export const print = ({ entries, isReached, rate, title }: Load): string => {
  const rowOf = ({ name, rounds }: Entry, state: (typeof states)[number]) => {
    const of = (pick: (phase: Phase) => number) => median(rounds.map((round) => pick(round[state])))
    const late = of((phase) => phase.late)
    return [
      `${name}, ${state}${late > 0 ? ` (${late.toFixed(0)} never came)` : ""}`,
      ...quantiles.map((q) => value(of(({ fromCommit }) => fromCommit[q]))),
      value(of(({ fromDue }) => fromDue.p99)),
      of(({ committedPerSecond }) => committedPerSecond).toFixed(0),
      ...(["relay", "postgres", "kafka", "writer"] as const).map((part) =>
        value(of(({ cpu, events }) => (cpu[part] / events) * 1e6))
      ),
      String(rounds.reduce((sum, { overtaken }) => sum + overtaken, 0)),
      String(rounds.reduce((sum, { duplicates }) => sum + duplicates, 0))
    ]
  }
  const figures = table(
    [title, "p50", "p95", "p99", "p99.9", "max", "p99 due", "committed/s"].concat([
      "relay µs",
      "Postgres µs",
      "Kafka µs",
      "writer µs",
      "overtaken",
      "twice"
    ]),
    states.flatMap((state) => entries.map((entry) => rowOf(entry, state)))
  )
  return isReached
    ? figures
    : `${figures}\nNo writer reached ${leastReached * rate}/s: this machine is too slow for the rate now. No limit is held against these figures.`
}

/** The warm half of the scenes with this rate and the usual events, for the chart. */
export const group = (rate: number, loads: ReadonlyArray<Load>): Group => ({
  title: `${rate} events a second`,
  bars: loads
    .flatMap(({ entries, isReached }) => entries.map((entry) => ({ ...entry, isReached })))
    .toSorted((one, other) => Number(other.isOurs) - Number(one.isOurs))
    .map(({ isOurs, isReached, name, rounds }) => {
      const of = (pick: (phase: Phase) => number) => median(rounds.map(({ warm }) => pick(warm)))
      const overtaken = rounds.reduce((sum, round) => sum + round.overtaken, 0)
      const late = of((phase) => phase.late)
      const notes = [
        ...(isReached ? [] : ["rate not reached"]),
        ...(late > 0 ? ["behind"] : []),
        ...(overtaken > 0 ? [`${overtaken} overtaken`] : [])
      ]
      return {
        name: isOurs ? "ours" : name,
        isOurs,
        // fromEntries forgets which keys there are.
        latency: Object.fromEntries(
          quantiles.map((q) => [q, of(({ fromCommit }) => fromCommit[q])])
        ) as unknown as Quantiles,
        cpu: {
          relay: of(({ cpu, events }) => (cpu.relay / events) * 1e6),
          postgres: of(({ cpu, events }) => (cpu.postgres / events) * 1e6)
        },
        ...(notes.length === 0 ? {} : { note: notes.join(", ") })
      }
    })
})
