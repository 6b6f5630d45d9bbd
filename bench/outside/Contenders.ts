/** The relays that are compared, each with its writer and its tables. All use the same Postgres, Kafka and version of Node. */
import { Effect, Redacted, type Scope } from "effect"
import { existsSync } from "node:fs"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { ordersTopic } from "../../src/domain/Events.ts"
import { Environment, Side } from "../Environment.ts"
import { aggregateCount, aggregates, fill, sampleEvent } from "../Workload.ts"

/** See the file. */
export interface Contender {
  readonly name: string
  /** For names of topics, and of figures. */
  readonly key: string
  /** The relay's program; ours if undefined. */
  readonly script: string | undefined
  readonly relay: Readonly<Record<string, string>>
  /** Kafka's name of a topic, as the contender has it. */
  readonly named: (topic: string) => {
    /** In its tables. */
    readonly topic: string
    /** What its relay has to know for it. */
    readonly env: Readonly<Record<string, string>>
  }
  readonly writer: { readonly file: string; readonly env: Readonly<Record<string, string>> }
  /** Makes the tables. They are made once, and emptied before each run. */
  readonly prepare: Effect.Effect<void, unknown, Side | Environment | Scope.Scope>
  readonly tables: ReadonlyArray<string>
  readonly queue: string
  /** The archive's table, if it has one. */
  readonly archive: string | undefined
  /** Returns a row while something is left to send. */
  readonly left: string
  /** Commits a backlog in one transaction; undefined for a relay that sees only what is written while it runs. */
  readonly fill:
    | ((count: number, topic: string) => Effect.Effect<void, unknown, Side | Environment | Scope.Scope>)
    | undefined
  /** A contender that promises an aggregate's order, and all events of a load. If it breaks the promise, the benchmark fails. */
  readonly isStrict: boolean
}

export const at = (path: string) => Path.resolve(import.meta.dirname, path)

/** All but ours have a topic's name as it is. */
export const asItIs: Contender["named"] = (topic) => ({ topic, env: {} })

/** Our dispatcher. It warms up for the topics that its service has events for, so it gets such a one under a prefix. */
export const ours = (archive: "on" | "off"): Contender => ({
  name: `ours, archive ${archive}`,
  key: `ours-${archive}`,
  script: undefined,
  relay: { OUTBOX_ARCHIVE: archive, LOG_LEVEL: "Warn" },
  named: (topic) => ({ topic: ordersTopic, env: { KAFKA_PREFIX: topic.slice(0, -ordersTopic.length) } }),
  writer: { file: at("Writer.ts"), env: {} },
  prepare: Effect.void,
  tables: ["outbox_events", "event_log"],
  queue: "outbox_events",
  archive: "event_log",
  left: "SELECT FROM outbox_events LIMIT 1",
  fill: (count, topic) => fill(count, "outbox_events", topic),
  isStrict: true
})

/** The simplest relay that loses nothing and keeps the order: `peers/Simplest.js`. */
export const simplest = (archive: "on" | "off", notify: "on" | "off"): Contender => ({
  name: `simplest${archive === "on" ? " + archive" : ""}${notify === "on" ? " + NOTIFY" : ""}`,
  key: `simplest-${archive}-${notify}`,
  script: at("../peers/Simplest.js"),
  relay: { PEER_ARCHIVE: archive, PEER_NOTIFY: notify },
  named: asItIs,
  writer: { file: at("../peers/SimplestWriter.js"), env: { PEER_NOTIFY: notify } },
  prepare: Effect.gen(function* () {
    const sql = yield* Side
    const statements = yield* Effect.promise(() => readFile(at("../peers/simplest.sql"), "utf8"))
    for (const statement of statements.split(/;$/m)) if (statement.trim() !== "") yield* sql.unsafe(statement)
  }),
  tables: ["peer_outbox", "peer_archive"],
  queue: "peer_outbox",
  archive: "peer_archive",
  left: "SELECT FROM peer_outbox LIMIT 1",
  fill: Effect.fnUntraced(function* (count, topic) {
    const sql = yield* Side
    const ids = aggregates()
    const sample = sampleEvent(ids[0]!, 1)
    yield* sql`
      INSERT INTO peer_outbox (topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, trace_id, span_id, data)
      SELECT ${topic}, ${sample.eventType}, 1::int2, ${sample.aggregateType}, aggregate.id, turn.version, ${sample.traceId}, ${sample.spanId},
             ${sample.data}::text::json
      FROM generate_series(1, ${Math.ceil(count / aggregateCount)}::int4) AS turn(version), unnest(${ids}::text[]) AS aggregate(id)
      ORDER BY turn.version`
  }),
  isStrict: true
})

/** Ours, and what it is measured by: the simplest relay with an archive and NOTIFY as well. */
export const withArchive = { ours: ours("on"), peer: simplest("on", "on") } as const
/** The same, where our writer is as plain as the peer's: the figures differ by the relays alone. */
export const withPlainWriter = {
  ours: { ...ours("on"), name: "ours, plain writer", writer: { file: at("../peers/PlainWriter.js"), env: {} } },
  peer: withArchive.peer
} as const
/** Both without the archive, the peer without NOTIFY: it drains a backlog all the same. */
export const withoutArchive = { ours: ours("off"), peer: simplest("off", "off") } as const

/** Whether a package of the peers is there. */
export const isInstalled = (name: string): boolean => existsSync(at(`../peers/node_modules/${name}`))

/** What the simplest relay and the plain server need. */
export const areInstalled = (): boolean => isInstalled("pg")

export const notInstalled = new Error("the peers are not installed: npm ci --prefix bench/peers")

/** Fails with what to do if the peers are not installed. Makes the tables of these contenders. */
export const prepare = Effect.fnUntraced(function* (contenders: ReadonlyArray<Contender>) {
  if (!areInstalled()) return yield* Effect.die(notInstalled)
  const ofEachTable = new Map(contenders.map((contender) => [contender.queue, contender]))
  for (const contender of ofEachTable.values()) yield* contender.prepare
})

/** The flags of `npm start`, for every relay. Ours sets two more by itself (`paid-once.js`). */
export const nodeOptions = "--max-semi-space-size=16 --max-old-space-size=1536 --disable-warning=TimeoutNegativeWarning"

/** The variables of all processes of a run. */
export const variables = Effect.gen(function* () {
  const { brokers, databaseUrl } = yield* Environment
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(Path.join(tmpdir(), "bench-outside-"))),
    (made) => Effect.promise(() => rm(made, { recursive: true, force: true }))
  )
  return {
    DATABASE_URL: Redacted.value(databaseUrl),
    KAFKA_BROKERS: brokers,
    DATA_DIRECTORY: directory,
    NODE_OPTIONS: nodeOptions
  }
})
