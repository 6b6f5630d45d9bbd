/**
 * The lab's database: a real Postgres with a clock that the lab sets, connections that are lent to actors, and a monitor that
 * sees who waits for whose lock. It is kept from case to case; a case empties what it touched.
 */
import { PgClient, PgConnection } from "@effect/sql-pg"
import { Clock, Context, Effect, Layer, type Redacted, Scope } from "effect"
import { Reactivity } from "effect/reactivity"

/** A physical session. Whoever has borrowed it is its only user. */
export interface LabConnection {
  readonly pg: PgConnection.PgConnection
  /** Between BEGIN and COMMIT or ROLLBACK. */
  inTransaction: boolean
  /** The open transaction has written to the outbox: what a late commit waits for. */
  appended: boolean
  /** It has written anything, and so has its transaction id. */
  wrote: boolean
  /** Statements behind the first write of the open transaction. */
  sinceWrite: number
  /** The open transaction waits for a lock for a moment only, and then fails. */
  givesUp: boolean
  /** It has dropped a day: until it ends nobody else gets at that table. */
  dropped: boolean
  /** The session has ended. */
  broken: boolean
}

/** What is committed, as the oracle and the story read it. Ids are text, amounts and offsets numbers: cases are small. */
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
  /** Events that the broker refused and that are not in the topic for all that is known. */
  readonly refused: ReadonlyArray<{
    readonly order: string
    readonly version: number
    readonly event: string
    readonly status: "retrying" | "dead" | "discarded"
  }>
  /** Lanes of events that wait behind one that was refused. */
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
  /** The effects of all consumers' events, in the order in which they were made. */
  readonly effects: ReadonlyArray<OfConsumer & { readonly order: string; readonly version: number }>
  readonly inbox: InboxRows
  readonly revenue: number
  readonly tasks: ReadonlyArray<TaskRow>
  /** What runs of the lab's own tasks wrote with their ends, in that order. */
  readonly work: ReadonlyArray<{ readonly task: string; readonly attempt: number }>
}

/** An event or a record that can't be read, as one consumer knows it. */
export interface OfConsumer {
  readonly consumer: string
  readonly event: string
}

/** What the consumers' tables hold. The version of what can't be read is null. */
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
  /** Versions behind `after` and up to `to`, which an operator went on without. `event` is the one that had waited for them. */
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
  /** It waits, and its time has come. */
  readonly due: boolean
  /** It is leased, and the lease has run out. */
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

/** A case begins at this instant: any will do, and a fixed one makes equal ids. */
export const epoch = "2026-01-01T00:00:00Z"

/**
 * Time stands in a sequence: each look at the clock takes it a millisecond on, at once and whatever is rolled back, so times
 * differ and are the same in every run. The lab draws the ids itself: they have the time in them, and orders share lanes (Actor.ts).
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

/** The tables of days with four of them, from the one on which a case starts by the lab's clock, and nothing in them. (Migrations go by the host's.) */
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

/** The time now, without taking it on. */
const now = `'${epoch}'::timestamptz + (SELECT last_value FROM lab_clock) * interval '1 millisecond'`

const millisOf = (time: string) => `(extract(epoch FROM ${time}) * 1000)::float8`

/** What is in the tables of days can't be read, and does not change, where somebody has dropped a day and not committed it yet. */
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

/** The dead rows of so many cases are swept at once: seldom enough to cost nothing, and tables never grow beyond some pages. */
const casesPerVacuum = 50

/** A machine that stands still for a moment is no reason to give a connection up. */
const connectTimeout = "60 seconds"

export class LabDatabase extends Context.Service<
  LabDatabase,
  {
    readonly lend: Effect.Effect<LabConnection>
    readonly giveBack: (connection: LabConnection) => void
    /** Ends the sessions as a killed process's are: Postgres rolls back. Returns when it has. */
    readonly terminate: (connections: Iterable<LabConnection>) => Effect.Effect<void>
    /** Rolls back whatever a finished case left open and takes the sessions back. */
    readonly recover: (connections: Iterable<LabConnection>) => Effect.Effect<void>
    /** The processes that the process waits for, none if it does not wait. */
    readonly blockers: (pid: number) => Effect.Effect<ReadonlyArray<number>>
    /** Everything empty, sequences and clock at their start. */
    readonly reset: Effect.Effect<void>
    /** The tables' days as they are before any upkeep: each statement of upkeep is a gate, and how many there are must not depend on the cases before. */
    readonly renewDays: Effect.Effect<void>
    /** What is committed. `before` is what was, given where somebody keeps the tables of days locked: what they hold is the same then. */
    readonly observe: (before?: Committed) => Effect.Effect<Committed>
    readonly forward: (seconds: number) => Effect.Effect<void>
    /** Retention has dropped all marks of the inbox. */
    readonly dropMarks: Effect.Effect<void>
    /** For what the driver adds to a client and no statement of ours uses. */
    readonly client: PgClient.PgClient
  }
>()("test/lab/LabDatabase") {
  /** Over a migrated database of its own. */
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
            // A deadlock is found soon enough not to hold up a case, and, as in the service, behind the end of upkeep's patience: whom it ends must
            // not depend on who has waited for longer.
            startupParameters: { deadlock_timeout: "150ms", jit: "off" }
          }),
          scope
          // Whoever borrows it has a clock of its own, on which connecting would time out at once.
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
      /** Ends when the session is gone, so that its locks are, too, and its transaction is rolled back. (Postgres itself would look each 100 ms.) */
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
            // One that waits for a lock or is in the middle of a statement can't be asked to roll back.
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
              // An autovacuum that truncates a table is gone in a moment, and no part of any story.
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
