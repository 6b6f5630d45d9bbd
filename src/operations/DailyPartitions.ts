/**
 * Tables that are partitioned by the day in their UUIDv7 key: days made ahead, and dropped whole when all they hold is old.
 *
 * Every step is short, safe to repeat, and gives up rather than wait: whoever reads or writes such a table goes first. A step takes an
 * advisory lock, so any number of processes may try. The functions in SQL are in migrations/mechanism/0103_daily_partitions.sql.
 *
 * What is old is decided by the row's own time (when it was published, when it was applied), never by the day in its key alone: an event
 * that waited out a long outage has an old key, and its row is young.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect } from "effect"
import { SqlError, type Statement } from "effect/sql"

/** A table to look after. */
export interface DailyTable {
  readonly table: string
  /** The column with the row's own time. */
  readonly timeColumn: string
  /** How long rows are kept, in days; 0 keeps them for ever. */
  readonly retentionDays: number
}

/** What was done with one partition, or why not. */
export interface Step {
  readonly table: string
  readonly partition: string
  /**
   * - `made`: a day ahead is there; `rows` came over from the default partition
   * - `dropped`: a day is gone, whole
   * - `deleted`: `rows` old rows are gone from the default partition
   * - `kept`: the day is past retention, and something in it is not: it waits
   * - `blocked`: the default partition holds too many rows of the day to move them
   * - `busy`: somebody else uses the table or does the same; to be tried again
   */
  readonly outcome: "made" | "dropped" | "deleted" | "kept" | "blocked" | "busy"
  readonly rows?: number
}

/** How rows of the default partition move into the partition of their day: a move of so many takes a tenth of a second. */
const maxMovedRows = 10_000

/**
 * Dropping needs the whole table for a moment, and everyone who comes meanwhile stands behind us: so long and no longer may a reader
 * keep us, and so a dispatcher's mark, waiting.
 */
const dropLockTimeout = "100ms"

/** Pages read by one statement, 64 MB: a fraction of a second also where they come from a slow disk. */
const scanPages = 8_192

/** Pages of the default partition that one DELETE goes through: 1 MB, some thousand rows, a few milliseconds. */
const deletePages = 128

/**
 * How much longer than its retention everything is kept: a broker looks for what to delete every few minutes only, and clocks of
 * hosts differ.
 */
const marginInterval = "1 hour"

const sqlStateOf = ({ reason }: SqlError.SqlError) =>
  typeof reason.cause === "object" && reason.cause !== null && "code" in reason.cause ? reason.cause.code : undefined

/** The lock was not to be had in time, a cycle of locks broke us, or rows came in between. */
const busy: ReadonlySet<unknown> = new Set(["55P03", "40P01", "23514"])

/** Another process has just dropped the table, or made it. */
const overtaken: ReadonlySet<unknown> = new Set(["42P01", "42P07"])

/** Does the steps one after the other, up to the first that somebody stands in the way of: the next one would meet the same. */
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

/** Makes the partitions from yesterday's to the one `daysAhead` days from now, as far as they are missing. */
export const makeAhead = Effect.fn("DailyPartitions.makeAhead")(function* (
  table: string,
  daysAhead: number,
  { dryRun = false }: { readonly dryRun?: boolean } = {}
) {
  const sql = yield* PgClient.PgClient
  const days = yield* sql<{ readonly day: string; readonly partition: string }>`
    SELECT day::text AS day, ${table}::text || to_char(day, '_YYYYMMDD') AS partition
    FROM (
      SELECT (clock_now() AT TIME ZONE 'UTC')::date + n AS day FROM generate_series(-1, ${daysAhead}::int4) AS n
    ) AS days
    WHERE NOT EXISTS (
      SELECT FROM time_partitions(${table}::text)
      WHERE from_time < uuid_v7_time(uuid_v7_floor(day + 1)) AND to_time > uuid_v7_time(uuid_v7_floor(day))
    )
    ORDER BY day`
  return yield* inTurn(table, days, ({ day, partition }) =>
    dryRun
      ? Effect.succeed<Step>({ table, partition, outcome: "made" })
      : Effect.map(
          sql<{ readonly outcome: "made" | "present" | "blocked"; readonly moved: bigint }>`
            SELECT outcome, moved FROM make_daily_partition(${table}::text, ${day}::date, ${maxMovedRows}::int4)`,
          ([row]): Step | undefined => {
            const { moved, outcome } = row!
            // Present: another process was faster.
            return outcome === "present"
              ? undefined
              : { table, partition, outcome, ...(moved > 0n ? { rows: Number(moved) } : {}) }
          }
        )
  )
})

/**
 * The moment before which rows are old, as one value for all steps of a run. Days have 24 hours here: one of an interval has 23 in a session whose
 * time zone changes to summer time, and the margin would be gone.
 */
const cutoffOf = (sql: PgClient.PgClient, retentionDays: number) =>
  Effect.map(
    sql<{ readonly cutoff: string }>`
      SELECT (clock_now() - make_interval(hours => 24 * ${retentionDays}::int4) - ${marginInterval}::interval)::text AS cutoff`,
    ([row]) => row!.cutoff
  )

/** How many pages the partition has. */
const pagesOf = (sql: PgClient.PgClient, partition: string) =>
  Effect.map(
    sql<{ readonly pages: number }>`
      SELECT (pg_relation_size(${partition}::text::regclass) / current_setting('block_size')::int8)::float8 AS pages`,
    ([row]) => row!.pages
  )

/** `[first, end)` in windows, the last one first: what is young lies at the end, so it is found at once. */
const windows = (pages: number, size: number) =>
  Array.from(
    { length: Math.ceil(pages / size) },
    (_, index) => [index * size, (index + 1) * size] as const
  ).toReversed()

const inWindow = (sql: Statement.Constructor, [first, end]: readonly [number, number]) =>
  sql`ctid >= ${`(${first},0)`}::text::tid AND ctid < ${`(${end},0)`}::text::tid`

/** Whether the partition holds a row that is not older than `cutoff`. Reads it all to be sure that it does not. */
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

/**
 * Drops the partition if all it holds is old, in one transaction. Nobody can write to this one day while it is looked through, and only
 * events that are older than the retention would; the drop itself then takes a moment, or gives up.
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
      const [row] = yield* sql<{ readonly locked: boolean }>`
        SELECT pg_try_advisory_xact_lock(hashtext('daily partitions'), hashtext(${table})) AS locked`
      if (row?.locked !== true) return { table, partition, outcome: "busy" }
      yield* sql`LOCK TABLE ${sql.literal(partition)} IN SHARE MODE`
      if (yield* holdsYoung(sql, partition, timeColumn, cutoff)) return { table, partition, outcome: "kept" }
      yield* sql`DROP TABLE ${sql.literal(partition)}`
      return { table, partition, outcome: "dropped" }
    })
  )

/** Deletes the default partition's old rows, or counts them, in one pass of bounded statements that each commit by themselves. */
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
    const [row] = yield* dryRun
      ? sql<{ readonly rows: number }>`SELECT count(*)::float8 AS rows FROM ${sql.literal(partition)} WHERE ${old}`
      : sql<{ readonly rows: number }>`
          WITH gone AS (DELETE FROM ${sql.literal(partition)} WHERE ${old} RETURNING 1)
          SELECT count(*)::float8 AS rows FROM gone`
    rows += row!.rows
  }
  return rows === 0 ? undefined : ({ table, partition, outcome: "deleted", rows } satisfies Step)
})

/**
 * Drops each day that ended before the table's retention and holds nothing younger, and deletes what is old from the default partition.
 * `dryRun` only tells what it would do.
 */
export const dropExpired = Effect.fn("DailyPartitions.dropExpired")(function* (
  daily: DailyTable,
  { dryRun = false }: { readonly dryRun?: boolean } = {}
) {
  if (daily.retentionDays === 0) return []
  const { table, timeColumn } = daily
  const sql = yield* PgClient.PgClient
  const cutoff = yield* cutoffOf(sql, daily.retentionDays)
  // The name as Postgres writes it, quoted where it has to be.
  const partitions = yield* sql<{ readonly partition: string; readonly isDefault: boolean }>`
    SELECT child::text AS partition, is_default AS "isDefault" FROM time_partitions(${table}::text)
    WHERE is_default OR to_time <= ${cutoff}::timestamptz`
  return yield* inTurn(
    table,
    partitions,
    Effect.fnUntraced(function* ({ isDefault, partition }): Effect.fn.Return<Step | undefined, SqlError.SqlError> {
      if (isDefault) return yield* cleanDefault(sql, daily, partition, cutoff, dryRun)
      // Looked through without any lock first: a day with something young in it bothers nobody.
      if (yield* holdsYoung(sql, partition, timeColumn, cutoff)) return { table, partition, outcome: "kept" }
      return dryRun ? { table, partition, outcome: "dropped" } : yield* dropOne(sql, daily, partition, cutoff)
    })
  )
})
