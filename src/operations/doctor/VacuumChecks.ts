/** The doctor's checks of vacuum: bloat, dead rows, and what holds vacuum and the write-ahead log back. */
import { Context, Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { lasting } from "../../platform/Lasting.ts"
import { numberOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import { type Check, type Finding, notChecked, psql, told } from "./Check.ts"

/** From where on a figure is a finding. */
export const VacuumLimits = Context.Reference<{
  /** A smaller table or index is no bloat that anybody notices. */
  readonly bloatFloorBytes: number
  /** A snapshot that is older: every request ends within seconds. */
  readonly snapshotSeconds: number
  /** Autovacuum looks at each table once a minute; with ten of its turns missed it does not keep up. */
  readonly vacuumLagSeconds: number
  /** Dead rows that are noticed: some hundred pages of the queue. */
  readonly deadRows: number
  /** As the alert WalRetained. */
  readonly retainedBytes: number
}>("paid-once/operations/doctor/VacuumLimits", {
  defaultValue: () => ({
    bloatFloorBytes: 67_108_864,
    snapshotSeconds: 300,
    vacuumLagSeconds: 600,
    deadRows: 50_000,
    retainedBytes: 5 * 1_073_741_824
  })
})

const group = "upkeep"

const megabytes = (bytes: number) => `${numberOf(Math.round(bytes / 1_048_576))} MB`

const sizes = Rows.all(
  Schema.Struct({ name: Schema.String, isIndex: Schema.Boolean, bytes: Schema.Finite, needed: Schema.Finite })
)

/** Of a table or index, above the floor, so many times what its rows need by the planner's statistics is bloat. */
const bloatFactor = 3

const bloat: Check<SqlClient.SqlClient> = {
  group,
  name: "bloat",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { bloatFloorBytes } = yield* VacuumLimits
    // By estimate, as reading the pages would load the disk: the rows that Postgres counted last, and the mean widths of their columns. A row has a
    // header of 28 bytes, an entry of an index one of 16.
    const rows = yield* sizes(sql`
      WITH relation AS (
        SELECT c.oid, c.relname, c.relkind = 'i' AS is_index, c.reltuples, coalesce(i.indrelid, c.oid) AS of_table, i.indkey,
               pg_relation_size(c.oid) AS bytes
        FROM pg_class AS c LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'i')
      )
      SELECT relname AS name, is_index AS "isIndex", bytes::float8 AS bytes,
             (reltuples * (CASE WHEN is_index THEN 16 ELSE 28 END + coalesce((
               SELECT sum(s.avg_width) FROM pg_stats AS s JOIN pg_class AS t ON t.oid = of_table
               JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attname = s.attname
               WHERE s.schemaname = current_schema() AND s.tablename = t.relname AND (NOT is_index OR a.attnum = ANY (indkey))), 0)))::float8 AS needed
      FROM relation WHERE bytes >= ${bloatFloorBytes}::float8 AND reltuples >= 0 ORDER BY bytes DESC LIMIT 100`)
    const bloated = rows.filter(({ bytes, needed }) => bytes > Math.max(needed, 8_192) * bloatFactor)
    return told(
      rows.length === 0
        ? `no table or index is above ${megabytes(bloatFloorBytes)}`
        : `${rows.length} above ${megabytes(bloatFloorBytes)}, the largest ${rows[0]!.name} with ${megabytes(rows[0]!.bytes)}`,
      bloated.map(({ bytes, isIndex, name, needed }) => ({
        problem: `${name} takes ${megabytes(bytes)}, and its rows need some ${megabytes(needed)}: the rest is room of dead rows`,
        fix: isIndex
          ? "Build it anew; the table is written meanwhile"
          : "Look for an old snapshot first, and vacuum. The room is used again; only VACUUM FULL gives it back, and that locks the table",
        command: psql(isIndex ? `REINDEX INDEX CONCURRENTLY ${name}` : `VACUUM (VERBOSE, ANALYZE) ${name}`)
      }))
    )
  })
}

const vacuumRows = Rows.all(
  Schema.Struct({
    name: Schema.String,
    dead: Schema.Finite,
    isOff: Schema.Boolean,
    vacuumedSeconds: Schema.NullOr(Schema.Finite)
  })
)
const ageRow = Rows.one(Schema.Struct({ age: Schema.Finite }))

/** Half of what Postgres has before it refuses writes. Autovacuum begins its own at 200 million. */
const oldAge = 1_000_000_000

const vacuum: Check<SqlClient.SqlClient> = {
  group,
  name: "vacuum",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { deadRows, vacuumLagSeconds } = yield* VacuumLimits
    const rows = yield* vacuumRows(sql`
      SELECT s.relname AS name, s.n_dead_tup::float8 AS dead, coalesce(c.reloptions @> '{autovacuum_enabled=false}', false) AS "isOff",
             extract(epoch FROM clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))::float8 AS "vacuumedSeconds"
      FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid
      WHERE s.schemaname = current_schema() ORDER BY s.n_dead_tup DESC LIMIT 200`)
    const { age } = yield* ageRow(
      sql`SELECT age(datfrozenxid)::float8 AS age FROM pg_database WHERE datname = current_database()`
    )
    const since = (seconds: number | null) => (seconds === null ? "never" : `${lasting(seconds)} ago`)
    const behind = rows.filter(
      ({ dead, vacuumedSeconds }) => dead > deadRows && (vacuumedSeconds === null || vacuumedSeconds > vacuumLagSeconds)
    )
    return told(
      (rows[0]?.dead ?? 0) === 0
        ? "no table has dead rows"
        : `${rows[0]!.name} has the most dead rows: ${numberOf(rows[0]!.dead)}, vacuumed ${since(rows[0]!.vacuumedSeconds)}`,
      [
        ...rows
          .filter(({ isOff }) => isOff)
          .map(({ name }) => ({
            problem: `autovacuum is off for ${name}`,
            fix: "Turn it on",
            command: psql(`ALTER TABLE ${name} RESET (autovacuum_enabled)`)
          })),
        ...behind.map(({ dead, name, vacuumedSeconds }) => ({
          problem: `${name} has ${numberOf(dead)} dead rows, and was vacuumed ${since(vacuumedSeconds)}: each look passes over them`,
          fix: "Vacuum it, and give autovacuum more workers or less delay",
          command: psql(`VACUUM (VERBOSE, ANALYZE) ${name}`)
        })),
        ...(age <= oldAge
          ? []
          : [
              {
                problem: `the oldest row that was not frozen is ${numberOf(age)} transactions old: at two billion Postgres refuses writes`,
                fix: "Freeze the tables, and find what keeps vacuum from it",
                command: "vacuumdb --all --freeze"
              }
            ])
      ]
    )
  })
}

const snapshots = Rows.all(
  Schema.Struct({
    pid: Schema.NullOr(Schema.Int),
    what: Schema.String,
    seconds: Schema.Finite,
    end: Schema.String
  })
)
const sightRow = Rows.one(Schema.Struct({ hidden: Schema.Int, role: Schema.String }))

const oldSnapshots: Check<SqlClient.SqlClient> = {
  group,
  name: "old-snapshots",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { snapshotSeconds } = yield* VacuumLimits
    const rows = yield* snapshots(sql`
      SELECT * FROM (
        SELECT pid, format('process %s (%s of %s, %s)', pid, coalesce(nullif(application_name, ''), 'a program'), usename, state) AS what,
               extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds, format('SELECT pg_terminate_backend(%s)', pid) AS "end"
        FROM pg_stat_activity
        WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker' AND datname = current_database()
        UNION ALL
        SELECT NULL, format('the prepared transaction %s of %s', gid, owner),
               extract(epoch FROM clock_timestamp() - prepared)::float8, format('ROLLBACK PREPARED %L', gid)
        FROM pg_prepared_xacts WHERE database = current_database()
      ) AS open ORDER BY seconds DESC LIMIT 20`)
    const { hidden, role } = yield* sightRow(sql`
      SELECT count(*)::int4 AS hidden, quote_ident(current_user) AS role FROM pg_stat_activity
      WHERE datname = current_database() AND usesysid IS NOT NULL AND backend_type IS NULL`)
    const findings = rows
      .filter(({ seconds }) => seconds > snapshotSeconds)
      .map(({ end, seconds, what }): Finding => ({
        problem: `${what} has a transaction open for ${lasting(seconds)}: vacuum removes nothing that died since, and every look passes over it`,
        fix: "Let it end, or end it; a report that takes long belongs on a standby",
        command: psql(end)
      }))
    if (findings.length === 0 && hidden > 0) {
      return notChecked(
        `this role does not see the transactions of ${hidden} other sessions; a superuser lets it: GRANT pg_read_all_stats TO ${role}`
      )
    }
    const [oldest] = rows
    return told(
      oldest === undefined ? "no transaction is open" : `the oldest transaction is ${lasting(oldest.seconds)} old`,
      findings
    )
  })
}

const slots = Rows.all(
  Schema.Struct({ name: Schema.String, isActive: Schema.Boolean, retained: Schema.Finite, isLost: Schema.Boolean })
)

const replicationSlots: Check<SqlClient.SqlClient> = {
  group,
  name: "replication-slots",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { retainedBytes } = yield* VacuumLimits
    const rows = yield* slots(sql`
      SELECT slot_name AS name, active AS "isActive", coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::float8 AS retained,
             coalesce(wal_status = 'lost', false) AS "isLost"
      FROM pg_replication_slots WHERE NOT temporary ORDER BY 3 DESC LIMIT 100`)
    return told(
      rows[0] === undefined
        ? "there is no replication slot"
        : `${rows.length} slots, the furthest behind ${rows[0].name} with ${megabytes(rows[0].retained)}`,
      rows
        .filter(({ isActive, isLost, retained }) => isLost || retained > retainedBytes || (!isActive && retained > 0))
        .map(({ isActive, isLost, name, retained }) => ({
          problem: isLost
            ? `the replication slot ${name} has lost its log: its reader has to be set up anew`
            : `the replication slot ${name} ${isActive ? "is far behind" : "has no reader"} and holds ${megabytes(retained)} of write-ahead log: it grows until the disk is full (docs/runbooks/WalRetained.md)`,
          fix: "Bring its reader up, or drop the slot if the reader is gone for good",
          command: psql(`SELECT pg_drop_replication_slot('${name}')`)
        }))
    )
  })
}

export const checks: ReadonlyArray<Check<SqlClient.SqlClient>> = [bloat, vacuum, oldSnapshots, replicationSlots]
