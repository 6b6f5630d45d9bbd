/**
 * The lab's database: a real Postgres with a clock that the lab sets, connections that are lent to actors, and a monitor of lock waits. It
 * serves many cases; each case empties the tables that it used.
 */
import { PgClient, PgConnection } from "@effect/sql-pg"
import { Clock, Context, Effect, Layer, type Redacted, Scope } from "effect"
import { Reactivity } from "effect/reactivity"

/** A physical session, used only by the actor that has borrowed it. */
export interface LabConnection {
  readonly pg: PgConnection.PgConnection
  /** Between BEGIN and COMMIT or ROLLBACK. */
  inTransaction: boolean
  /** The open transaction has written to the outbox: a `late commit` waits for this. */
  appended: boolean
  /** The transaction has written something, and so has a transaction id. */
  wrote: boolean
  /** Statements since the first write of the open transaction. */
  sinceWrite: number
  /** The open transaction has a short lock timeout. */
  givesUp: boolean
  /** The open transaction has dropped a day: until it ends, other sessions can't read that table. */
  dropped: boolean
  /** The session has ended. */
  broken: boolean
}

/** Committed rows, as the oracle and the story read them. Ids are text, amounts and offsets numbers: cases are small. */
export interface Committed {
  /** The database's time, in milliseconds since 1970. */
  readonly now: number
  readonly orders: ReadonlyArray<{
    readonly id: string
    readonly customer: string
    readonly status: string
    readonly version: number
    readonly total: number
  }>
  readonly payments: ReadonlyArray<{
    readonly id: string
    readonly order: string
    readonly status: string
    readonly captured: number
  }>
  /** Events that the broker rejected and that are not known to be in the topic. */
  readonly refused: ReadonlyArray<{
    readonly order: string
    readonly version: number
    readonly event: string
    readonly status: "retrying" | "dead" | "discarded"
  }>
  /** Lanes of events that are parked behind a rejected event. */
  readonly parked: ReadonlyArray<number>
  readonly queue: ReadonlyArray<{
    readonly lane: number
    readonly order: string
    readonly version: number
    readonly event: string
  }>
  readonly archive: ReadonlyArray<{
    readonly order: string
    readonly version: number
    readonly event: string
    readonly partition: number
    readonly offset: number
    readonly publishedAt: number
    readonly type: string
    readonly data: unknown
  }>
  /** The effects of all consumers' events, in the order in which they were written. */
  readonly effects: ReadonlyArray<OfConsumer & { readonly order: string; readonly version: number }>
  readonly inbox: InboxRows
  readonly revenue: number
  readonly tasks: ReadonlyArray<TaskRow>
  /** Rows that runs of the lab's own tasks wrote as they finished, in that order. */
  readonly work: ReadonlyArray<{ readonly task: string; readonly attempt: number }>
}

/** An event or a record that can't be read, as one consumer knows it. */
export interface OfConsumer {
  readonly consumer: string
  readonly event: string
}

/** The consumers' tables. The version of a record that can't be read is null. */
export interface InboxRows {
  /** `processed_events`. */
  readonly marks: ReadonlyArray<OfConsumer & { readonly at: number }>
  readonly waiting: ReadonlyArray<OfConsumer & { readonly order: string; readonly version: number | null }>
  readonly letters: ReadonlyArray<
    OfConsumer & {
      readonly order: string
      readonly version: number | null
      readonly status: "dead" | "discarded"
    }
  >
  readonly holds: ReadonlyArray<
    OfConsumer & {
      readonly order: string
      readonly status: "retrying" | "dead" | "gap"
      readonly attempts: number
    }
  >
  /** Versions above `after` up to `to`, which an operator skipped. `event` is the event that had waited for them. */
  readonly skipped: ReadonlyArray<OfConsumer & { readonly after: number; readonly to: number }>
}

/** A task, as the lab sees it. */
export interface TaskRow {
  readonly id: string
  readonly type: string
  readonly state: "pending" | "processing" | "completed" | "failed" | "dead" | "cancelled"
  readonly attempts: number
  /** The ordering key. */
  readonly line: string | null
  readonly key: string | null
  readonly error: string | null
  /** It waits, and its due time has come. */
  readonly due: boolean
  /** Its lease has expired. */
  readonly expired: boolean
}

export const nothingCommitted: Committed = {
  now: 0,
  orders: [],
  payments: [],
  queue: [],
  refused: [],
  parked: [],
  archive: [],
  effects: [],
  inbox: { marks: [], waiting: [], letters: [], holds: [], skipped: [] },
  revenue: 0,
  tasks: [],
  work: []
}

/** The instant at which each case begins. A fixed one makes equal ids. */
export const epoch = "2026-01-01T00:00:00Z"

/**
 * The time is a sequence: each read of the clock adds a millisecond, even if the transaction is rolled back. So times differ, and are the
 * same in every run. The lab draws the ids itself: they contain the time, and orders share lanes (Actor.ts).
 */
const prepare = `
  CREATE SEQUENCE lab_clock MINVALUE -1000000000 START 0;
  CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL UNSAFE
    AS $$ SELECT '${epoch}'::timestamptz + nextval('lab_clock') * interval '1 millisecond' $$;
  CREATE TABLE lab_effects (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, consumer text, aggregate_id text, aggregate_version int, event_id uuid);
  CREATE TABLE lab_work (position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task_id uuid, attempt int)`

const tables = [
  "outbox_parked",
  "outbox_holds",
  "outbox_dead_letters",
  "operator_audit",
  "outbox_events",
  "event_log",
  "processed_events",
  "consumer_cursors",
  "consumer_gaps",
  "inbox_parked",
  "inbox_holds",
  "inbox_dead_letters",
  "revenue_daily",
  "lab_effects",
  "lab_work",
  "idempotency_keys",
  "outbox_tasks",
  "payments",
  "order_lines",
  "orders"
]

/** DELETE and not TRUNCATE: the tables hold a handful of rows, and new files for each case would cost far more. */
const empty = `${tables.map((table) => `DELETE FROM ${table};`).join(" ")}
  SELECT setval('lab_clock', 0), setval(pg_get_serial_sequence('outbox_events', 'seq'), 1, false),
         setval(pg_get_serial_sequence('outbox_tasks', 'seq'), 1, false),
         setval(pg_get_serial_sequence('lab_effects', 'position'), 1, false)`

/**
 * The daily partitioned tables with four empty days, from the day on which a case starts by the lab's clock. Migrations use the host's
 * clock.
 */
const newDays = `DO $lab$
  DECLARE
    parent text;
    day regclass;
  BEGIN
    FOREACH parent IN ARRAY ARRAY['event_log', 'processed_events'] LOOP
      FOR day IN SELECT child FROM time_partitions(parent) WHERE NOT is_default LOOP
        EXECUTE format('DROP TABLE %s', day);
      END LOOP;
      EXECUTE format('TRUNCATE %I', parent);
      PERFORM make_daily_partition(parent, (clock_now() AT TIME ZONE 'UTC')::date + n, 0) FROM generate_series(0, 3) AS n;
    END LOOP;
  END
$lab$`

const list = (columns: string, from: string) =>
  `coalesce((SELECT json_agg(row_to_json(t)) FROM (SELECT ${columns} FROM ${from}) AS t), '[]')`

/** The lab's time, read without advancing it. */
const now = `'${epoch}'::timestamptz + (SELECT last_value FROM lab_clock) * interval '1 millisecond'`

const millisOf = (time: string) => `(extract(epoch FROM ${time}) * 1000)::float8`

/**
 * The committed rows. While an open transaction has dropped a day, the daily tables are locked; then they are not read, and have not
 * changed.
 */
const observe = (daysAreLocked: boolean) => `SELECT json_build_object(
  'now', ${millisOf(`(${now})`)},
  'orders', ${list("id, customer_id AS customer, status, version, total_amount_minor AS total", "orders ORDER BY id")},
  'payments', ${list(`id, order_id AS "order", status, captured_minor AS captured`, "payments ORDER BY id")},
  'queue', ${list(`lane, aggregate_id AS "order", aggregate_version AS version, event_id AS event`, "(SELECT * FROM outbox_events UNION ALL SELECT * FROM outbox_parked) AS e ORDER BY seq")},
  'refused', ${list(
    `aggregate_id AS "order", aggregate_version AS version, event_id AS event, status`,
    `(SELECT aggregate_id, aggregate_version, event_id, status, seq FROM outbox_dead_letters UNION ALL
      SELECT p.aggregate_id, p.aggregate_version, p.event_id, 'retrying', p.seq FROM outbox_parked AS p JOIN outbox_holds USING (event_id)
     ) AS r ORDER BY seq`
  )},
  'parked', coalesce((SELECT json_agg(lane) FROM outbox_parked), '[]'),
  'archive', ${
    daysAreLocked
      ? "'[]'::json"
      : list(
          `aggregate_id AS "order", aggregate_version AS version, event_id AS event, broker_partition AS partition, broker_offset AS "offset", ${millisOf("published_at")} AS "publishedAt", event_type AS type, data`,
          "event_log ORDER BY aggregate_id, aggregate_version"
        )
  },
  'effects', ${list(`consumer, aggregate_id AS "order", aggregate_version AS version, event_id AS event`, "lab_effects ORDER BY position")},
  'inbox', json_build_object(
    'marks', ${
      daysAreLocked
        ? "'[]'::json"
        : list(`consumer_name AS consumer, event_id AS event, ${millisOf("processed_at")} AS at`, "processed_events")
    },
    'waiting', ${list(
      `consumer_name AS consumer, event_id AS event, aggregate_id AS "order", aggregate_version AS version`,
      "inbox_parked ORDER BY consumer_name, aggregate_id, position, broker_offset"
    )},
    'letters', ${list(
      `consumer_name AS consumer, event_id AS event, aggregate_id AS "order", aggregate_version AS version, status`,
      "inbox_dead_letters ORDER BY consumer_name, ended_at, event_id"
    )},
    'holds', ${list(
      `consumer_name AS consumer, event_id AS event, aggregate_id AS "order", status, attempts`,
      "inbox_holds ORDER BY consumer_name, aggregate_id"
    )},
    'skipped', ${list(
      `split_part(subject_id, ' ', 1) AS consumer, split_part(subject_id, ' ', 2) AS event,
       (before->>'version')::int AS after, (after->>'version')::int AS to`,
      "operator_audit WHERE subject = 'inbox event' AND action = 'skip' ORDER BY at"
    )}),
  'revenue', coalesce((SELECT sum(amount_minor) FROM revenue_daily), 0)::float8,
  'tasks', ${list(
    `task_id AS id, task_type AS type, state, attempts, ordering_key AS line, idempotency_key AS key, last_error AS error,
     state IN ('pending', 'failed') AND execute_at <= ${now} AS due, state = 'processing' AND lease_until <= ${now} AS expired`,
    "outbox_tasks ORDER BY seq"
  )},
  'work', ${list("task_id AS task, attempt", "lab_work ORDER BY position")}
)::text AS state`

const [observed, observedBesideDays] = [observe(false), observe(true)]

/** Cases between two vacuums: seldom enough to cost nothing, and often enough that tables stay small. */
const casesPerVacuum = 50

/** Long enough that a machine that stands still for a moment loses no connection. */
const connectTimeout = "60 seconds"

export class LabDatabase extends Context.Service<
  LabDatabase,
  {
    readonly lend: Effect.Effect<LabConnection>
    readonly giveBack: (connection: LabConnection) => void
    /** Ends the sessions like those of a killed process, so that Postgres rolls back. Returns when they are gone. */
    readonly terminate: (connections: Iterable<LabConnection>) => Effect.Effect<void>
    /** Rolls back what a finished case left open, and takes the sessions back. */
    readonly recover: (connections: Iterable<LabConnection>) => Effect.Effect<void>
    /** The pids of the sessions that this session waits for. */
    readonly blockers: (pid: number) => Effect.Effect<ReadonlyArray<number>>
    /** Empties all tables, and sets sequences and clock to their start. */
    readonly reset: Effect.Effect<void>
    /**
     * Restores the daily partitions as they are before any upkeep. Each statement of upkeep is a gate, and their number must not depend on
     * earlier cases.
     */
    readonly renewDays: Effect.Effect<void>
    /** The committed rows. With `before`, the daily tables are locked by a session, and their rows are taken from it. */
    readonly observe: (before?: Committed) => Effect.Effect<Committed>
    readonly forward: (seconds: number) => Effect.Effect<void>
    /** Drops all marks of the inbox, as retention does. */
    readonly dropMarks: Effect.Effect<void>
    /** For methods that the driver adds to a client and that no statement here uses. */
    readonly client: PgClient.PgClient
  }
>()("test/lab/LabDatabase") {
  /** On a migrated database of its own. */
  static readonly make = (url: Redacted.Redacted): Effect.Effect<LabDatabase["Service"], never, Scope.Scope> =>
    Effect.gen(function* () {
      const client = yield* Effect.provide(PgClient.make({ url, maxConnections: 1, connectTimeout }), Reactivity.layer)
      const scope = yield* Effect.scope
      const clock = yield* Clock.Clock
      const monitor = yield* PgConnection.make({ url, connectTimeout })
      yield* Effect.forEach(prepare.split(";\n"), (statement) => monitor.query(statement))
      const renewDays = Effect.asVoid(Effect.orDie(monitor.query(newDays)))
      yield* renewDays
      const free: Array<LabConnection> = []
      let cases = 0

      const open = Effect.map(
        Scope.provide(
          PgConnection.make({
            url,
            connectTimeout,
            // Short, so that a deadlock does not hold up a case; above upkeep's lock timeout, as in the service. Otherwise the session that
            // Postgres ends would depend on which one waited longer.
            startupParameters: { deadlock_timeout: "150ms", jit: "off" }
          }),
          scope
          // The borrower has the lab's clock, on which connecting would time out at once.
        ).pipe(Effect.provideService(Clock.Clock, clock)),
        (pg): LabConnection => ({
          pg,
          inTransaction: false,
          appended: false,
          wrote: false,
          sinceWrite: 0,
          givesUp: false,
          dropped: false,
          broken: false
        })
      )
      const monitored = <A>(
        statement: string,
        params: ReadonlyArray<unknown>,
        read: (row: Readonly<Record<string, unknown>>) => A
      ) => Effect.orDie(Effect.map(monitor.query(statement, params), ({ rows }) => rows.map((row) => read(row))))
      /** Returns once the session is gone, its locks are free and its transaction is rolled back. Postgres itself would check each 100 ms. */
      const terminate = (connections: Iterable<LabConnection>) =>
        Effect.forEach(
          connections,
          Effect.fnUntraced(function* ({ pg }) {
            yield* monitored("SELECT pg_terminate_backend($1::int4)", [pg.processId], () => undefined)
            const isThere = monitored("SELECT FROM pg_stat_activity WHERE pid = $1::int4", [pg.processId], () => true)
            while ((yield* isThere).length > 0) yield* Effect.yieldNow
          }),
          { discard: true }
        )

      return LabDatabase.of({
        client,
        lend: Effect.suspend(() => {
          const connection = free.pop()
          return connection === undefined ? open : Effect.succeed(connection)
        }).pipe(Effect.orDie),
        giveBack: (connection) => {
          connection.appended = false
          connection.wrote = false
          connection.sinceWrite = 0
          connection.givesUp = false
          connection.dropped = false
          if (!connection.broken) free.push(connection)
        },
        terminate,
        recover: Effect.fnUntraced(function* (connections) {
          for (const connection of connections) {
            if (connection.broken) continue
            // A session that waits for a lock or runs a statement can't be asked to roll back.
            const waiting = yield* monitored(
              "SELECT state = 'active' AS active FROM pg_stat_activity WHERE pid = $1::int4",
              [connection.pg.processId],
              (row) => row["active"] === true
            )
            if (waiting[0] !== false) yield* terminate([connection])
            else {
              if (connection.inTransaction) yield* Effect.orDie(connection.pg.query("ROLLBACK"))
              connection.inTransaction = false
              connection.appended = false
              connection.wrote = false
              connection.sinceWrite = 0
              connection.givesUp = false
              connection.dropped = false
              free.push(connection)
            }
          }
        }),
        blockers: (pid) =>
          Effect.map(
            monitored(
              // An autovacuum that truncates a table ends in a moment, and is not part of any story.
              `SELECT array(SELECT pid FROM unnest(pg_blocking_pids($1::int4)) AS blocker(pid) JOIN pg_stat_activity USING (pid)
                            WHERE backend_type = 'client backend') AS pids`,
              [pid],
              (row) => row["pids"] as ReadonlyArray<number>
            ),
            ([pids]) => pids ?? []
          ),
        reset: Effect.gen(function* () {
          if (cases++ % casesPerVacuum === 0) yield* monitor.query(`VACUUM ${tables.join(", ")}`)
          yield* monitor.query(`DO $lab$ BEGIN ${empty.replace("SELECT", "PERFORM")}; END $lab$`)
        }).pipe(Effect.orDie),
        renewDays,
        observe: (before) =>
          Effect.map(
            monitored(
              before === undefined ? observed : observedBesideDays,
              [],
              (row) => JSON.parse(row["state"] as string) as Committed
            ),
            ([state = nothingCommitted]) =>
              before === undefined
                ? state
                : { ...state, archive: before.archive, inbox: { ...state.inbox, marks: before.inbox.marks } }
          ),
        dropMarks: Effect.asVoid(monitored("DELETE FROM processed_events", [], () => undefined)),
        forward: (seconds) =>
          Effect.asVoid(
            monitored(
              "SELECT setval('lab_clock', nextval('lab_clock') + $1::int8)",
              [BigInt(seconds * 1000)],
              () => undefined
            )
          )
      })
    }).pipe(Effect.orDie)

  static readonly layer = (url: Redacted.Redacted) => Layer.effect(LabDatabase, LabDatabase.make(url))
}
