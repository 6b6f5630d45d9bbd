/**
 * The events that a consumer has applied, read from the archive. A cursor at version 7 says that versions 1 to 7 have had their effect, but for those that
 * were given up. So the cursors tell exactly what is in a projection's table, whatever the broker's offsets say.
 */
import { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"
import { Envelope } from "../../brokers/Envelope.ts"
import { laneOf } from "../../outbox/Lane.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"

/** Versions of an aggregate: those after `after`, up to and with `until`. */
const Run = Schema.Struct({
  aggregateId: Schema.String,
  aggregateType: Schema.String,
  after: Schema.Int,
  until: Schema.Int
})
export type Run = typeof Run.Type

/** The versions of all these runs. */
export const versionsOf = (runs: ReadonlyArray<Run>): number =>
  runs.reduce((sum, { after, until }) => sum + until - after, 0)

/** A page has at most so many versions: a transaction of some tens of milliseconds. */
const pageVersions = 1_000

/** And so many bytes of data, for an event can take nearly a megabyte; the first event is in it anyway. */
const pageBytes = 4_000_000

/** And at most so many events that are applied and not archived yet: a dispatcher archives within milliseconds, as a rule. */
const pageUnarchived = 100

/** How many events a refusal names. */
const namedMissing = 5

/** An event that the consumer has applied, and that is nowhere any more. */
export interface MissingEvent {
  readonly aggregateType: string
  readonly aggregateId: string
  readonly version: number
}

/** The next events of some runs. */
export interface Page {
  /** Aggregate by aggregate, each aggregate's in version order. */
  readonly events: ReadonlyArray<Envelope>
  /** The versions that the page covers, those that were given up included. */
  readonly covered: ReadonlyArray<Run>
  /** What is left of the runs. */
  readonly rest: ReadonlyArray<Run>
  /** Versions that should be among the events: the first ones. With any, the page is of no use. */
  readonly missing: ReadonlyArray<MissingEvent>
}

const allRuns = Rows.all(Run)
const allEvents = Rows.all(
  Schema.Struct({ ...Envelope.fields, data: Schema.String, run: Schema.BigInt, ofAll: Schema.BigInt })
)

type InTransaction<A> = Effect.Effect<A, SqlError.SqlError, Transaction>

const inSql = <A>(use: (sql: Transaction["Service"]["sql"]) => Effect.Effect<A, SqlError.SqlError>): InTransaction<A> =>
  Effect.flatMap(Transaction, ({ sql }) => use(sql))

/** The runs that the consumer has applied of the next `limit` aggregates behind `last`, from version 1. */
export const nextAggregates = (
  consumer: string,
  last: { readonly aggregateId: string; readonly aggregateType: string },
  limit: number
): InTransaction<ReadonlyArray<Run>> =>
  inSql((sql) =>
    allRuns(sql`
      SELECT aggregate_id AS "aggregateId", aggregate_type AS "aggregateType", 0 AS after, version AS until FROM consumer_cursors
      WHERE consumer_name = ${consumer} AND (aggregate_id, aggregate_type) > (${last.aggregateId}::text, ${last.aggregateType}::text)
      ORDER BY aggregate_id, aggregate_type LIMIT ${limit}`)
  )

/**
 * The runs that the consumer has applied and the rebuild has not, of at most `limit` aggregates. It reads all cursors of both, once each, whatever
 * Postgres knows of their number: a join that takes the rebuild's for none, as between two rebuilds, would compare each with each.
 */
export const behind = (consumer: string, limit: number): InTransaction<ReadonlyArray<Run>> =>
  inSql((sql) =>
    allRuns(sql`
      SELECT aggregate_id AS "aggregateId", aggregate_type AS "aggregateType", max(own) AS after, max(live) AS until
      FROM (SELECT aggregate_id, aggregate_type, version AS live, 0 AS own FROM consumer_cursors WHERE consumer_name = ${consumer}
            UNION ALL
            SELECT aggregate_id, aggregate_type, 0, version FROM rebuild_cursors WHERE consumer_name = ${consumer}) AS cursors
      GROUP BY aggregate_id, aggregate_type HAVING max(live) > max(own) LIMIT ${limit}`)
  )

const keyOf = (event: { readonly aggregateId: string; readonly aggregateType: string }, version: number) =>
  `${version} ${event.aggregateType.length} ${event.aggregateType}${event.aggregateId}`

/** The first versions of the runs, as many as fit a page. */
const firstOf = (runs: ReadonlyArray<Run>): ReadonlyArray<Run> => {
  let room = pageVersions
  return runs.slice(0, pageVersions).flatMap((run) => {
    const until = Math.min(run.until, run.after + room)
    room -= until - run.after
    return until > run.after ? [{ ...run, until }] : []
  })
}

/** The rest of `runs` behind `covered`: these are the first runs, and the last of them may be covered in part. */
const restOf = (runs: ReadonlyArray<Run>, covered: ReadonlyArray<Run>): ReadonlyArray<Run> => {
  const last = covered.at(-1)
  if (last === undefined) return runs
  const cut = runs[covered.length - 1]!
  return [...(last.until < cut.until ? [{ ...cut, after: last.until }] : []), ...runs.slice(covered.length)]
}

const eventColumns = `e.event_id::text AS "eventId", e.event_type AS "eventType", e.schema_version AS "schemaVersion",
  ${isoTime("e.occurred_at")} AS "occurredAt", e.trace_id AS "traceId", e.aggregate_type AS "aggregateType",
  e.aggregate_id AS "aggregateId", e.aggregate_version AS "aggregateVersion", e.data::text AS data`

const columnsOf = (runs: ReadonlyArray<Run>) => ({
  ids: runs.map(({ aggregateId }) => aggregateId),
  types: runs.map(({ aggregateType }) => aggregateType),
  afters: runs.map(({ after }) => after),
  untils: runs.map(({ until }) => until)
})

/** The archive's events of these runs, up to {@link pageBytes}. `ofAll`: how many there are without that bound. */
const archived = (topic: string, runs: ReadonlyArray<Run>) => {
  const { afters, ids, types, untils } = columnsOf(runs)
  return inSql((sql) =>
    allEvents(sql`
      SELECT * FROM (
        SELECT ${sql.literal(eventColumns)}, r.run, count(*) OVER () AS "ofAll",
               sum(octet_length(e.data::text)) OVER (ORDER BY r.run, e.aggregate_version) - octet_length(e.data::text) AS before
        FROM unnest(${ids}::text[], ${types}::text[], ${afters}::int4[], ${untils}::int4[]) WITH ORDINALITY AS r(id, type, after, until, run)
        JOIN event_log AS e ON e.aggregate_id = r.id AND e.aggregate_version > r.after AND e.aggregate_version <= r.until
          AND e.aggregate_type = r.type
        WHERE e.topic = ${topic}) AS measured
      WHERE before < ${pageBytes}::int8
      ORDER BY run, "aggregateVersion"`)
  )
}

/**
 * The events of these runs, wherever they are. A consumer can apply an event before its dispatcher has archived it, and one that the broker took
 * although it said that it did not. An event that is archived meanwhile is seen once: it is one statement.
 */
const anywhere = (topic: string, runs: ReadonlyArray<Run>, lanes: ReadonlyArray<number>) => {
  const { afters, ids, types, untils } = columnsOf(runs)
  return inSql((sql) =>
    allEvents(sql`
      SELECT ${sql.literal(eventColumns)}, r.run, 0::int8 AS "ofAll"
      FROM unnest(${ids}::text[], ${types}::text[], ${afters}::int4[], ${untils}::int4[]) WITH ORDINALITY AS r(id, type, after, until, run)
      JOIN outbox_status AS e ON e.aggregate_id = r.id AND e.aggregate_version > r.after AND e.aggregate_version <= r.until
        AND e.aggregate_type = r.type
      WHERE e.topic = ${topic} AND (e.lane = ANY(${lanes}::int2[]) OR e.lane IS NULL)`)
  )
}

/** Versions of these aggregates that the consumer's cursor passed without an effect: given up at the inbox, at the outbox, or skipped. */
export const givenUp = (consumer: string, topic: string, ids: ReadonlyArray<string>) => {
  return inSql((sql) =>
    allRuns(sql`
      SELECT aggregate_id AS "aggregateId", aggregate_type AS "aggregateType", aggregate_version - 1 AS after, aggregate_version AS until
      FROM inbox_dead_letters
      WHERE consumer_name = ${consumer} AND aggregate_id = ANY(${[...ids]}::text[]) AND aggregate_type IS NOT NULL AND aggregate_version IS NOT NULL
      UNION ALL
      -- Not the outbox's dead letters: one of them may have reached the topic by a send whose answer was lost.
      SELECT aggregate_id, aggregate_type, after_version, until_version FROM consumer_gaps
      WHERE consumer_name = ${consumer} AND aggregate_id = ANY(${[...ids]}::text[])
      UNION ALL
      -- The audit of a skip names the event that the consumer went on with.
      SELECT e.aggregate_id, e.aggregate_type, (a.before ->> 'version')::int4, (a.after ->> 'version')::int4
      FROM operator_audit AS a JOIN event_log AS e
        ON e.event_id = CASE WHEN a.action = 'skip' THEN split_part(a.subject_id, ' ', 2)::uuid END
      WHERE a.subject = 'inbox event' AND a.action = 'skip'
        -- An ARRAY is looked up in the index. Without it Postgres would read every decision there ever was.
        AND a.subject_id = ANY (ARRAY(
          SELECT ${consumer} || ' ' || event_id::text FROM event_log WHERE aggregate_id = ANY(${[...ids]}::text[]) AND topic = ${topic}))`)
  )
}

/** Cuts the runs behind the last event, where the page's bytes did not reach further. */
const reached = (
  asked: ReadonlyArray<Run>,
  found: ReadonlyArray<{ readonly run: bigint; readonly ofAll: bigint; readonly aggregateVersion: number }>
): ReadonlyArray<Run> => {
  const last = found.at(-1)
  if (last === undefined || BigInt(found.length) === last.ofAll) return asked
  const kept = asked.slice(0, Number(last.run))
  return kept.map((run, index) => (index === kept.length - 1 ? { ...run, until: last.aggregateVersion } : run))
}

/** Reads the next page of `runs`, which are not empty. All of it is in the present transaction, and none of it is locked. */
export const read = Effect.fnUntraced(function* (consumer: string, topic: string, runs: ReadonlyArray<Run>) {
  const asked = firstOf(runs)
  const inArchive = yield* archived(topic, asked)
  const found = new Map(inArchive.map((event) => [keyOf(event, event.aggregateVersion), event]))
  const elsewhere: Array<Run> = []
  const covered: Array<Run> = []
  for (const run of reached(asked, inArchive)) {
    let until = run.after
    while (until < run.until && elsewhere.length < pageUnarchived) {
      until++
      if (!found.has(keyOf(run, until))) elsewhere.push({ ...run, after: until - 1, until })
    }
    if (until > run.after) covered.push({ ...run, until })
    if (until < run.until) break
  }
  if (elsewhere.length > 0) {
    const lanes = [...new Set(elsewhere.map(({ aggregateId }) => laneOf(aggregateId)))]
    for (const event of yield* anywhere(topic, elsewhere, lanes)) found.set(keyOf(event, event.aggregateVersion), event)
  }
  const without = Map.groupBy(
    yield* givenUp(
      consumer,
      topic,
      covered.map(({ aggregateId }) => aggregateId)
    ),
    (run) => keyOf(run, 0)
  )
  const events: Array<Envelope> = []
  const missing: Array<MissingEvent> = []
  for (const { after, aggregateId, aggregateType, until } of covered) {
    const aggregate = { aggregateId, aggregateType }
    const gaps = without.get(keyOf(aggregate, 0)) ?? []
    for (let version = after + 1; version <= until; version++) {
      if (gaps.some((gap) => version > gap.after && version <= gap.until)) continue
      const event = found.get(keyOf(aggregate, version))
      if (event !== undefined) {
        const { data, ofAll: _, run: __, ...rest } = event
        events.push({ ...rest, data: JSON.parse(data) as Schema.Json })
      } else if (missing.length < namedMissing) missing.push({ ...aggregate, version })
    }
  }
  const page: Page = { events, covered, rest: restOf(runs, covered), missing }
  return page
})

const firstTime = Rows.first(Schema.Struct({ at: Schema.String }))

/** When the archive's first event occurred; undefined where it is empty. */
export const oldest = inSql((sql) =>
  Effect.map(
    firstTime(sql`SELECT ${sql.literal(isoTime("occurred_at"))} AS at FROM event_log ORDER BY event_id LIMIT 1`),
    (row) => row?.at
  )
)
