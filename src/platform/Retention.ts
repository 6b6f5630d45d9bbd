/**
 * How long finished things are kept, and which of them may be gone.
 *
 * The table `retention` has a row for each table that upkeep deletes from. The processes of the service note there how long they keep its rows. Whoever
 * deletes moves the horizon first. So a command knows both, whatever the variables of its own shell say.
 */
import { Context, Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { hostname } from "node:os"
import { skewInterval } from "./Ids.ts"
import * as Rows from "./Rows.ts"
import { countOf } from "./Plural.ts"

/**
 * How long published events, applied marks and finished tasks are kept, in days of 24 hours; 0 keeps them for ever. They are the variables of this
 * process.
 *
 * Statements count hours: an interval of days has an hour less in a session whose time zone changes to summer time.
 */
export const RetentionSettings = Context.Reference<{
  /** Published events in `event_log`, for timelines and replay. */
  readonly outboxDays: number
  /** `processed_events`: at least as long as a topic can deliver an event again, which TopicChecks sees to. */
  readonly inboxDays: number
  /** Tasks that are completed or cancelled, with their idempotency keys. */
  readonly taskDays: number
}>("paid-once/platform/RetentionSettings", {
  // A topic that keeps seven days and rolls its segments daily has a record for up to eight: the inbox remembers as long.
  defaultValue: () => ({ outboxDays: 3, inboxDays: 8, taskDays: 30 })
})

/** The tables of the mechanism that upkeep deletes old rows from. */
export type KeptTable = "event_log" | "processed_events" | "outbox_tasks"

const oneCutoff = Rows.one(Schema.Struct({ cutoff: Schema.String }))

/**
 * The time before which the table's rows are past the retention. Nobody deletes a row before this effect has told it: it moves the horizon there, in a
 * statement that has committed, or commits with the deletion. A dry run deletes nothing, and moves nothing.
 *
 * A day has 24 hours here. A day of an interval has 23 in a session whose time zone changes to summer time.
 */
export const forget = Effect.fn("Retention.forget")(function* (
  table: KeptTable,
  retentionDays: number,
  { dryRun = false, margin = "0 hours" }: { readonly dryRun?: boolean; readonly margin?: string } = {}
) {
  const sql = yield* SqlClient.SqlClient
  const due = sql`SELECT clock_now() - make_interval(hours => 24 * ${retentionDays}::int4) - ${margin}::interval AS cutoff`
  const { cutoff } = yield* oneCutoff(
    dryRun
      ? sql`SELECT cutoff::text FROM (${due}) AS due`
      : sql`
          WITH due AS MATERIALIZED (${due}),
          moved AS (
            INSERT INTO retention AS r (table_name, forgotten_before) SELECT ${table}::text, cutoff FROM due
            ON CONFLICT (table_name) DO UPDATE SET forgotten_before = greatest(r.forgotten_before, excluded.forgotten_before))
          SELECT cutoff::text FROM due`
  )
  return cutoff
})

/**
 * Notes whether this process writes the table's rows. While it does not, no row counts as kept. Once it does again, the rows of an hour later do
 * ({@link keptSince}): in a deploy other processes may not write them yet.
 */
export const noteWriting = Effect.fn("Retention.noteWriting")(function* (table: KeptTable, isWriting: boolean) {
  const sql = yield* SqlClient.SqlClient
  yield* isWriting
    ? sql`
        UPDATE retention SET forgotten_before = clock_now()
        WHERE table_name = ${table} AND forgotten_before = 'infinity'`
    : sql`
        INSERT INTO retention (table_name, forgotten_before) VALUES (${table}, 'infinity')
        ON CONFLICT (table_name) DO UPDATE SET forgotten_before = 'infinity'`
})

/**
 * SQL: the time from which on an event's row in the table is still there, by the time in the event's id. A row is written after its event, whose
 * id may be a little ahead.
 *
 * A row and this time have to be of one snapshot. A dropped day is gone for an older snapshot, too. So a statement of a longer snapshot locks the
 * table first.
 */
export const keptSince = (table: KeptTable): string =>
  `(SELECT coalesce(max(forgotten_before), '-infinity') + interval '${skewInterval}' FROM retention WHERE table_name = '${table}')`

/** How long a table's rows are kept, and the process of the service that says so. */
const Noted = Schema.Struct({
  table: Schema.String,
  days: Schema.Int,
  by: Schema.String
})
export type Noted = typeof Noted.Type
const notedRows = Rows.all(Noted)

/** How long the service keeps the rows of its tables. Without an entry no process of it has noted that yet. */
export const noted: Effect.Effect<ReadonlyMap<string, Noted>, never, SqlClient.SqlClient> = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) =>
    notedRows(sql`
      SELECT table_name AS table, kept_days AS days, noted_by AS by FROM retention WHERE kept_days IS NOT NULL`)
).pipe(
  Effect.map((rows) => new Map(rows.map((row) => [row.table, row]))),
  Effect.orDie
)

/** A duration for people. */
export const inWords = (days: number): string => (days === 0 ? "for ever" : `for ${countOf(days, "day")}`)

/** Notes how long this process of the service keeps the rows of each table. Warns where another process has noted another time. */
export const note = Effect.fn("Retention.note")(function* (days: Readonly<Record<string, number>>) {
  const sql = yield* SqlClient.SqlClient
  const by = `${process.pid}@${hostname()}`
  // All parts of a statement see the same snapshot, so these are the notes of before.
  const before = yield* notedRows(sql`
    WITH given AS (
      SELECT * FROM unnest(${Object.keys(days)}::text[], ${Object.values(days)}::int4[]) AS g(name, days)),
    written AS (
      INSERT INTO retention AS r (table_name, kept_days, noted_by, noted_at) SELECT name, days, ${by}, clock_now() FROM given ORDER BY name
      ON CONFLICT (table_name) DO UPDATE SET kept_days = excluded.kept_days, noted_by = excluded.noted_by, noted_at = excluded.noted_at)
    SELECT table_name AS table, kept_days AS days, noted_by AS by FROM retention JOIN given ON name = table_name WHERE kept_days <> days`)
  yield* Effect.forEach(
    before,
    ({ by: other, days: others, table }) =>
      Effect.logWarning(
        `retention: ${by} keeps ${table} ${inWords(days[table] ?? 0)}, and ${other} has kept it ${inWords(others)}: ` +
          "give all processes of the service the same variables"
      ),
    { discard: true }
  )
})
