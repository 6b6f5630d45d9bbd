/** What the doctor tells people to do: first things first, and by a command that connects. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { execFileSync } from "node:child_process"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import * as BehindTopic from "../../../src/application/doctor/BehindTopic.ts"
import { database } from "../../../src/main/Storage.ts"
import { type Check, notChecked, psql, runAll, told } from "../../../src/operations/doctor/Check.ts"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import { Migrated } from "../../../src/postgres/Migrations.ts"
import { root, TestDatabase } from "../../support/TestDatabase.ts"
import * as TwoRoles from "../../support/TwoRoles.ts"
import { examine, session } from "./Examined.ts"

const check = (name: string, ...problems: ReadonlyArray<string>): Check => ({
  group: "a group",
  name,
  run: Effect.succeed(
    told(
      "",
      problems.map((problem) => ({ problem, fix: "Start a process", command: psql(`SELECT '${problem}'`) }))
    )
  )
})

it.effect("on a database that is behind its topic no other fix is told: it would start processes", () =>
  Effect.gen(function* () {
    assert.isTrue(BehindTopic.check([]).mendFirst)
    const restored: Check = { ...check("restored", "behind"), mendFirst: true }
    const { checks, findings } = yield* runAll([restored, check("well"), check("lanes", "unowned", "late")])
    assert.strictEqual(findings, 3)
    const told = checks.map((one) => one.findings)
    assert.deepStrictEqual(told[0], [{ problem: "behind", fix: "Start a process", command: psql("SELECT 'behind'") }])
    for (const finding of told[2]!) {
      assert.strictEqual(
        finding.fix,
        "Wait with this one, and start nothing: mend what restored has found first, and look again"
      )
      assert.isNull(finding.command)
    }
    assert.deepStrictEqual(
      told[2]!.map(({ problem }) => problem),
      ["unowned", "late"]
    )
    // Well, it keeps nobody waiting.
    const well: Check = { ...check("restored"), mendFirst: true }
    const after = yield* runAll([well, check("lanes", "unowned")])
    assert.strictEqual(after.checks[1]!.findings[0]!.fix, "Start a process")
  })
)

it.effect(
  "while it is not known whether the database is behind, no fix starts a process, and all others are told",
  () =>
    Effect.gen(function* () {
      const unknown: Check = { ...check("restored"), mendFirst: true, run: Effect.succeed(notChecked("no broker")) }
      const index = { problem: "no index", fix: "Make it again", command: psql("CREATE INDEX …") }
      const { checks } = yield* runAll([
        unknown,
        check("lanes", "unowned"),
        { ...check("indexes"), run: Effect.succeed(told("", [index])) },
        {
          ...check("tasks"),
          run: Effect.succeed(
            told("", [{ problem: "late", fix: "", command: "npm run paid-once -- serve --roles workers" }])
          )
        }
      ])
      const waits = {
        fix: "Start nothing yet: restored could not look, and a start may do harm. Look again once it can",
        command: null
      }
      assert.deepStrictEqual(
        checks.slice(1).map(({ findings }) => findings),
        [[{ problem: "unowned", ...waits }], [index], [{ problem: "late", ...waits }]]
      )
    })
)

it.live("a statement for psql is told with what connects to the database: the service's own, or the embedded one", () =>
  Effect.gen(function* () {
    yield* session("DROP INDEX outbox_tasks_due")
    const commandOf = (env: Readonly<Record<string, string>>) =>
      Effect.map(examine(env), ({ of }) => of("indexes").findings[0]!.command)
    assert.match((yield* commandOf({ DATABASE_URL: "postgres://db/one" }))!, /^psql "\$DATABASE_URL" -c "CREATE INDEX/)
    assert.match(
      (yield* commandOf({}))!,
      /^PGPASSWORD=\$\(cat "\/nowhere\/postgres\/password"\) psql -h "\/nowhere\/postgres\/data" -U paid_once paid_once -c "CREATE INDEX/
    )
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it("a shell hands a statement to psql as it is", () => {
  const statement = `SELECT "a", '$HOME \`id\` $$ \\d \\$'`
  const printed = psql(statement).replace(/^.* -c /, "printf %s ")
  assert.strictEqual(execFileSync("sh", ["-c", printed], { encoding: "utf8" }), statement)
})

/** The statements of a command for psql as one. As by psql, they are one transaction. */
const statementOf = (command: string | null) => {
  const [, statements = "", file] = / -c "(.*)"(?: -f (\S+))?$/s.exec(command ?? "") ?? []
  const unquoted = statements.replace(/\\(["\\$`])/g, "$1")
  const text = file === undefined ? unquoted : `${unquoted}; ${readFileSync(Path.join(root, file), "utf8")}`
  return `DO $fix$ BEGIN ${text.replace(/;\s*$/, "")}; END $fix$`
}

it.live("the statements that mend tables, constraints and functions do it", () =>
  Effect.gen(function* () {
    const look = Effect.map(examine(), ({ of }) =>
      ["tables", "constraints", "functions", "schema-version", "daily-partitions"].flatMap((name) => of(name).findings)
    )
    assert.deepStrictEqual(yield* look, [])
    yield* session(
      "DROP TRIGGER payments_stamped ON payments",
      "ALTER TABLE payments DISABLE TRIGGER ALL",
      "CREATE TRIGGER odd BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION stamp_payment()",
      "ALTER TABLE orders ALTER COLUMN version DROP NOT NULL",
      "ALTER TABLE orders ALTER COLUMN customer_id SET DEFAULT 'nobody'",
      "ALTER TABLE processed_events DROP COLUMN history",
      "ALTER TABLE outbox_tasks ALTER COLUMN history DROP DEFAULT, RESET (autovacuum_vacuum_threshold, fillfactor)",
      "ALTER TABLE outbox_tasks ALTER COLUMN seq DROP IDENTITY",
      "ALTER TABLE operator_audit ALTER COLUMN audit_id SET GENERATED BY DEFAULT",
      "ALTER SEQUENCE outbox_events_seq_seq AS integer CYCLE",
      "ALTER TABLE outbox_topics ALTER COLUMN noted_at DROP DEFAULT, ALTER COLUMN noted_at TYPE text, ALTER COLUMN noted_at SET DEFAULT 'now'",
      "DROP VIEW outbox_status",
      "ALTER TABLE outbox_holds ALTER COLUMN history TYPE text",
      "CREATE VIEW outbox_status AS SELECT history FROM outbox_holds",
      "ALTER TABLE billing_ledger DROP CONSTRAINT billing_ledger_amount_minor_check",
      "ALTER TABLE billing_ledger ADD CONSTRAINT billing_ledger_amount_minor_check CHECK (amount_minor > -5)",
      "ALTER DOMAIN outbox_lane DROP CONSTRAINT outbox_lane_check",
      "ALTER DOMAIN outbox_lane ADD CONSTRAINT outbox_lane_check CHECK (VALUE < 100)",
      "CREATE OR REPLACE FUNCTION drop_daily_partition(parent text, partition text) RETURNS void LANGUAGE sql AS ''",
      "DROP FUNCTION uuid_v7_floor_at",
      'CREATE RULE "Nothing leaves" AS ON DELETE TO outbox_events DO INSTEAD NOTHING',
      "ALTER TABLE event_log DETACH PARTITION event_log_default",
      "DO $$ BEGIN EXECUTE format('ALTER TABLE event_log DETACH PARTITION event_log_%s', to_char(clock_now() AT TIME ZONE 'UTC', 'YYYYMMDD')); END $$",
      "DROP TABLE processed_events_default"
    )
    const found = yield* look
    assert.strictEqual(found.length, 22, JSON.stringify(found, null, 2))
    yield* session(...found.map(({ command }) => statementOf(command)))
    const sql = yield* SqlClient.SqlClient
    const [numbers] = yield* sql`SELECT nextval('outbox_tasks_seq_seq') > 1000000000000 AS "areAboveAllGiven"`
    assert.deepStrictEqual(numbers, { areAboveAllGiven: true })
    // A rule is added for new rows, and then validated. The days could not be looked at before.
    const left = yield* look
    assert.strictEqual(left.length, 3, JSON.stringify(left, null, 2))
    yield* session(...left.map(({ command }) => statementOf(command)))
    assert.deepStrictEqual(yield* look, [])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("what a superuser makes by a fix is the owner's, and the service's role may use it", () =>
  Effect.gen(function* () {
    const two = yield* TwoRoles.make
    const config = yield* TwoRoles.configOf({
      DATABASE_URL: Redacted.value(two.serviceUrl),
      DATABASE_OWNER_URL: Redacted.value(two.ownerUrl)
    })
    yield* Effect.provide(Effect.service(Migrated), Layer.fresh(database(config)), { local: true })
    const asSuperuser = (...statements: ReadonlyArray<string>) =>
      Effect.forEach(statements, (statement) =>
        TwoRoles.on(two.adminUrl)(SqlClient.SqlClient.use((sql) => sql.unsafe(statement)))
      )
    const look = Effect.provide(examine(), DatabaseSettings.layerOf({ url: two.serviceUrl }))
    yield* asSuperuser(
      "CREATE OR REPLACE VIEW billing_balances AS SELECT ''::text AS account, ''::text AS currency, 0::numeric AS balance_minor",
      "DROP VIEW outbox_status",
      "ALTER TABLE outbox_events ALTER COLUMN seq DROP IDENTITY",
      "DROP FUNCTION drop_daily_partition",
      "DROP FUNCTION make_daily_partition",
      "CREATE FUNCTION make_daily_partition(parent text, day date, max_moved integer, OUT outcome text, OUT moved bigint) LANGUAGE sql AS 'SELECT NULL, NULL::bigint'"
    )
    const { of } = yield* look
    const found = ["tables", "functions"].flatMap((name) => of(name).findings)
    assert.strictEqual(found.length, 5, JSON.stringify(found, null, 2))
    yield* asSuperuser(...found.map(({ command }) => statementOf(command)))
    yield* asSuperuser(
      `REVOKE INSERT, DELETE ON billing_ledger FROM ${two.service}`,
      `REVOKE EXECUTE ON FUNCTION drop_daily_partition FROM ${two.service}`,
      `REVOKE SELECT ON outbox_events_seq_seq FROM ${two.service}`
    )
    const lacking = (yield* look).of("rights").findings
    assert.deepStrictEqual(
      lacking.map(({ problem }) => /lacks (.*):/.exec(problem)?.[1]),
      [
        "DELETE, INSERT on billing_ledger",
        "EXECUTE on drop_daily_partition(text,text)",
        // Made by another role, the function had lost its grants.
        "EXECUTE on make_daily_partition(text,date,integer)",
        "SELECT on outbox_events_seq_seq"
      ]
    )
    // As paid-once migrate does.
    yield* Effect.provide(Effect.service(Migrated), Layer.fresh(database(config)), { local: true })
    const after = yield* look
    assert.strictEqual(after.of("rights").outcome, "ok")
    for (const name of ["tables", "functions", "dead-letters"]) assert.strictEqual(after.of(name).outcome, "ok", name)
    const [rights] = yield* TwoRoles.on(two.serviceUrl)(
      SqlClient.SqlClient.use(
        (sql) => sql<{ readonly others: number; readonly canCall: boolean; readonly canSee: boolean }>`
          SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relowner <> ${two.owner}::regrole)::int4
                 + (SELECT count(*) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND proowner <> ${two.owner}::regrole)::int4 AS others,
                 has_function_privilege('drop_daily_partition(text, text)', 'EXECUTE') AS "canCall",
                 has_sequence_privilege('outbox_events_seq_seq', 'SELECT') AS "canSee"`
      )
    )
    assert.deepStrictEqual(rights, { others: 0, canCall: true, canSee: true })
  }).pipe(Effect.scoped)
)

it.live("on the schema of a newer release no fix is told: it would take back what is newer", () =>
  Effect.gen(function* () {
    yield* session(
      "INSERT INTO migrations_business (migration_id, name) VALUES (9999, 'of_later')",
      "DROP VIEW outbox_status"
    )
    const { of } = yield* examine()
    for (const name of ["indexes", "constraints", "tables", "functions"]) {
      assert.deepInclude(of(name), {
        outcome: "not checked",
        told: "a newer release has migrated this database (migrations_business): its own doctor knows the schema"
      })
    }
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)
