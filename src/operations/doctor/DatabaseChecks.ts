/** The doctor's checks of the Postgres server: sessions, connections, clocks, time of a statement, wake-ups, schema. */
import { PgClient, PgConnection } from "@effect/sql-pg"
import { Clock, Effect, Queue, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { channel } from "../../platform/ControlConnection.ts"
import { DatabaseSettings } from "../../platform/DatabaseSettings.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Rows from "../../platform/Rows.ts"
import { isCurrent, type MigrationSet } from "../../postgres/Migrations.ts"
import * as StartChecks from "../../postgres/StartChecks.ts"
import { type Check, psql, told } from "./Check.ts"
import { altered, settings } from "./SettingChecks.ts"

const group = "postgres"

/** What the checks of the server need. */
export type Needs = PgClient.PgClient | SqlClient.SqlClient | DatabaseSettings

/** Session locks and LISTEN need a session of one's own. */
const sessions: Check<Needs> = {
  group,
  name: "own-sessions",
  run: Effect.gen(function* () {
    const { applicationName, sockets, url } = yield* DatabaseSettings
    return yield* StartChecks.ownSessions({ ...sockets(url), applicationName }).pipe(
      Effect.as(told("each connection keeps its session")),
      Effect.catchTag("DatabaseUnusable", ({ reason }) =>
        Effect.succeed(
          told("", [{ problem: reason, fix: "Give DATABASE_URL the address of Postgres itself", command: null }])
        )
      )
    )
  })
}

const connectionsRow = Rows.one(
  Schema.Struct({ used: Schema.Int, usable: Schema.Int, canSetTimeout: Schema.Boolean, autovacuum: Schema.String })
)

/** Above this share of the usable connections the next process of a rolling start may get none. */
const usedShare = 0.8

const connections: Check<Needs> = {
  group,
  name: "connections",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { autovacuum, canSetTimeout, usable, used } = yield* connectionsRow(sql`
      SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int4 AS used,
             current_setting('max_connections')::int4 - current_setting('superuser_reserved_connections')::int4
               - coalesce(current_setting('reserved_connections', true), '0')::int4 AS usable,
             -- A frozen process loses its lanes by this setting: it must be there, and ours to set.
             coalesce((SELECT context IN ('user', 'superuser-backend', 'backend') FROM pg_settings WHERE name = 'idle_session_timeout'), false)
               AS "canSetTimeout",
             current_setting('autovacuum') AS autovacuum`)
    return told(`${used} of ${usable} connections are used, and autovacuum is ${autovacuum}`, [
      ...(used > usable * usedShare
        ? [
            {
              problem: `${used} of ${usable} connections are used: a process that starts may get none`,
              fix: "Raise max_connections and restart Postgres, or run fewer processes; a process of the service takes some forty at most",
              command: psql(
                "SELECT application_name, state, count(*) FROM pg_stat_activity GROUP BY 1, 2 ORDER BY 3 DESC"
              )
            }
          ]
        : []),
      ...(canSetTimeout
        ? []
        : [
            {
              problem: "idle_session_timeout can't be set by a session: a frozen process would keep its lanes for ever",
              fix: "Use Postgres 15 or newer, without an extension that takes the setting away",
              command: null
            }
          ]),
      ...(autovacuum === "on"
        ? []
        : [
            {
              problem: "autovacuum is off: dead rows of the queue and of tasks stay, and each look passes over them",
              fix: "Turn it on",
              command: altered("autovacuum", "on")
            }
          ])
    ])
  })
}

const clockRow = Rows.one(Schema.Struct({ server: Schema.Finite, service: Schema.Finite }))

/** TLS, signatures and Kafka's record times bear seconds. A clock that is off by more is no clock any more. */
const maxSkewMillis = 1_000

const clocks: Check<Needs> = {
  group,
  name: "clock",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const began = yield* Clock.currentTimeMillis
    const { server, service } = yield* clockRow(sql`
      SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS server, extract(epoch FROM clock_now())::float8 * 1000 AS service`)
    const ended = yield* Clock.currentTimeMillis
    // The server read its clock at some time in between.
    const skew = server < began ? began - server : server > ended ? server - ended : 0
    return told(`this machine and Postgres differ by ${Math.round(skew)} ms at least`, [
      ...(skew <= maxSkewMillis
        ? []
        : [
            {
              problem: `the clocks of this machine and of Postgres differ by ${(skew / 1_000).toFixed(1)} s: signatures, certificates and Kafka's times are judged by the wrong one`,
              fix: "Let both machines follow a time server (chrony or systemd-timesyncd)",
              command: "timedatectl status"
            }
          ]),
      ...(Math.abs(service - server) <= maxSkewMillis
        ? []
        : [
            {
              problem: `clock_now() is ${(Math.abs(service - server) / 1_000).toFixed(1)} s away from Postgres' clock: somebody has replaced it, as tests do`,
              fix: "Put back the function of migrations/mechanism/0101_clock.sql",
              command: psql(
                "CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS 'SELECT clock_timestamp()'"
              )
            }
          ])
    ])
  })
}

/** A request takes some six statements. Ten times a slow network's round trip: a request takes seconds then. */
const slowStatementMillis = 250

const time: Check<Needs> = {
  group,
  name: "statement-time",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    let best = Number.POSITIVE_INFINITY
    // The best of three: the first may open a connection, and one may meet a pause of this machine.
    for (let look = 0; look < 3; look++) {
      const began = yield* Monotonic.millis
      yield* sql`SELECT 1`
      best = Math.min(best, (yield* Monotonic.millis) - began)
    }
    const shown = best.toFixed(1)
    return told(
      `a statement takes ${shown} ms`,
      best <= slowStatementMillis
        ? []
        : [
            {
              problem: `a statement that does nothing takes ${shown} ms, and a request has some six`,
              fix: "Run the service near its Postgres, and look at the load of both machines",
              command: psql("SELECT wait_event_type, wait_event, count(*) FROM pg_stat_activity GROUP BY 1, 2")
            }
          ]
    )
  })
}

/** A notification arrives within milliseconds. */
const wakeupMillis = 3_000

/** The share of the queue of notifications above which a session that does not read them is about to stop every NOTIFY. */
const notifyQueueShare = 0.5

const usageRow = Rows.one(Schema.Struct({ usage: Schema.Finite }))

const wakeups: Check<Needs> = {
  group,
  name: "wake-ups",
  run: Effect.scoped(
    Effect.gen(function* () {
      const { applicationName, sockets, url } = yield* DatabaseSettings
      const connect = PgConnection.make({ ...sockets(url), applicationName, connectTimeout: wakeupMillis })
      const [listener, sender] = [yield* connect, yield* connect]
      const heard = yield* listener.listen(channel)
      // Without a blank it is nobody's wake-up, and every process ignores it.
      const word = `doctor-${randomUUID()}`
      const began = yield* Monotonic.millis
      yield* sender.query("SELECT pg_notify($1, $2)", [channel, word])
      const arrived = yield* Queue.take(heard).pipe(
        Effect.repeat({ until: ({ payload }) => payload === word }),
        Effect.as(true),
        Effect.timeoutOrElse({ duration: wakeupMillis, orElse: () => Effect.succeed(false) })
      )
      const took = (yield* Monotonic.millis) - began
      const sql = yield* SqlClient.SqlClient
      const { usage } = yield* usageRow(sql`SELECT pg_notification_queue_usage() AS usage`)
      return told(`a wake-up takes ${took.toFixed(1)} ms`, [
        ...(arrived
          ? []
          : [
              {
                problem: `a wake-up did not arrive within ${wakeupMillis / 1_000} s: each event waits for the next poll (OUTBOX_POLL_MILLIS)`,
                fix: "Connect to Postgres itself: a pooler in transaction mode loses them",
                command: psql("SELECT pg_notification_queue_usage()")
              }
            ]),
        ...(usage <= notifyQueueShare
          ? []
          : [
              {
                problem: `Postgres' queue of notifications is full to ${Math.round(usage * 100)} %: when it is full, every NOTIFY fails`,
                fix: "End the session that listens and never leaves its transaction",
                command: psql(
                  "SELECT pid, application_name, xact_start FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start LIMIT 5"
                )
              }
            ])
      ])
    })
  )
}

const constraints = Rows.all(Schema.Struct({ kind: Schema.String, of: Schema.String, name: Schema.String }))

const schemaOf = (sets: ReadonlyArray<MigrationSet>): Check<Needs> => ({
  group: "schema",
  name: "schema-version",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const pending = yield* Effect.filter(sets, (set) => Effect.map(isCurrent(set), (current) => !current))
    const unproved = yield* constraints(sql`
      SELECT CASE contypid WHEN 0 THEN 'TABLE' ELSE 'DOMAIN' END AS kind,
             CASE contypid WHEN 0 THEN conrelid::regclass::text ELSE contypid::regtype::text END AS of, conname AS name
      FROM pg_constraint
      WHERE NOT convalidated AND connamespace = current_schema()::regnamespace ORDER BY 1, 2, 3`)
    return told("every migration of this version is applied", [
      ...pending.map(({ table }) => ({
        problem: `migrations of this version are not applied (${table}): its statements may meet a table that they do not know`,
        fix: "Apply them; running processes of the older version go on beside it",
        command: "npm run paid-once -- migrate"
      })),
      ...unproved.map(({ kind, name, of }) => ({
        problem: `the constraint ${name} of ${of} was never validated: older rows may break it`,
        fix: "Validate it; the table is written meanwhile",
        command: psql(`ALTER ${kind} ${of} VALIDATE CONSTRAINT ${name}`)
      }))
    ])
  })
})

/** The checks of the server, for a schema of these migrations. */
export const checks = (sets: ReadonlyArray<MigrationSet>): ReadonlyArray<Check<Needs>> => [
  settings,
  sessions,
  connections,
  clocks,
  time,
  wakeups,
  schemaOf(sets)
]
