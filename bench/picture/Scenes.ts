/** Runs the scenes of a picture that have no steady load. Each gives a text for the reader, and rows for the table. */
import { Effect } from "effect"
import type { Environment, Side } from "../Environment.ts"
import { table } from "../Figures.ts"
import * as Drain from "../drain.ts"
import * as Flat from "../flat.ts"
import { backlog, type Backlog, together } from "../outside/Backlog.ts"
import * as Contenders from "../outside/Contenders.ts"
import type { Setting } from "../outside/Processes.ts"
import { recovery, type Recovery } from "../outside/Recovery.ts"
import { leastDrainRatio, topicOf } from "../outside.ts"
import * as Requests from "../requests.ts"
import type { LoadScene, Scene } from "./Plan.ts"
import { type Row, value } from "./Rows.ts"

/** What a scene came to. */
export interface Outcome {
  readonly text: string
  readonly rows: ReadonlyArray<Row>
  readonly data: unknown
}

/** Cores that were busy, with Postgres and Kafka. */
const cores = ({ cpu, seconds }: Backlog) => (cpu.relay + cpu.postgres + cpu.kafka) / seconds

const backlogTable = (
  title: string,
  results: ReadonlyArray<readonly [name: string, rounds: ReadonlyArray<Backlog>, events: number]>
) =>
  table(
    [title, "events/s", "start to first ms", "relay µs", "Postgres µs", "Kafka µs", "cores busy", "overtaken", "twice"],
    results.map(([name, rounds, events]) => {
      const mean = (pick: (run: Backlog) => number) => rounds.reduce((sum, run) => sum + pick(run), 0) / rounds.length
      return [
        name,
        mean((run) => run.eventsPerSecond).toFixed(0),
        value(mean((run) => run.firstMillis)),
        ...(["relay", "postgres", "kafka"] as const).map((part) =>
          value(mean(({ cpu }) => (cpu[part] / events) * 1e6))
        ),
        cores(rounds[0]!).toFixed(2),
        String(rounds.reduce((sum, { overtaken }) => sum + overtaken, 0)),
        String(rounds.reduce((sum, { duplicates }) => sum + duplicates, 0))
      ]
    })
  )

type Of<Kind extends Scene["kind"]> = Extract<Scene, { readonly kind: Kind }>

const backlogs = Effect.fnUntraced(function* (scene: Of<"backlog">, setting: Setting) {
  const runs = new Map<Contenders.Contender, Array<Backlog>>(scene.contenders.map((contender) => [contender, []]))
  for (let round = 0; round < scene.rounds; round++) {
    for (const contender of round % 2 === 0 ? scene.contenders : scene.contenders.toReversed()) {
      runs.get(contender)!.push(yield* backlog(contender, setting, topicOf(contender), scene.events))
    }
  }
  const own = scene.contenders.find(({ script }) => script === undefined)
  const rows = scene.contenders.flatMap((contender): ReadonlyArray<Row> => {
    if (own === undefined || contender === own) return []
    return [
      {
        what: `drain, ${own.name.replace("ours, ", "")}`,
        unit: "/s",
        ours: runs.get(own)!.map((run) => run.eventsPerSecond),
        peer: contender.name,
        theirs: runs.get(contender)!.map((run) => run.eventsPerSecond),
        ...(scene.isLimited ? { limit: { bound: "least", ratio: leastDrainRatio } as const } : {})
      }
    ]
  })
  const named = [...runs].map(([{ name }, rounds]) => [name, rounds, scene.events] as const)
  return { text: backlogTable(scene.title, named), rows, data: named } satisfies Outcome
})

const several = Effect.fnUntraced(function* (scene: Of<"together">, setting: Setting) {
  const { ours } = Contenders.withArchive
  const runs = yield* Effect.forEach(scene.relays, (relays) =>
    Effect.map(
      together(ours, setting, topicOf(ours), { events: scene.events, relays }),
      (run) => [relays, run] as const
    )
  )
  const alone = runs[0]?.[1]
  const rows = runs.slice(1).map(([relays, run]): Row => ({
    what: `drain, ${relays} dispatchers`,
    unit: "/s",
    ours: [run.eventsPerSecond],
    peer: "one dispatcher",
    theirs: [alone?.eventsPerSecond ?? Number.NaN]
  }))
  const named = runs.map(
    ([relays, run]) => [relays === 1 ? "one dispatcher, warm" : `${relays} dispatchers`, [run], scene.events] as const
  )
  return {
    text: [
      backlogTable(`a backlog of ${scene.events}`, named),
      `${navigator.hardwareConcurrency} cores. Where nearly all are busy, they are the limit, and one more process brings nothing.`
    ].join("\n"),
    rows,
    data: named
  } satisfies Outcome
})

/** Events a second while something fails. */
const recoveryRate = 500

const recoveries = Effect.fnUntraced(function* (scene: Of<"recovery">, setting: Setting) {
  const runs = yield* Effect.forEach(Object.values(Contenders.withArchive), (contender) =>
    Effect.map(
      recovery(contender, setting, topicOf(contender), scene.disturbance, {
        rate: recoveryRate,
        freezeSeconds: scene.freezeSeconds,
        seconds: 8
      }),
      (run) => [contender, run] as const
    )
  )
  const own = runs.find(([{ script }]) => script === undefined)![1]
  const [peer, their] = runs.find(([{ script }]) => script !== undefined)!
  const row = (what: string, pick: (run: Recovery) => number): Row => ({
    what: `${scene.title}: ${what}`,
    unit: "ms",
    ours: [pick(own)],
    peer: peer.name,
    theirs: [pick(their)]
  })
  return {
    text: table(
      [
        `${scene.title}, two relays, ${recoveryRate}/s`,
        "held events",
        "flow back ms",
        "backlog gone ms",
        "longest wait ms",
        "twice"
      ],
      runs.map(([{ name }, run]) => [
        name,
        String(run.held),
        ...[run.backMillis, run.goneMillis, run.longestMillis].map((millis) => millis.toFixed(0)),
        String(run.duplicates)
      ])
    ),
    rows: [
      row("backlog gone", ({ goneMillis }) => goneMillis),
      row("longest wait", ({ longestMillis }) => longestMillis)
    ],
    data: runs.map(([{ name }, run]) => [name, run])
  } satisfies Outcome
})

const requests = Effect.fnUntraced(function* ({ rounds, seconds, warmUpSeconds }: Of<"requests">) {
  const result = yield* Effect.scoped(Requests.requests({ clients: 8, rounds, seconds, warmUpSeconds }))
  return { text: Requests.print(result), rows: Requests.rows(result), data: result } satisfies Outcome
})

const drain = Effect.fnUntraced(function* ({ events, rounds }: Of<"drain">) {
  const result = yield* Drain.drain({ events, rounds })
  const kafkajs = result.parts[0]!.eventsPerSecond
  const rows = result.ratios.map(({ archive, ofKafkajs }): Row => ({
    what: `drain, in one process, archive ${archive}`,
    unit: "/s",
    ours: [ofKafkajs.median * kafkajs.median],
    peer: "kafkajs alone",
    theirs: [kafkajs.median]
  }))
  return { text: Drain.print(result), rows, data: result } satisfies Outcome
})

const flat = Effect.fnUntraced(function* ({ archived }: Of<"flat">) {
  const result = yield* Flat.flat({ archived, queued: 1_000_000, readerEvents: 300_000 })
  return { text: Flat.print(result), rows: [], data: result } satisfies Outcome
})

/** Runs a scene that has no steady load. */
export const run = (
  scene: Exclude<Scene, LoadScene>,
  setting: Setting
): Effect.Effect<Outcome, unknown, Environment | Side> => {
  switch (scene.kind) {
    case "backlog":
      return backlogs(scene, setting)
    case "together":
      return several(scene, setting)
    case "recovery":
      return recoveries(scene, setting)
    case "requests":
      return requests(scene)
    case "drain":
      return drain(scene)
    case "flat":
      return flat(scene)
  }
}
