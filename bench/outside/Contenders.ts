/** The relays that are compared, each with its writer and its tables. All use the same Postgres, Kafka, versions of Node, and flags. */
import { Effect, Redacted } from "effect"
import { existsSync } from "node:fs"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { Environment, Side } from "../Environment.ts"
import { aggregateCount, aggregates, fill, sampleEvent } from "../Workload.ts"

/** See the file. */
export interface Contender {
  readonly name: string
  /** For names of topics. */
  readonly key: string
  /** The relay's program; ours if undefined. */
  readonly script: string | undefined
  readonly relay: Readonly<Record<string, string>>
  readonly writer: { readonly file: string; readonly env: Readonly<Record<string, string>> }
  readonly tables: ReadonlyArray<string>
  readonly queue: string
  /** Commits a backlog in one transaction. */
  readonly fill: (count: number, topic: string) => Effect.Effect<void, unknown, Side>
}

const at = (path: string) => Path.resolve(import.meta.dirname, path)

const ours = (archive: "on" | "off"): Contender => ({
  name: `ours, archive ${archive}`,
  key: `ours-${archive}`,
  script: undefined,
  relay: { OUTBOX_ARCHIVE: archive, LOG_LEVEL: "Warn" },
  writer: { file: at("Writer.ts"), env: {} },
  tables: ["outbox_events", "event_log"],
  queue: "outbox_events",
  fill: (count, topic) => fill(count, "outbox_events", topic)
})

const simplest = (archive: "on" | "off", notify: "on" | "off"): Contender => ({
  name: `simplest${archive === "on" ? " + archive" : ""}${notify === "on" ? " + NOTIFY" : ""}`,
  key: `simplest-${archive}-${notify}`,
  script: at("../peers/Simplest.js"),
  relay: { PEER_ARCHIVE: archive, PEER_NOTIFY: notify },
  writer: { file: at("../peers/SimplestWriter.js"), env: { PEER_NOTIFY: notify } },
  tables: ["peer_outbox", "peer_archive"],
  queue: "peer_outbox",
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
  })
})

/** Ours, and what it is measured by: the simplest relay with an archive and NOTIFY as well. */
export const withArchive = { ours: ours("on"), peer: simplest("on", "on") } as const
/** Both without the archive, the peer without NOTIFY: it drains a backlog all the same. */
export const withoutArchive = { ours: ours("off"), peer: simplest("off", "off") } as const

/** Fails with what to do if the peers are not installed. Makes their tables. */
export const prepare = Effect.gen(function* () {
  if (!areInstalled()) return yield* Effect.die(new Error("the peers are not installed: npm ci --prefix bench/peers"))
  const sql = yield* Side
  const statements = yield* Effect.promise(() => readFile(at("../peers/simplest.sql"), "utf8"))
  for (const statement of statements.split(/;$/m)) if (statement.trim() !== "") yield* sql.unsafe(statement)
})

export const areInstalled = (): boolean => existsSync(at("../peers/node_modules/pg"))

/** The flags of `npm start`, for every relay. */
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
