/**
 * Tables that are partitioned by the day in their UUIDv7 key: partitions are made ahead of their day, and dropped whole once all their
 * rows are past the retention.
 *
 * Every step is short and safe to repeat. It gives up rather than wait for a lock, so readers and writers of the table go first. A step
 * takes an advisory lock, so any number of processes may try it. The DDL is in functions with the rights of the schema's owner
 * (migrations/mechanism/0111_partition_rights.sql), because the service's role may have none.
 *
 * A row's age is that of its own time column (published, applied), not that of the day in its key. An event that was published after a
 * long outage has an old key and a young row.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Schema } from "effect"
import { SqlError, type Statement } from "effect/sql"
import * as Retention from "../platform/Retention.ts"
import * as Rows from "../platform/Rows.ts"

/** A table with daily partitions. */
export interface DailyTable {
  readonly table: Retention.KeptTable
  /** The column with the row's own time. */
  readonly timeColumn: string
  /** How long rows are kept, in days; 0 keeps them for ever. */
  readonly retentionDays: number
}

/** One partition, and the step that it needed: done, or why not. */
export interface Step {
  readonly table: string
  readonly partition: string
  /**
   * - `made`: the partition of a day ahead exists now; `rows` came over from the default partition
   * - `dropped`: the partition is gone
   * - `deleted`: `rows` old rows are gone from the default partition
   * - `kept`: the day is past the retention, but a row in it is not
   * - `blocked`: the default partition holds too many rows of the day to move them
   * - `busy`: another session uses the table or does the same step; to be tried again
   */
  readonly outcome: "made" | "dropped" | "deleted" | "kept" | "blocked" | "busy"
  readonly rows?: number
}

/** The most rows that move from the default partition into the partition of their day: a tenth of a second. */
const maxMovedRows = 10_000

/**
 * A drop locks the whole table for a moment, and all statements that come while it waits for that lock queue behind it, a dispatcher's mark
 * among them. So it waits no longer than this for the readers before it.
 */
const dropLockTimeout = "100ms"

/** Pages that one statement reads: 64 MB, a fraction of a second also from a slow disk. */
const scanPages = 8_192

/** Pages of the default partition that one DELETE goes through: 1 MB, some thousand rows, a few milliseconds. */
const deletePages = 128

/**
 * Rows are kept this much longer than their retention. A broker deletes records a few minutes late, and the clocks of hosts differ; a mark
 * must outlive its record.
 */
const marginInterval = "1 hour"

const sqlStateOf = ({ reason }: SqlError.SqlError) =>
  typeof reason.cause === "object" && reason.cause !== null && "code" in reason.cause ? reason.cause.code : undefined

/** The lock was not free in time, a deadlock, or rows of the day that were written meanwhile. */
const busy: ReadonlySet<unknown> = new Set(["55P03", "40P01", "23514"])

/** Another process has just dropped the partition, or made it. */
const overtaken: ReadonlySet<unknown> = new Set(["42P01", "42P07"])

/** Does the steps one after the other, up to the first that is busy: the next one would find the same lock taken. */
const inTurn = Effect.fnUntraced(function* <A extends { readonly partition: string }, R>(
  table: string,
  items: ReadonlyArray<A>,
  step: (item: A) => Effect.Effect<Step | undefined, SqlError.SqlError, R>
) {
  const steps: Array<Step> = []
  for (const item of items) {
    const done = yield* Effect.catchTag(step(item), "SqlError", (error) => {
      const state = sqlStateOf(error)
      return busy.has(state)
        ? Effect.succeed<Step>({ table, partition: item.partition, outcome: "busy" })
        : overtaken.has(state)
          ? Effect.undefined
          : Effect.fail(error)
    })
    if (done !== undefined) steps.push(done)
    if (done?.outcome === "busy") break
  }
  return steps
})

const missingDays = Rows.all(Schema.Struct({ day: Schema.String, partition: Schema.String }))
const oneMade = Rows.one(
  Schema.Struct({ outcome: Schema.Literals(["made", "present", "blocked"]), moved: Schema.BigInt })
)

const makeDay = (
  sql: PgClient.PgClient,
  table: string,
  { day, partition }: { readonly day: string; readonly partition: string }
) =>
  Effect.map(
    oneMade(sql`
      SELECT outcome, moved FROM make_daily_partition(${table}::text, ${day}::date, ${maxMovedRows}::int4)`),
    ({ moved, outcome }): Step | undefined =>
      // Present: another process was faster.
      outcome === "present" ? undefined : { table, partition, outcome, ...(moved > 0n ? { rows: Number(moved) } : {}) }
  )

/** Makes the missing partitions from yesterday's to the one `daysAhead` days from now. `dryRun` only reports them. */
export const makeAhead = Effect.fn("DailyPartitions.makeAhead")(function* (
  table: string,
  daysAhead: number,
  { dryRun = false }: { readonly dryRun?: boolean } = {}
) {
  const sql = yield* PgClient.PgClient
  const days = yield* missingDays(sql`
    SELECT day::text AS day, ${table}::text || to_char(day, '_YYYYMMDD') AS partition
    FROM (
      SELECT (clock_now() AT TIME ZONE 'UTC')::date + n AS day FROM generate_series(-1, ${daysAhead}::int4) AS n
    ) AS days
    WHERE NOT EXISTS (
      SELECT FROM time_partitions(${table}::text)
      WHERE from_time < uuid_v7_time(uuid_v7_floor(day + 1)) AND to_time > uuid_v7_time(uuid_v7_floor(day))
    )
    ORDER BY day`)
  return yield* inTurn(table, days, (one) =>
    dryRun ? Effect.succeed<Step>({ table, partition: one.partition, outcome: "made" }) : makeDay(sql, table, one)
  )
})

/**
 * Makes the missing partitions of the days of these ids, where rows of the past are to come. Older ones than ten years
 * are not made: their rows go to the default partition.
 */
export const makePast = Effect.fn("DailyPartitions.makePast")(function* (table: string, ids: ReadonlyArray<string>) {
  const sql = yield* PgClient.PgClient
  const days = yield* missingDays(sql`
    SELECT day::text AS day, ${table}::text || to_char(day, '_YYYYMMDD') AS partition
    FROM (SELECT DISTINCT (uuid_v7_time(id) AT TIME ZONE 'UTC')::date AS day FROM unnest(${[...ids]}::uuid[]) AS id) AS days
    WHERE day - (clock_now() AT TIME ZONE 'UTC')::date BETWEEN -3660 AND 0 AND NOT EXISTS (
      SELECT FROM time_partitions(${table}::text)
      WHERE from_time < uuid_v7_time(uuid_v7_floor(day + 1)) AND to_time > uuid_v7_time(uuid_v7_floor(day))
    )
    ORDER BY day`)
  return yield* inTurn(table, days, (one) => makeDay(sql, table, one))
})

const onePages = Rows.one(Schema.Struct({ pages: Schema.Number }))

/** How many pages the partition has; 0 if another process dropped it a moment ago, for which Postgres says NULL. */
const pagesOf = (sql: PgClient.PgClient, partition: string) =>
  Effect.map(
    onePages(sql`
      SELECT coalesce(pg_relation_size(${partition}::text::regclass) / current_setting('block_size')::int8, 0)::float8 AS pages`),
    ({ pages }) => pages
  )

/** The pages in windows `[first, end)`, the last one first: young rows are at the end, so they are found at once. */
const windows = (pages: number, size: number) =>
  Array.from(
    { length: Math.ceil(pages / size) },
    (_, index) => [index * size, (index + 1) * size] as const
  ).toReversed()

const inWindow = (sql: Statement.Constructor, [first, end]: readonly [number, number]) =>
  sql`ctid >= ${`(${first},0)`}::text::tid AND ctid < ${`(${end},0)`}::text::tid`

/** Whether the partition holds a row that is not older than `cutoff`. To answer no it reads all of it. */
const holdsYoung = Effect.fnUntraced(function* (
  sql: PgClient.PgClient,
  partition: string,
  timeColumn: string,
  cutoff: string
) {
  for (const window of windows(yield* pagesOf(sql, partition), scanPages)) {
    const found = yield* sql`
      SELECT 1 AS one FROM ${sql.literal(partition)}
      WHERE ${inWindow(sql, window)} AND ${sql(timeColumn)} >= ${cutoff}::timestamptz LIMIT 1`
    if (found.length > 0) return true
  }
  return false
})

const oneLocked = Rows.one(Schema.Struct({ locked: Schema.Boolean }))

/**
 * Drops the partition if all its rows are older than `cutoff`, in one transaction. While it looks, no session can write to this one day,
 * and only events that are older than the retention would go there. The drop itself then takes a moment, or gives up.
 */
const dropOne = (
  sql: PgClient.PgClient,
  { table, timeColumn }: DailyTable,
  partition: string,
  cutoff: string
): Effect.Effect<Step, SqlError.SqlError> =>
  sql.withTransaction(
    Effect.gen(function* () {
      yield* sql`SELECT set_config('lock_timeout', ${dropLockTimeout}, true)`
      const { locked } = yield* oneLocked(sql`
        SELECT pg_try_advisory_xact_lock(hashtext('daily partitions'), hashtext(${table})) AS locked`)
      if (!locked) return { table, partition, outcome: "busy" }
      yield* sql`LOCK TABLE ${sql.literal(partition)} IN SHARE MODE`
      if (yield* holdsYoung(sql, partition, timeColumn, cutoff)) return { table, partition, outcome: "kept" }
      yield* sql`SELECT drop_daily_partition(${table}::text, ${partition}::text)`
      return { table, partition, outcome: "dropped" }
    })
  )

const oneCount = Rows.one(Schema.Struct({ rows: Schema.Number }))

/** Deletes the default partition's old rows, or counts them, in bounded statements that each commit by themselves. */
const cleanDefault = Effect.fnUntraced(function* (
  sql: PgClient.PgClient,
  { table, timeColumn }: DailyTable,
  partition: string,
  cutoff: string,
  dryRun: boolean
) {
  let rows = 0
  for (const window of windows(yield* pagesOf(sql, partition), deletePages)) {
    const old = sql`${inWindow(sql, window)} AND ${sql(timeColumn)} < ${cutoff}::timestamptz`
    const count = yield* oneCount(
      dryRun
        ? sql`SELECT count(*)::float8 AS rows FROM ${sql.literal(partition)} WHERE ${old}`
        : sql`
            WITH gone AS (DELETE FROM ${sql.literal(partition)} WHERE ${old} RETURNING 1)
            SELECT count(*)::float8 AS rows FROM gone`
    )
    rows += count.rows
  }
  return rows === 0 ? undefined : ({ table, partition, outcome: "deleted", rows } satisfies Step)
})

const expiredPartitions = Rows.all(Schema.Struct({ partition: Schema.String, isDefault: Schema.Boolean }))

/**
 * Drops each day that ended before the table's retention and holds no younger row, and deletes old rows from the default partition.
 * `dryRun` only reports what it would do.
 */
export const dropExpired = Effect.fn("DailyPartitions.dropExpired")(function* (
  daily: DailyTable,
  { dryRun = false }: { readonly dryRun?: boolean } = {}
) {
  if (daily.retentionDays === 0) return []
  const { table, timeColumn } = daily
  const sql = yield* PgClient.PgClient
  // One value for all steps of a run.
  const cutoff = yield* Retention.forget(table, daily.retentionDays, { dryRun, margin: marginInterval })
  // The name as Postgres writes it, quoted where it has to be.
  const partitions = yield* expiredPartitions(sql`
    SELECT child::text AS partition, is_default AS "isDefault" FROM time_partitions(${table}::text)
    WHERE is_default OR to_time <= ${cutoff}::timestamptz`)
  return yield* inTurn(
    table,
    partitions,
    Effect.fnUntraced(function* ({ isDefault, partition }): Effect.fn.Return<Step | undefined, SqlError.SqlError> {
      if (isDefault) return yield* cleanDefault(sql, daily, partition, cutoff, dryRun)
      // The first look takes no lock, so a day with a young row in it delays no other session.
      if (yield* holdsYoung(sql, partition, timeColumn, cutoff)) return { table, partition, outcome: "kept" }
      return dryRun ? { table, partition, outcome: "dropped" } : yield* dropOne(sql, daily, partition, cutoff)
    })
  )
})
