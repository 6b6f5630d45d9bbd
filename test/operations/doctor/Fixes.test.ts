/** What the doctor tells people to do: first things first, and by a command that connects. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as BehindTopic from "../../../src/application/doctor/BehindTopic.ts"
import { type Check, notChecked, psql, runAll, told } from "../../../src/operations/doctor/Check.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
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

/** The statement of a command for psql. */
const statementOf = (command: string | null) => / -c "(.*)"$/s.exec(command ?? "")?.[1]?.replaceAll('\\"', '"') ?? ""

it.live("the statements that mend tables and constraints do it", () =>
  Effect.gen(function* () {
    yield* session(
      "DROP TRIGGER payments_stamped ON payments",
      "ALTER TABLE payments DISABLE TRIGGER ALL",
      "ALTER TABLE orders ALTER COLUMN version DROP NOT NULL",
      "ALTER TABLE outbox_tasks ALTER COLUMN history DROP DEFAULT, RESET (autovacuum_vacuum_threshold, fillfactor)",
      "ALTER TABLE billing_ledger DROP CONSTRAINT billing_ledger_amount_minor_check",
      "ALTER TABLE billing_ledger ADD CONSTRAINT billing_ledger_amount_minor_check CHECK (amount_minor > -5)"
    )
    const look = Effect.map(examine(), ({ of }) =>
      ["tables", "constraints", "schema-version"].flatMap((name) => of(name).findings)
    )
    const found = yield* look
    assert.strictEqual(found.length, 7, JSON.stringify(found))
    yield* session(...found.map(({ command }) => statementOf(command)))
    // A rule is added for new rows, and then validated.
    const [left, ...others] = yield* look
    assert.deepStrictEqual(others, [])
    yield* session(statementOf(left!.command))
    assert.deepStrictEqual(yield* look, [])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)
