/** A subscriber with a projection that shows everything: of each aggregate, the versions that it was given, in their order. */
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { Envelope } from "../../src/brokers/Envelope.ts"
import type { Subscriber } from "../../src/inbox/Subscriber.ts"
import type { Projection } from "../../src/operations/rebuild/Projection.ts"
import { type Progress, Rebuild } from "../../src/operations/rebuild/Rebuild.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { idOf, record, topic } = Deliveries

export const operator = { actor: "ada", reason: "a test" }

/** Writes the versions behind each other, and fails at an event in `broken`. `before` runs in front of each write. */
const makeWriter = (
  table: string,
  broken: ReadonlySet<string>,
  before: () => (() => Effect.Effect<void>) | undefined
) =>
  Effect.fnUntraced(function* (events: ReadonlyArray<Envelope>) {
    const { sql } = yield* Transaction
    const hook = before()
    if (hook === undefined && broken.size === 0) {
      // All rows at once, for tests with thousands of events.
      const loud = events.filter(({ data }) => (data as { readonly silent?: boolean }).silent !== true)
      // A statement without rows locks the table all the same.
      if (loud.length === 0) return
      yield* sql`
        INSERT INTO ${sql(table)} AS trail
        SELECT id, array_agg(version ORDER BY at) FROM unnest(${loud.map(({ aggregateId }) => aggregateId)}::text[],
          ${loud.map(({ aggregateVersion }) => aggregateVersion)}::int4[]) WITH ORDINALITY AS e(id, version, at) GROUP BY id
        ON CONFLICT (id) DO UPDATE SET versions = trail.versions || excluded.versions`
      return
    }
    for (const { aggregateId, aggregateVersion, data } of events) {
      yield* hook?.() ?? Effect.void
      if ((data as { readonly silent?: boolean }).silent === true) continue
      if (broken.has(`${aggregateId}/${aggregateVersion}`)) return yield* Effect.fail(new Error("out of ink"))
      yield* sql`
        INSERT INTO ${sql(table)} AS trail VALUES (${aggregateId}, ARRAY[${aggregateVersion}::int4])
        ON CONFLICT (id) DO UPDATE SET versions = trail.versions || excluded.versions`
    }
  })

/** The subscriber, its projection, and what the test may change. */
export const make = (name = "scribe", options: { readonly firstSight?: Subscriber["firstSight"] } = {}) => {
  const broken = new Set<string>()
  const brokenInRebuild = new Set<string>()
  const hooks: { live?: () => Effect.Effect<void>; rebuilt?: () => Effect.Effect<void> } = {}
  const write = makeWriter("trails", broken, () => hooks.live)
  const rewrite = makeWriter("trails_rebuilt", brokenInRebuild, () => hooks.rebuilt)
  const subscriber: Subscriber = {
    name,
    topic,
    firstSight: options.firstSight ?? "from-version-1",
    handle: (event) => write([event]),
    handleMany: write
  }
  const projection: Projection = {
    subscriber,
    tables: [{ live: "trails", rebuilt: "trails_rebuilt", key: ["id"] }],
    handleMany: rewrite
  }
  return { subscriber, projection, broken, brokenInRebuild, hooks }
}

export const makeTables = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    DO $$ BEGIN
      CREATE TABLE trails (id text PRIMARY KEY, versions int4[] NOT NULL);
      CREATE TABLE trails_rebuilt (LIKE trails INCLUDING ALL);
    END $$`
)

/** The consumer's steps on a database of the test's own, with the tables of {@link make}. */
export const world = Rebuild.layer.pipe(
  Layer.provideMerge(Layer.effectDiscard(makeTables)),
  Layer.provideMerge(Deliveries.process)
)

/** Versions from `from` to `to`. */
export const versions = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index)

/** Writes the events into the archive, as their dispatcher does after the broker's answer. */
export const archive = Effect.fnUntraced(function* (id: string, list: ReadonlyArray<number>, data: object = {}) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id,
      span_id, data, broker_partition, broker_offset, published_at)
    SELECT e.id, ${topic}, 'Counted', 1, 'Counter', ${id}, version, '2026-01-01T12:00:00Z', ${"0".repeat(32)}, ${"0".repeat(16)},
           ${JSON.stringify(data)}::text::json, 0, version, clock_now()
    FROM unnest(${list.map((version) => idOf(id, version))}::uuid[], ${[...list]}::int4[]) AS e(id, version)`
})

/** Gives the events to the consumer, in one slice. */
export const apply = (subscriber: Subscriber, id: string, list: ReadonlyArray<number>, data: object = {}) =>
  Deliveries.deliver(subscriber, Deliveries.makePartition().slice(list.map((version) => record(id, version, { data }))))

/** Publishes and applies the events. */
export const happen = (subscriber: Subscriber, id: string, list: ReadonlyArray<number>, data: object = {}) =>
  Effect.andThen(archive(id, list, data), apply(subscriber, id, list, data))

const trailsIn = (table: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ readonly line: string }>`
        SELECT id || ' ' || array_to_string(versions, ',') AS line FROM ${sql(table)} ORDER BY id`,
      (rows) => rows.map(({ line }) => line)
    )
  )

/** The rows that are read, a line each. */
export const trails = trailsIn("trails")

/** How many rows a rebuild has left behind, anywhere. */
export const leftOver = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ readonly rows: number }>`
      SELECT ((SELECT count(*) FROM trails_rebuilt) + (SELECT count(*) FROM rebuild_cursors) + (SELECT count(*) FROM rebuilds))::int4 AS rows`,
    ([row]) => row!.rows
  )
)

/** Rebuilds, and keeps what it told. */
export const rebuild = (projection: Projection, told: Array<Progress> = []) =>
  Rebuild.use(({ run }) => run(projection, operator, (progress) => Effect.sync(() => void told.push(progress))))

/** Mistakes of a person at the live table. */
export const damage = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    DO $$ BEGIN
      UPDATE trails SET versions = versions || 99 WHERE id = 'a';
      DELETE FROM trails WHERE id = 'b';
      INSERT INTO trails VALUES ('nobody', ARRAY[1]);
    END $$`
)
