/** Each check of the doctor, made to find what it is for: what it says then, with its fix. The same database without the fault yields nothing. */
import { assert, it } from "@effect/vitest"
import { Clock, type Context, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { FlowLimits } from "../../../src/operations/doctor/FlowChecks.ts"
import { LockLimits } from "../../../src/operations/doctor/LockChecks.ts"
import { VacuumLimits } from "../../../src/operations/doctor/VacuumChecks.ts"
import { LaneOwnership } from "../../../src/outbox/LaneOwnership.ts"
import { memberGroup } from "../../../src/brokers/embedded/EmbeddedLog.ts"
import * as OwnershipLocks from "../../../src/platform/OwnershipLocks.ts"
import { untilBlocked } from "../../support/Counters.ts"
import { idAt } from "../../support/SqlIds.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import { examine, session } from "./Examined.ts"

interface Case {
  /** The check's name, a colon, and when it finds something. */
  readonly title: `${string}: ${string}`
  /** Statements that are there without the fault, too. */
  readonly given?: ReadonlyArray<string>
  /** Statements that make the fault. */
  readonly fault?: ReadonlyArray<string>
  /** Sessions that stay open, a list of statements each, without the fault, too. */
  readonly open?: ReadonlyArray<ReadonlyArray<string>>
  /** The fault is a session that stays open. */
  readonly held?: ReadonlyArray<string>
  readonly env?: Readonly<Record<string, string>>
  readonly limits?: Partial<Context.Service.Shape<typeof VacuumLimits>>
  readonly problem: RegExp
  readonly command: RegExp | null
}

const event = (aggregate: string, age: string, lane = 7) => `
  INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
    trace_id, span_id, record_bytes, data)
  SELECT ${lane}, ${idAt("clock_now()")}, 'orders', 'Made', 1, 'Order', '${aggregate}', 1, clock_now() - interval '${age}', repeat('a', 32), repeat('b', 16), 100, '{}'`

/** As a process of the service notes it. */
const kept = (table: string, days: number) =>
  `INSERT INTO retention (table_name, kept_days, noted_by, noted_at) VALUES ('${table}', ${days}, '7@elsewhere', clock_now())`

const task = (columns: Readonly<Record<string, string>>) => {
  const all: Readonly<Record<string, string>> = {
    task_id: idAt("clock_now()"),
    task_type: "'email'",
    state: "'pending'",
    payload: "'{}'",
    priority: "0",
    idempotency_key: "'a key'",
    enqueued_at: "clock_now()",
    execute_at: "clock_now()",
    attempts: "0",
    token: "0",
    ...columns
  }
  return `INSERT INTO outbox_tasks (${Object.keys(all).join(", ")}) SELECT ${Object.values(all).join(", ")}`
}

const failedAt = (at: string) =>
  task({
    state: "'failed'",
    attempts: "1",
    idempotency_key: `'failed at ' || ${at}`,
    last_error: "'no'",
    history: `jsonb_build_array(jsonb_build_object('attempt', 1, 'at', ${at}, 'error', 'no'))`
  })

const lock = (lockClass: number, slots: string) => `SELECT pg_advisory_lock(${lockClass}, slot) FROM ${slots} AS slot`
const lanes = [
  lock(OwnershipLocks.memberClassOf(LaneOwnership.group), "generate_series(1, 1)"),
  lock(OwnershipLocks.slotClassOf(LaneOwnership.group), "generate_series(0, 63)")
]
const group = (name: string) => memberGroup(name, "orders")
const consumers = ["receipts", "inventory", "billing", "analytics"]
const reads = (name: string) => lock(OwnershipLocks.slotClassOf(group(name)), "generate_series(0, 0)")
const topic = [
  "INSERT INTO broker_topics (topic, partitions) VALUES ('orders', 1)",
  "INSERT INTO broker_partitions (topic, partition, next_offset) VALUES ('orders', 0, 5)",
  "INSERT INTO broker_offsets (consumer_group, topic, partition, next_offset, generation) SELECT unnest('{receipts,inventory,billing,analytics}'::text[]), 'orders', 0, 5, 1"
]

const cases: ReadonlyArray<Case> = [
  {
    title: "schema-version: a migration is pending",
    fault: ["DELETE FROM migrations_business WHERE migration_id = (SELECT max(migration_id) FROM migrations_business)"],
    problem: /^migrations of this version are not applied \(migrations_business\)/,
    command: /^npm run paid-once -- migrate$/
  },
  {
    title: "schema-version: a constraint was never validated",
    fault: ["ALTER TABLE orders ADD CONSTRAINT odd CHECK (version < 1000000) NOT VALID"],
    problem: /^the constraint odd of orders was never validated/,
    command: /ALTER TABLE orders VALIDATE CONSTRAINT odd/
  },
  {
    title: "constraints: the index of a primary key is back, and the key is not",
    fault: [
      "ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey",
      "CREATE UNIQUE INDEX outbox_events_pkey ON outbox_events USING btree (lane, seq)"
    ],
    problem: /^the constraint outbox_events_pkey of outbox_events is missing/,
    command: /ALTER TABLE outbox_events ADD CONSTRAINT outbox_events_pkey PRIMARY KEY USING INDEX outbox_events_pkey/
  },
  {
    title: "constraints: a rule is gone",
    fault: ["ALTER TABLE outbox_tasks DROP CONSTRAINT outbox_tasks_lease"],
    problem: /^the constraint outbox_tasks_lease of outbox_tasks is missing/,
    command: /ALTER TABLE outbox_tasks ADD CONSTRAINT outbox_tasks_lease CHECK .* NOT VALID/
  },
  {
    title: "constraints: a rule allows more",
    fault: [
      "ALTER TABLE billing_ledger DROP CONSTRAINT billing_ledger_amount_minor_check",
      "ALTER TABLE billing_ledger ADD CONSTRAINT billing_ledger_amount_minor_check CHECK (amount_minor > -5)"
    ],
    problem: /^the constraint billing_ledger_amount_minor_check of billing_ledger has another rule: CHECK .*-5/,
    command: /DROP CONSTRAINT billing_ledger_amount_minor_check; .* ADD CONSTRAINT .* > 0\)\) NOT VALID/
  },
  {
    title: "constraints: a domain has no rule any more",
    fault: ["ALTER DOMAIN outbox_lane DROP CONSTRAINT outbox_lane_check"],
    problem: /^the constraint outbox_lane_check of outbox_lane is missing/,
    command: /ALTER DOMAIN outbox_lane ADD CONSTRAINT outbox_lane_check CHECK .* NOT VALID"/
  },
  {
    title: "tables: a trigger is gone",
    fault: ["DROP TRIGGER payments_stamped ON payments"],
    problem: /^a trigger is missing, or another one: CREATE TRIGGER payments_stamped BEFORE UPDATE ON payments/,
    command:
      /DROP TRIGGER IF EXISTS payments_stamped ON payments; SET ROLE \w+; CREATE TRIGGER payments_stamped BEFORE UPDATE ON payments/
  },
  {
    title: "tables: somebody has added a trigger to a partition",
    fault: [
      "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
      "DO $$ DECLARE day regclass; BEGIN SELECT p.child INTO day FROM time_partitions('event_log') AS p WHERE is_default; EXECUTE format('CREATE TRIGGER odd BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION refused()', day); END $$"
    ],
    problem: /^event_log_default has the trigger odd, which no migration makes/,
    command: /DROP TRIGGER IF EXISTS odd ON event_log_default"/
  },
  {
    title: "tables: a view was replaced by hand",
    fault: [
      "DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW outbox_status AS ' || replace(pg_get_viewdef('outbox_status'), 'p.seq = h.seq', 'p.seq <> h.seq'); END $$"
    ],
    problem: /^the view outbox_status is another one: /,
    command: /DROP VIEW IF EXISTS outbox_status; SET ROLE \w+; CREATE VIEW outbox_status AS SELECT/
  },
  {
    title: "tables: a view reads one table in another way",
    fault: [
      "DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW billing_balances AS ' || replace(pg_get_viewdef('billing_balances'), 'UNION ALL', 'UNION'); END $$"
    ],
    problem: /^the view billing_balances is another one: /,
    command: /CREATE VIEW billing_balances AS SELECT .* UNION ALL /
  },
  {
    title: "tables: a column has another type",
    fault: ["ALTER TABLE orders ALTER COLUMN total_amount_minor TYPE integer"],
    problem: /^the column total_amount_minor of orders is integer NOT NULL, and the migrations make it bigint NOT NULL/,
    command: /ALTER TABLE orders ALTER COLUMN total_amount_minor TYPE bigint USING total_amount_minor::bigint"/
  },
  {
    title: "tables: a column has another name",
    fault: ["ALTER TABLE payments RENAME COLUMN refunded_at TO refunded_on"],
    problem: /^payments has no column refunded_at/,
    command: null
  },
  {
    title: "tables: a column is gone",
    fault: ["ALTER TABLE processed_events DROP COLUMN history"],
    problem: /^processed_events has no column history/,
    command: /ALTER TABLE processed_events ADD COLUMN history jsonb"/
  },
  {
    title: "missing-tables: a table is gone",
    fault: ["DROP TABLE generated_reports"],
    problem: /^the table generated_reports is gone/,
    command: null
  },
  {
    title: "tables: a sequence begins again at its end",
    fault: ["ALTER SEQUENCE outbox_events_seq_seq MAXVALUE 1000 CYCLE"],
    problem: /^the sequence outbox_events_seq_seq is another one: .* MAXVALUE 1000 CACHE 1 CYCLE/,
    command: /ALTER SEQUENCE outbox_events_seq_seq AS bigint .* NO CYCLE"/
  },
  {
    title: "tables: triggers and foreign keys are switched off",
    fault: ["ALTER TABLE payments DISABLE TRIGGER ALL"],
    problem: /^triggers of payments are switched off \(RI_ConstraintTrigger.*payments_stamped/,
    command: /ALTER TABLE payments ENABLE TRIGGER ALL/
  },
  {
    title: "tables: a column may be NULL",
    fault: ["ALTER TABLE orders ALTER COLUMN version DROP NOT NULL"],
    problem: /^the column version of orders is integer, and the migrations make it integer NOT NULL/,
    command: /ALTER TABLE orders ALTER COLUMN version SET NOT NULL/
  },
  {
    title: "tables: a column has another default",
    fault: ["ALTER TABLE payments ALTER COLUMN captured_minor SET DEFAULT 1"],
    problem: /^the column captured_minor of payments is bigint DEFAULT 1 NOT NULL, and /,
    command: /ALTER TABLE payments ALTER COLUMN captured_minor SET DEFAULT 0/
  },
  {
    title: "tables: autovacuum comes at its usual thresholds",
    fault: ["ALTER TABLE outbox_events RESET (autovacuum_vacuum_threshold)"],
    problem: /^the storage parameters of outbox_events lack \(autovacuum_vacuum_threshold=2000\)/,
    command: /ALTER TABLE outbox_events SET \(autovacuum_vacuum_threshold=2000\)/
  },
  {
    title: "tables: a crash would empty the ledger",
    fault: ["ALTER TABLE billing_ledger SET UNLOGGED"],
    problem: /^billing_ledger is UNLOGGED: a crash empties it/,
    command: /ALTER TABLE billing_ledger SET LOGGED/
  },
  {
    title: "tables: autovacuum is switched off for the queue",
    fault: ["ALTER TABLE outbox_events SET (autovacuum_enabled = off)"],
    problem: /^autovacuum is switched off for outbox_events/,
    command: /ALTER TABLE outbox_events RESET \(autovacuum_enabled\)/
  },
  {
    title: "indexes: an index is missing",
    fault: ["DROP INDEX outbox_tasks_leases"],
    problem: /^the index outbox_tasks_leases is missing/,
    command: /CREATE INDEX CONCURRENTLY outbox_tasks_leases ON outbox_tasks USING btree \(lease_until\) WHERE/
  },
  {
    title: "indexes: an index is invalid",
    fault: ["UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'payments_one_open'::regclass"],
    problem: /^the index payments_one_open is invalid/,
    command: /REINDEX INDEX CONCURRENTLY payments_one_open/
  },
  {
    title: "indexes: an index is not partial any more",
    fault: [
      "DROP INDEX outbox_tasks_due",
      "CREATE INDEX outbox_tasks_due ON outbox_tasks (task_type, priority, execute_at, seq)"
    ],
    problem: /^the index outbox_tasks_due is another one: CREATE INDEX outbox_tasks_due/,
    command: /DROP INDEX CONCURRENTLY outbox_tasks_due" && .* WHERE/
  },
  {
    title: "bloat: a table is mostly room of dead rows",
    given: [
      "INSERT INTO inventory_stock (sku, available) SELECT 'sku ' || n, n FROM generate_series(1, 20000) AS n",
      "ANALYZE inventory_stock"
    ],
    fault: ["DELETE FROM inventory_stock WHERE available < 19000", "VACUUM ANALYZE inventory_stock"],
    limits: { bloatFloorBytes: 500_000 },
    problem: /^inventory_stock takes 1 MB, and its rows need some 0 MB/,
    command: /VACUUM \(VERBOSE, ANALYZE\) inventory_stock/
  },
  {
    title: "vacuum: autovacuum is off for a table",
    fault: ["ALTER TABLE outbox_tasks SET (autovacuum_enabled = false)"],
    problem: /^autovacuum is off for outbox_tasks/,
    command: /ALTER TABLE outbox_tasks RESET \(autovacuum_enabled\)/
  },
  {
    title: "vacuum: vacuum lags behind",
    fault: [
      "INSERT INTO inventory_stock (sku, available) SELECT 'sku ' || n, n FROM generate_series(1, 3000) AS n",
      "DELETE FROM inventory_stock",
      "SELECT pg_stat_force_next_flush()"
    ],
    limits: { deadRows: 2_000 },
    problem: /^inventory_stock has 3,000 dead rows, and was vacuumed never/,
    command: /VACUUM \(VERBOSE, ANALYZE\) inventory_stock/
  },
  {
    title: "old-snapshots: a snapshot is held",
    held: ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1", "SELECT pg_sleep(0.3)"],
    limits: { snapshotSeconds: 0.2 },
    problem:
      /^process \d+ \(a stranger of .*, idle in transaction\) has a transaction open for \d+ s: vacuum removes nothing/,
    command: /SELECT pg_terminate_backend\(\d+\)/
  },
  {
    title: "tables: row-level security hides all rows",
    fault: ["ALTER TABLE orders ENABLE ROW LEVEL SECURITY"],
    problem: /^row-level security is on for orders: /,
    command: /ALTER TABLE orders DISABLE ROW LEVEL SECURITY/
  },
  {
    title: "tables: a rule takes the place of an INSERT",
    fault: ["CREATE RULE nothing AS ON INSERT TO billing_ledger DO INSTEAD NOTHING"],
    problem: /^billing_ledger has the rule nothing, which no migration makes/,
    command: /DROP RULE nothing ON billing_ledger/
  },
  {
    title: "functions: a trigger's function does nothing any more",
    fault: [
      "CREATE OR REPLACE FUNCTION stamp_payment() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$"
    ],
    problem: /^the function stamp_payment\(\) is another one: /,
    command:
      /-1 -c "ALTER FUNCTION stamp_payment\(\) OWNER TO \w+; SET ROLE \w+" -f migrations\/business\/functions\.txt$/
  },
  {
    title: "functions: one is gone",
    fault: ["ALTER FUNCTION uuid_v7_floor_at(timestamptz) RENAME TO another_name"],
    problem: /^the function uuid_v7_floor_at\(moment timestamp with time zone\) is missing: /,
    command: /-1 -c "SET ROLE \w+" -f migrations\/mechanism\/functions\.txt$/
  },
  {
    title: "books-compared: no night for three days",
    given: [
      "INSERT INTO reconciliation_runs (run_id, started_at, finished_at, actor, differences, report) SELECT gen_random_uuid(), clock_now() - age, clock_now() - age, 'a night', 0, '{}' FROM unnest('{5 days,1 day}'::interval[]) AS age"
    ],
    fault: ["DELETE FROM reconciliation_runs WHERE finished_at > clock_now() - interval '2 days'"],
    problem: /^the books were last compared 5 days ago: a difference raises no alert/,
    command: /reconcile$/
  },
  {
    title: "daily-partitions: no day is made ahead",
    fault: [
      "DO $$ DECLARE child regclass; BEGIN FOR child IN SELECT p.child FROM time_partitions('event_log') AS p WHERE p.to_time > clock_now() + interval '25 hours' LOOP EXECUTE 'DROP TABLE ' || child; END LOOP; END $$"
    ],
    problem: /^upkeep does not run: the partitions of event_log end in [01]\.\d days/,
    command: /maintenance run$/
  },
  {
    title: "daily-partitions: the owner of a restored schema may make nothing in it",
    fault: ["ALTER FUNCTION make_daily_partition(text, date, integer) OWNER TO pg_monitor"],
    problem:
      /^no day can be made, and no migration runs: pg_monitor, who owns the tables, may make none in the schema public/,
    command: /ALTER DATABASE \S+ OWNER TO pg_monitor/
  },
  {
    title: "daily-partitions: a day to come is gone",
    fault: [
      "DO $$ DECLARE day regclass; BEGIN SELECT p.child INTO day FROM time_partitions('event_log') AS p WHERE p.to_time BETWEEN clock_now() + interval '25 hours' AND clock_now() + interval '49 hours'; EXECUTE 'DROP TABLE ' || day; END $$"
    ],
    problem: /^event_log lacks 1 day between today and its last one/,
    command: /maintenance run$/
  },
  {
    title: "daily-partitions: old days stay",
    // The days that the service keeps, and not those of the doctor's shell.
    given: [kept("processed_events", 9)],
    fault: [
      "DO $$ BEGIN EXECUTE format('CREATE TABLE old PARTITION OF processed_events FOR VALUES FROM (%L) TO (%L)', uuid_v7_floor((clock_now() - interval '20 days')::date), uuid_v7_floor((clock_now() - interval '19 days')::date)); END $$"
    ],
    problem: /^old days stay: processed_events has one that ended (19|20) days ago, and they are kept for 9/,
    command: /maintenance run$/
  },
  {
    title: "daily-partitions: rows are in the default partition",
    fault: ["INSERT INTO processed_events VALUES ('billing', gen_random_uuid(), clock_now())"],
    problem: /^rows of processed_events are in its default partition/,
    command: /maintenance run$/
  },
  {
    title: "finished-rows-leave: finished tasks stay",
    given: [kept("outbox_tasks", 31)],
    fault: [task({ state: "'completed'", finished_at: "clock_now() - interval '40 days'", attempts: "1" })],
    problem: /^finished tasks stay: the oldest is 40 days old, and they are kept for 31/,
    command: /maintenance run$/
  },
  {
    title: "fetch-plan: the queue's index is gone",
    fault: ["ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey"],
    problem: /^the dispatcher's fetch does not use the index outbox_events_pkey/,
    command: /ANALYZE outbox_events/
  },
  {
    title: "fetch-plan: the index does not have the order",
    fault: [
      "ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey",
      "CREATE INDEX outbox_events_pkey ON outbox_events (lane)"
    ],
    problem: /^the dispatcher's fetch sorts the rows of outbox_events: no index has them in order/,
    command: /pg_indexes/
  },
  {
    title: "claim-plan: the index of due tasks is gone",
    fault: ["DROP INDEX outbox_tasks_due"],
    problem: /^the claim of tasks does not use the index outbox_tasks_due/,
    command: /ANALYZE outbox_tasks/
  },
  {
    title: "claim-plan: the index does not have the order",
    fault: [
      "DROP INDEX outbox_tasks_due",
      "CREATE INDEX outbox_tasks_due ON outbox_tasks (task_type, priority) WHERE state IN ('pending', 'failed')"
    ],
    problem: /^the claim of tasks sorts the rows of outbox_tasks/,
    command: /pg_indexes/
  },
  {
    title: "lanes-move: a lane with an event has no owner",
    fault: [event("a", "10 minutes")],
    problem: /^the oldest event of lane 7 has waited for orders for 10 min, and no process owns the lane/,
    command: /serve --roles dispatcher$/
  },
  {
    title: "lanes-move: the owner of a lane does not move it",
    fault: [event("a", "10 minutes")],
    held: lanes,
    problem:
      /^the oldest event of lane 7 has waited for orders for 10 min, and backend \d+, the owner of the lane, does not move$/,
    command: /outbox status$/
  },
  {
    title: "lanes-move: many lanes of one owner are one finding",
    fault: [event("a", "10 minutes"), event("b", "5 minutes", 8), event("c", "8 minutes", 9)],
    held: lanes,
    problem:
      /^the oldest events of 3 lanes have waited for orders for up to 10 min, and backend \d+, the owner of the lanes, does not move$/,
    command: /outbox status$/
  },
  {
    title: "locks: a session keeps a table to itself",
    held: ["BEGIN", "LOCK TABLE event_log IN ACCESS EXCLUSIVE MODE"],
    problem:
      /^process \d+ \(a stranger of .*, idle in transaction\) has a transaction open for \d+ s that keeps writers from event_log$/,
    command: /SELECT pg_terminate_backend\(\d+\)/
  },
  {
    title: "outbox-holds: an aggregate is held for long, and nobody tries again",
    fault: [
      "INSERT INTO outbox_holds VALUES ('Order', 'a', 1, 'orders', gen_random_uuid(), 1, 3, clock_now() - interval '5 minutes', 'too large', '[]', clock_now() - interval '1 hour')"
    ],
    problem: /^1 aggregate wait behind an event that is refused and tried again, the oldest for 60 min/,
    command: /outbox list --status retrying$/
  },
  {
    title: "inbox-holds: a consumer's retries are overdue",
    fault: [
      "INSERT INTO inbox_holds VALUES ('billing', 'a', 'orders', 'e', 'retrying', 3, clock_now() - interval '5 minutes', 'no', '[]', clock_now())"
    ],
    problem: /^1 retry of the inbox are overdue by more than 60 s/,
    command: /status$/
  },
  {
    title: "consumers-move: nobody reads a partition",
    given: topic,
    open: consumers.map((name) => [reads(name)]),
    fault: [
      `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE classid = ${OwnershipLocks.unsigned(OwnershipLocks.slotClassOf(group("analytics")))}`
    ],
    problem: /^1 of 1 partition of orders have no reader for analytics/,
    command: /serve --roles consumers$/
  },
  {
    title: "consumers-move: a reader does not move",
    given: topic,
    open: [consumers.map(reads)],
    fault: ["UPDATE broker_offsets SET next_offset = 3 WHERE consumer_group = 'billing'"],
    problem: /^billing is 2 records behind in partition 0 of orders, and backend \d+ does not move/,
    command: /consumers lag$/
  },
  {
    title: "tasks-move: a due task waits",
    fault: [task({ execute_at: "clock_now() - interval '10 minutes'" })],
    problem: /^a task email is due for 10 min, and no worker takes it/,
    command: /serve --roles workers$/
  },
  {
    title: "tasks-move: a lease has ended, and nobody looks after it",
    fault: [task({ state: "'processing'", attempts: "1", lease_until: "clock_now() - interval '5 minutes'" })],
    problem: /^1 lease ended more than a minute ago/,
    command: /serve --roles workers$/
  },
  {
    title: "tasks-succeed: what a task needs has been away for some time",
    given: [failedAt("clock_now() - interval '4 minutes'")],
    fault: [failedAt("clock_now() - interval '10 minutes'")],
    problem: /^2 tasks of email waiting for another try, the oldest has failed for 10 min: no$/,
    command: /tasks list --type email --status retrying$/
  },
  {
    title: "backoff: failing tasks are tried again at once",
    fault: [failedAt("clock_now() + interval '1 second'")],
    problem: /^1 of 1 failing task are tried again at once/,
    command: /tasks list --status retrying$/
  },
  {
    title: "backoff: the waits are short",
    env: { TASK_RETRY_DELAYS: "1s,2s" },
    problem: /^TASK_RETRY_DELAYS lets retries end within 3 s/,
    command: null
  },
  {
    title: "idempotency-keys: a mail was asked for without a key",
    fault: [task({ idempotency_key: "NULL" })],
    problem: /^1 task email of the newest have no idempotency key/,
    command: /task_type = 'email' AND idempotency_key IS NULL/
  },
  {
    title: "topic-orders: the topic is missing",
    fault: ["DELETE FROM broker_partitions", "DELETE FROM broker_topics"],
    problem: /^topic orders is unavailable: it does not exist/,
    command: null
  },
  {
    title: "topic-orders: its partitions do not divide the lanes",
    fault: ["UPDATE broker_topics SET partitions = 7"],
    problem: /^topic orders: it has 7 partitions: 64 lanes need a count that divides 64/,
    command: null
  },
  {
    title: "topic-orders: the inbox forgets before the topic does",
    env: { INBOX_RETENTION_DAYS: "1" },
    problem:
      /^topic orders: it keeps records for \d days \(retention\.ms\), and an event is known as a duplicate for 1 day only/,
    command: null
  },
  {
    title: "gateway-time: the gateway does not answer",
    env: { GATEWAY_URL: "http://127.0.0.1:9", GATEWAY_WEBHOOK_SECRET: "a-secret-of-two-companies" },
    problem: /^the gateway's ledger can't be read: /,
    command: /payments list --status charging$/
  },
  {
    title: "mail-time: the mail server does not answer",
    env: { SMTP_URL: "smtp://127.0.0.1:9" },
    problem: /^the mail server refuses or does not answer: /,
    command: /mail list$/
  },
  {
    title: "dead-letters: a consumer gave an event up",
    fault: [
      "INSERT INTO inbox_dead_letters (consumer_name, aggregate_id, position, event_id, topic, broker_partition, broker_offset, record_headers, parked_at, status, attempts, history, ended_at) VALUES ('billing', 'a', 1, 'e', 'orders', 0, 0, '{}', clock_now(), 'dead', 10, '[]', clock_now())"
    ],
    problem: /^1 event that billing can't apply/,
    command: /^npm run paid-once -- inbox list --consumer billing$/
  },
  {
    title: "pauses: a topic is paused",
    fault: ["INSERT INTO operator_pauses VALUES ('topic', 'orders', clock_now(), 'ada', 'a drill')"],
    problem: /^topic orders is paused since .* by ada: a drill/,
    command: /^npm run paid-once -- dispatcher resume orders/
  },
  {
    title: "settings: commits are not durable",
    fault: ["DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$"],
    problem: /^synchronous_commit is off, so what was answered as done could be lost/,
    command: /-c "ALTER DATABASE test_\w+ RESET synchronous_commit"$/
  },
  {
    title: "settings: triggers and foreign keys are off for a database",
    fault: [
      "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET session_replication_role = replica', current_database()); END $$"
    ],
    problem: /^session_replication_role is replica, so no foreign key holds and no trigger fires/,
    command: /-c "ALTER DATABASE test_\w+ RESET session_replication_role"$/
  },
  {
    title: "settings: the database is read-only by default",
    fault: [
      "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$"
    ],
    problem: /^default_transaction_read_only is on for the database test_\w+: the service can write nothing/,
    command: /-c "BEGIN READ WRITE; ALTER DATABASE test_\w+ RESET default_transaction_read_only; COMMIT"$/
  },
  {
    title: "settings: a short statement_timeout is set for a database",
    fault: [
      "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = ''15ms''', current_database()); END $$"
    ],
    problem: /^statement_timeout is 15ms for the database test_\w+: longer statements of the service fail/,
    command: /-c "BEGIN READ WRITE; ALTER DATABASE test_\w+ RESET statement_timeout; COMMIT"$/
  },
  {
    title: "settings: backslashes in texts mean something else",
    fault: [
      "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET standard_conforming_strings = off', current_database()); END $$"
    ],
    problem: /^standard_conforming_strings is off for the database test_\w+: the service's statements mean/,
    command: /-c "BEGIN READ WRITE; ALTER DATABASE test_\w+ RESET standard_conforming_strings; COMMIT"$/
  },
  {
    title: "missing-tables: a table has another name",
    fault: ["ALTER TABLE mail_deliveries RENAME TO mail_deliveries_old"],
    problem: /^the table mail_deliveries is gone/,
    command: /-c "ALTER TABLE mail_deliveries_old RENAME TO mail_deliveries"$/
  },
  {
    title: "tables: a sequence is behind its column",
    fault: [
      "INSERT INTO operator_audit (at, actor, action, reason, subject, subject_id, before, after) SELECT clock_now(), 'ada', 'pause', 'a drill', 'consumer', 'billing', '{}', '{}' FROM generate_series(1, 3)",
      "SELECT setval('operator_audit_audit_id_seq', 1)"
    ],
    problem: /^the sequence operator_audit_audit_id_seq is at 1, and operator_audit has audit_id up to 3/,
    command: /SELECT setval\('operator_audit_audit_id_seq', \(SELECT max\(audit_id\) FROM operator_audit\)\)/
  },
  {
    title: "settings: the planner may not use an index",
    fault: ["DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET enable_indexscan = off', current_database()); END $$"],
    problem: /^enable_indexscan is off: Postgres may read whole tables/,
    command: /-c "ALTER DATABASE test_\w+ RESET enable_indexscan"$/
  },
  {
    title: "clock: somebody has replaced the one clock",
    fault: [
      "CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT clock_timestamp() + interval '1 day' $$"
    ],
    problem: /^clock_now\(\) is 864\d\d\.\d s away from Postgres' clock/,
    command: /CREATE OR REPLACE FUNCTION clock_now/
  }
]

/** As the service has it once it has run, but for what a case is about. */
const usual = [
  "INSERT INTO broker_topics (topic, partitions) SELECT 'orders', 8 WHERE NOT EXISTS (SELECT FROM broker_topics)",
  "INSERT INTO outbox_topics (topic, partitions) SELECT topic, partitions FROM broker_topics WHERE 64 % partitions = 0"
]

for (const { command, env, fault = [], given = [], held, limits, open = [], problem, title } of cases) {
  it.live(title, () =>
    Effect.gen(function* () {
      const [check = "", when = ""] = title.split(": ")
      const sql = yield* SqlClient.SqlClient
      for (const statement of [...given, ...usual]) yield* sql.unsafe(statement)
      yield* Effect.forEach(open, (statements) => session(...statements))
      const inLimits = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
        effect.pipe(
          Effect.updateService(VacuumLimits, (defaults) => ({ ...defaults, ...limits })),
          // How long a healthy loop waits is in Standstill.test.ts.
          Effect.provideService(FlowLimits, { stillMillis: 1 }),
          Effect.provideService(LockLimits, { againMillis: 100 })
        )
      const before = (yield* inLimits(examine())).of(check)
      assert.isFalse(
        before.findings.some((finding) => problem.test(finding.problem)),
        JSON.stringify(before)
      )
      for (const statement of fault) yield* sql.unsafe(statement)
      if (held !== undefined) yield* session(...held)
      if (when.startsWith("its partitions")) yield* sql`DELETE FROM outbox_topics`
      const found = (yield* inLimits(examine(env))).of(check)
      assert.strictEqual(found.outcome, "finding", JSON.stringify(found))
      const finding = found.findings.find((one) => problem.test(one.problem))
      assert.isDefined(finding, JSON.stringify(found.findings))
      assert.isAbove(finding.fix.length, 5)
      if (command === null) assert.isNull(finding.command)
      else assert.match(finding.command ?? "", command)
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )
}

it.live("clock: this machine's clock is off", () =>
  Effect.gen(function* () {
    const clock = yield* Clock.Clock
    const off: Clock.Clock = Object.assign(Object.create(clock) as Clock.Clock, {
      currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis + 5_000),
      currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() + 5_000
    })
    const { findings } = (yield* Effect.provideService(examine(), Clock.Clock, off)).of("clock")
    assert.match(findings[0]?.problem ?? "", /^the clocks of this machine and of Postgres differ by [45]\.\d s/)
    assert.match(findings[0]?.command ?? "", /timedatectl/)
  }).pipe(Effect.provide(TestDatabase.layerPool))
)

it.live("locks: a session whose row another one waits for", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO inventory_stock (sku, available) VALUES ('book', 1)`
    const take = "UPDATE inventory_stock SET available = 0"
    yield* session("BEGIN", take)
    yield* Effect.forkScoped(session(take))
    yield* untilBlocked("the row to be waited for")
    const { findings } = (yield* Effect.provideService(examine(), LockLimits, { againMillis: 100 })).of("locks")
    assert.strictEqual(findings.length, 1)
    assert.match(findings[0]!.problem, /\(a stranger of .*, idle in transaction\) .* that 1 other session waits for$/)
    yield* sql.unsafe(/-c "(.*)"$/.exec(findings[0]!.command!)![1]!)
    // The next one has the row, and its transaction ends.
    assert.strictEqual((yield* examine()).of("locks").outcome, "ok")
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)
