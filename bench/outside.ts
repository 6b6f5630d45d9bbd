/**
 * `bench outside`: our dispatcher beside the simplest relay that works, both seen from outside.
 *
 * Each contender is a fresh process on the same Postgres and Kafka. A writer process of its own commits events on the schedule of a clock, and
 * a kafkajs reader notes when each one arrives. The contenders take turns, and the ratio is formed within a round. `peers/Simplest.js` says what
 * the simplest relay does, and what it does not.
 */
import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { randomUUID } from "node:crypto"
import { ordersTopic } from "../src/domain/Events.ts"
import { Environment } from "./Environment.ts"
import { median, show, type Spread, spread, table } from "./Figures.ts"
import * as Flags from "./Flags.ts"
import * as Contenders from "./outside/Contenders.ts"
import { backlog } from "./outside/Backlog.ts"
import { usual } from "./outside/OpenLoop.ts"
import type { Setting } from "./outside/Processes.ts"
import { steady } from "./outside/Steady.ts"
import * as Topics from "./outside/Topics.ts"

/** Ours over the simplest, at most: for the p99 from the commit, and for the CPU of relay and Postgres. */
export const mostRatio = 1.2
/** Ours over the simplest, at least: for a drain's events a second. */
export const leastDrainRatio = 1.2

/** Records that readers and Kafka warm up with. */
const warmUpRecords = 5_000

/** The size of a run. */
export interface Options {
  readonly rates: ReadonlyArray<number>
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly rounds: number
  /** The backlog; 0 leaves the drains out. */
  readonly events: number
  /** Whether our events are written by `pg` alone, as the peer's are. */
  readonly plainWriter?: boolean
}

/** A ratio beside its limit. */
export interface Verdict {
  readonly what: string
  readonly ratio: Spread
  readonly limit: string
  readonly holds: boolean
}

/** Runs the contenders of `pair` in turns, the other one first in each second round. */
export const inTurns = <A, E, R>(
  pair: { readonly ours: Contenders.Contender; readonly peer: Contenders.Contender },
  rounds: number,
  run: (contender: Contenders.Contender) => Effect.Effect<A, E, R>
) =>
  Effect.forEach(Array.from({ length: rounds }), (_, round) =>
    round % 2 === 0
      ? Effect.map(Effect.all([run(pair.peer), run(pair.ours)]), ([peer, ours]) => ({ peer, ours }))
      : Effect.map(Effect.all([run(pair.ours), run(pair.peer)]), ([ours, peer]) => ({ peer, ours }))
  )

const verdict = (what: string, values: ReadonlyArray<number>, bound: "most" | "least", limit: number): Verdict => {
  const ratio = spread(values)
  const holds = bound === "most" ? ratio.median <= limit : ratio.median >= limit
  return { what, ratio, limit: `${bound === "most" ? "≤" : "≥"} ${limit}`, holds }
}

export const cpuOfBoth = ({ postgres, relay }: { readonly relay: number; readonly postgres: number }) =>
  relay + postgres

/** Makes the tables of these contenders, and the topic that their readers warm up with. */
export const setUp = Effect.fnUntraced(function* (contenders: ReadonlyArray<Contenders.Contender>) {
  const { brokers } = yield* Environment
  yield* Contenders.prepare(contenders)
  const topics = yield* Topics.connect(brokers)
  const warmUpTopic = `outside-${randomUUID()}`
  yield* topics.acquire(warmUpTopic)
  yield* topics.warmUp(warmUpTopic, warmUpRecords)
  return { topics, warmUpTopic, warmUpRecords, variables: yield* Contenders.variables } satisfies Setting
})

/** A new topic's name for one run, for {@link Contenders.Contender.named}. */
export const topicOf = ({ key }: Contenders.Contender) => `outside-${key}-${randomUUID()}-${ordersTopic}`

/** Runs all loads and backlogs. */
export const outside = Effect.fnUntraced(function* (options: Options) {
  const pair = options.plainWriter === true ? Contenders.withPlainWriter : Contenders.withArchive
  const setting = yield* setUp([...Object.values(Contenders.withArchive), ...Object.values(Contenders.withoutArchive)])

  const loads = yield* Effect.forEach(options.rates, (rate) =>
    Effect.map(
      inTurns(pair, options.rounds, (contender) =>
        steady(contender, setting, topicOf(contender), { ...options, rate })
      ),
      (rounds) => ({ rate, rounds })
    )
  )
  const drains =
    options.events === 0
      ? []
      : yield* Effect.forEach([Contenders.withArchive, Contenders.withoutArchive], (pair) =>
          Effect.map(
            inTurns(pair, options.rounds, (contender) =>
              backlog(contender, setting, topicOf(contender), options.events)
            ),
            (rounds) => ({ ours: pair.ours.name, peer: pair.peer.name, rounds })
          )
        )

  const verdicts = [
    ...loads.flatMap(({ rate, rounds }) =>
      (["cold", "warm"] as const).flatMap((state) => [
        verdict(
          `p99 at ${rate}/s, ${state}`,
          rounds.map(({ ours, peer }) => ours[state].fromCommit.p99 / peer[state].fromCommit.p99),
          "most",
          mostRatio
        ),
        verdict(
          `CPU at ${rate}/s, ${state}`,
          rounds.map(({ ours, peer }) => cpuOfBoth(ours[state].cpu) / cpuOfBoth(peer[state].cpu)),
          "most",
          mostRatio
        )
      ])
    ),
    ...drains.map(({ ours: name, peer: peerName, rounds }) =>
      verdict(
        `drain, ${name} over ${peerName}`,
        rounds.map(({ ours, peer }) => ours.eventsPerSecond / peer.eventsPerSecond),
        "least",
        leastDrainRatio
      )
    )
  ]
  return { workload: options, loads, drains, verdicts }
})

type Result = Effect.Success<ReturnType<typeof outside>>

const millis = (values: ReadonlyArray<number>) => median(values).toFixed(1)
const seconds = (values: ReadonlyArray<number>) => median(values).toFixed(2)

const loadTable = ({ rate, rounds }: Result["loads"][number], isPlain: boolean): string => {
  const pair = isPlain ? Contenders.withPlainWriter : Contenders.withArchive
  const rows = (["cold", "warm"] as const).flatMap((state) =>
    (["peer", "ours"] as const).map((who) => {
      const phases = rounds.map((round) => round[who][state])
      const name = pair[who].name
      return [
        `${name}, ${state}`,
        ...(["p50", "p95", "p99", "p999", "max"] as const).map((q) =>
          millis(phases.map(({ fromCommit }) => fromCommit[q]))
        ),
        millis(phases.map(({ fromDue }) => fromDue.p99)),
        median(phases.map(({ committedPerSecond }) => committedPerSecond)).toFixed(0),
        ...(["relay", "postgres", "kafka", "writer"] as const).map((part) =>
          seconds(phases.map(({ cpu }) => cpu[part]))
        ),
        millis(phases.map(({ cpu, events }) => (cpuOfBoth(cpu) / events) * 1e6))
      ]
    })
  )
  const heading = [
    "p50",
    "p95",
    "p99",
    "p99.9",
    "max",
    "p99 from due",
    "committed/s",
    "relay s",
    "Postgres s",
    "Kafka s",
    "writer s",
    "µs/event"
  ]
  return table([`${rate} events/s, ms from commit to reader`, ...heading], rows)
}

const drainTable = (drains: Result["drains"], events: number): string =>
  table(
    [`a backlog of ${events}`, "events/s", "start to first ms", "relay µs", "Postgres µs", "Kafka µs"],
    drains.flatMap(({ ours, peer, rounds }) =>
      (["peer", "ours"] as const).map((who) => {
        const runs = rounds.map((round) => round[who])
        const micros = (part: "relay" | "postgres" | "kafka") =>
          median(runs.map(({ cpu }) => (cpu[part] / events) * 1e6)).toFixed(1)
        return [
          who === "ours" ? ours : peer,
          median(runs.map(({ eventsPerSecond }) => eventsPerSecond)).toFixed(0),
          median(runs.map(({ firstMillis }) => firstMillis)).toFixed(0),
          micros("relay"),
          micros("postgres"),
          micros("kafka")
        ]
      })
    )
  )

/** The result for a reader. */
export const print = ({ drains, loads, verdicts, workload }: Result): string =>
  [
    `${workload.rounds} rounds, medians. Each load lasts ${workload.seconds} s: cold in a fresh process from its first event, warm in the same ` +
      `process after that and ${workload.warmUpSeconds} s more.`,
    `A writer process commits each event in a transaction of its own, on ${usual.connections} connections, by the clock: ` +
      (workload.plainWriter === true
        ? `both with pg alone, and a NOTIFY in the transaction.`
        : `ours with Outbox.append, the peer's with a plain INSERT.`),
    `Each event belongs to one of ${usual.aggregates} aggregates, whose versions are contiguous. Every event arrived, and none overtook an earlier ` +
      `one of its aggregate.`,
    ...loads.flatMap((load) => ["", loadTable(load, workload.plainWriter === true)]),
    ...(drains.length === 0 ? [] : ["", drainTable(drains, workload.events)]),
    "",
    table(
      ["ours over the simplest, in one round", "ratio", "limit", ""],
      verdicts.map(({ holds, limit, ratio, what }) => [what, show(ratio, 2), limit, holds ? "holds" : "MISSED"])
    )
  ].join("\n")

/** `bench outside`. */
export const command = Command.make(
  "outside",
  {
    json: Flags.json,
    rates: Flag.String("rates").pipe(
      Flag.withDescription("events a second, separated by commas"),
      Flag.withDefault("500,2000")
    ),
    rounds: Flags.rounds(3),
    seconds: Flags.seconds(20),
    warmUp: Flag.Int("warm-up").pipe(
      Flag.withDescription("seconds of the load between cold and warm"),
      Flag.withDefault(10)
    ),
    events: Flags.events(200_000),
    plainWriter: Flag.Boolean("plain-writer").pipe(
      Flag.withDescription("our events are written as the peer's are, by pg alone with a NOTIFY in the transaction"),
      Flag.withDefault(false)
    )
  },
  Effect.fnUntraced(function* ({ json, rates, warmUp, ...options }) {
    const result = yield* Effect.provide(
      Effect.scoped(outside({ ...options, rates: rates.split(",").map(Number), warmUpSeconds: warmUp })),
      Flags.environment({ kafka: true })
    )
    yield* Console.log(json ? JSON.stringify(result) : print(result))
  })
).pipe(
  Command.withDescription("The dispatcher's process beside the simplest relay, from a writer elsewhere to a reader")
)
