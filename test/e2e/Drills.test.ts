/** `paid-once drill …` as a person runs it, beside a service that was started with FAULTS=on: what it shows, what it leaves, and what it refuses. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { execFile } from "node:child_process"
import * as Path from "node:path"
import { drillNames } from "../../src/cli/drill/DrillNames.ts"
import * as Sums from "../../src/cli/drill/Sums.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { consumerNames } from "../../src/main/Names.ts"
import { sendElsewhere } from "../http/Service.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { commandOf } from "../support/OperatorCommand.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"
import { environment, isWhole, nothingWaits, run, service, signalled, world } from "./Drilled.ts"

interface Step {
  readonly kind: string
  readonly what: string
  readonly look?: string
}
const result = (stdout: string) =>
  JSON.parse(stdout) as { readonly ok: boolean; readonly drill: string; readonly steps: ReadonlyArray<Step> }

it.live(
  "each drill breaks the service, shows it, mends it, leaves nothing behind, and finds that the sums agree",
  () =>
    Effect.gen(function* () {
      const { url } = yield* service
      for (const name of drillNames) {
        const { code, stderr, stdout } = yield* run(name, "--json", "--url", url!)
        assert.strictEqual(code, 0, `${name}: ${stderr}\n${stdout}`)
        const { drill, ok, steps } = result(stdout)
        assert.deepStrictEqual([drill, ok], [name, true])
        const kinds = steps.map(({ kind }) => kind)
        assert.includeMembers(kinds, ["breaks", "sees", "mends", "holds"], name)
        assert.isBelow(kinds.indexOf("breaks"), kinds.indexOf("sees"), name)
        assert.isAbove(kinds.lastIndexOf("holds"), kinds.lastIndexOf("mends"), name)
        assert.isTrue(
          steps.every(({ look }) => look === undefined || look.startsWith(`${url}/console`)),
          name
        )
        assert.match(steps.at(-1)!.what, /^reconcile finds 0 differences/)
        yield* isWhole
      }
      const sql = yield* SqlClient.SqlClient
      const actions = yield* sql<{ readonly action: string; readonly reason: string }>`
        SELECT action, reason FROM operator_audit ORDER BY at`
      // Not of poison: the consumer's own next attempt may come before the operator's.
      for (const [drill, action] of [
        ["oversize", "retry"],
        ["lost-ack", "arm"],
        ["manual", "settle"]
      ] as const)
        assert.isTrue(
          actions.some((one) => one.action === action && one.reason === `the drill ${drill}`),
          `${drill}: ${action}`
        )
    }).pipe(Effect.scoped, Effect.provide(world)),
  400_000
)

it.live(
  "beside other customers' orders the zombie is frozen with the event of the drill's own order",
  () =>
    Effect.gen(function* () {
      const { url } = yield* service
      const order = {
        customerId: "ada",
        currency: "EUR",
        lines: [{ sku: "book", quantity: 1, unitAmountMinor: 1_250 }]
      }
      const others = Effect.andThen(sendElsewhere(`${url}/orders`, { body: order }), Effect.sleep(200))
      yield* Effect.forkScoped(Effect.forever(others))
      const { code, stderr, stdout } = yield* run("zombie", "--url", url!)
      assert.strictEqual(code, 0, `${stdout}${stderr}`)
      assert.include(stdout, "✓ 2 records of one event in the topic")
    }).pipe(Effect.scoped, Effect.provide(world)),
  400_000
)

it.live(
  "a drill fails when an effect is wrong, and each figure of its sums can turn red alone",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { url } = yield* service
      const orders = sql<{ readonly id: string }>`SELECT id FROM orders WHERE customer_id LIKE 'drill-%'`
      assert.strictEqual((yield* run("lost-ack", "--url", url!)).code, 0)
      const ids = (yield* orders).map(({ id }) => id)

      const wrong: ReadonlyArray<readonly [statement: string, failing: RegExp]> = [
        ["UPDATE payments SET captured_minor = 0, status = 'declined', decline_reason = 'x'", /is captured less/],
        ["UPDATE sandbox_gateway.charges SET amount_minor = amount_minor * 2", /is charged at the gateway/],
        ["UPDATE billing_ledger SET amount_minor = amount_minor * 2", /is in billing's ledger/],
        [
          "DELETE FROM broker_log WHERE record_offset = (SELECT max(record_offset) FROM broker_log)",
          /events in the topic/
        ],
        ["UPDATE broker_log SET record_offset = 1000 - record_offset", /in version order/],
        ["DELETE FROM processed_events WHERE consumer_name = 'analytics'", /each event is applied once/],
        [
          "UPDATE consumer_cursors SET version = version + 1 WHERE consumer_name = 'receipts'",
          /each event is applied once/
        ]
      ]
      for (const [statement, failing] of wrong) {
        const checks = yield* Effect.flip(
          sql.withTransaction(
            Effect.andThen(
              sql.unsafe(statement),
              // The failure rolls back.
              Effect.flatMap(Sums.of(ids, consumerNames), (found) => Effect.fail(found))
            )
          )
        )
        assert.isArray(checks, `${statement}: ${String(checks)}`)
        const red = (checks as ReadonlyArray<Sums.Check>).filter(([, holds]) => !holds).map(([what]) => what)
        assert.isTrue(
          red.some((what) => failing.test(what)),
          `${statement}: ${red.join("; ")}`
        )
      }
      assert.deepStrictEqual(
        (yield* Sums.of(ids, consumerNames)).filter(([, holds]) => !holds),
        []
      )

      yield* sql.unsafe(`
        CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.amount_minor := NEW.amount_minor * 2; RETURN NEW; END $$`)
      yield* sql.unsafe("CREATE TRIGGER twice BEFORE INSERT ON billing_ledger FOR EACH ROW EXECUTE FUNCTION twice()")
      const { code, stdout } = yield* run("lost-ack", "--url", url!)
      assert.strictEqual(code, 1, stdout)
      assert.include(stdout, "✗ 25.00 EUR is in billing's ledger")
      assert.match(stdout, /✗ reconcile finds [1-9]/)
      assert.notInclude(stdout, "Nothing was lost")
    }).pipe(Effect.scoped, Effect.provide(world)),
  300_000
)

/** Steps after which an order of the drill waits for more than the breakage. */
const waitsAfter: Readonly<Record<string, string>> = {
  manual: "The gateway has captured the payment",
  oversize: "Its attempts would take"
}

it.live(
  "Ctrl-C in the middle of any drill leaves the service whole",
  () =>
    Effect.gen(function* () {
      const { url } = yield* service
      for (const name of drillNames) {
        const { code, output: read } = yield* signalled(name, url!, "SIGINT", waitsAfter[name])
        const output = read()
        assert.strictEqual(code, 130, `${name}: ${output}`)
        assert.include(output, "✗ break:", name)
        assert.notInclude(output, "agree", name)
        yield* isWhole
        yield* nothingWaits
        if (name in waitsAfter) assert.match(output, /· see: Tidying up.*\n *✓ mend: Tidied up: 1 /, name)
        const pid = /as process (\d+)/.exec(output)?.[1]
        assert.isTrue(name !== "zombie" || pid !== undefined)
        if (pid !== undefined) assert.throws(() => process.kill(Number(pid), 0), /ESRCH/)
      }
    }).pipe(Effect.scoped, Effect.provide(world)),
  400_000
)

it.live(
  "a drill refuses what is no test system, before it touches anything, and says what to do",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const env = yield* environment
      const { url } = yield* ServiceProcess.start({ env })
      const refuses = Effect.fnUntraced(function* (
        why: string,
        variables: Readonly<Record<string, string>> = {},
        at = url!
      ) {
        const asked = commandOf("drill", Effect.succeed({ ...env, ...variables }))
        const { code, stderr, stdout } = yield* asked("poison", "--url", at)
        assert.deepStrictEqual([code, stderr.includes(why)], [1, true], `${why}: ${stderr}`)
        assert.notInclude(stdout, "·")
      })
      yield* refuses("takes no faults, and so is no service to break: stop it, and start it with: FAULTS=on npm start")
      yield* refuses("GATEWAY_URL names another one", { GATEWAY_URL: "http://127.0.0.1:1" })
      yield* refuses("KAFKA_BROKERS names another one", { KAFKA_BROKERS: "127.0.0.1:1" })
      yield* refuses("DATABASE_URL is at db.example.com", { DATABASE_URL: "postgres://u@db.example.com/orders" })
      yield* refuses("nothing answers at http://127.0.0.1:1", {}, "http://127.0.0.1:1")
      for (const wrong of ["nonsense", "", "127.0.0.1:3000"]) {
        const { code, stderr } = yield* run("poison", "--url", wrong)
        assert.strictEqual(code, 2, stderr)
        assert.include(stderr, `--url is the address of the service, as http://127.0.0.1:3000, and not "${wrong}"`)
      }
      assert.deepStrictEqual(yield* sql`SELECT 1 AS one FROM orders`, [])
      yield* isWhole

      // A service that may be broken, on another database than this command's.
      const other = yield* TestDatabase.make()
      yield* ServiceProcess.start({ env: { ...env, FAULTS: "on" } })
      const elsewhere = yield* ServiceProcess.start({
        env: { ...env, DATABASE_URL: Redacted.value(other.url), FAULTS: "on" }
      })
      const mixed = yield* run("lost-ack", "--url", elsewhere.url!)
      assert.strictEqual(mixed.code, 1)
      assert.include(mixed.stderr, `the service at ${elsewhere.url} has another database than this command`)
      yield* isWhole
    }).pipe(Effect.scoped, Effect.provide(world)),
  200_000
)

it.live(
  "without a name the drills are listed; on a terminal a drill has colour and counts its waits, unless NO_COLOR is set",
  () =>
    Effect.gen(function* () {
      const listed = yield* run()
      assert.strictEqual(listed.code, 0)
      for (const name of drillNames) assert.match(listed.stdout, new RegExp(`^${name} +[A-Z].*\\.$`, "m"))
      assert.deepStrictEqual(
        (
          JSON.parse((yield* run("--json")).stdout) as { readonly items: ReadonlyArray<{ readonly name: string }> }
        ).items.map(({ name }) => name),
        [...drillNames]
      )
      const wrong = yield* run("everything")
      assert.strictEqual(wrong.code, 2)
      assert.include(wrong.stderr, '"zombie"')

      const { url } = yield* service
      const env = yield* environment
      const onTerminal = (drill: string, before = "") =>
        Effect.callback<string>((resume) => {
          const command = `${before} '${process.execPath}' '${Path.join(root, "src/paid-once.js")}' drill ${drill} --url ${url}`
          execFile(
            "script",
            ["-qec", `stty cols 100; ${command}`, "/dev/null"],
            { env: { PATH: process.env["PATH"], ...plantedEnv(), ...env }, timeout: 100_000 },
            (_, stdout) => resume(Effect.succeed(stdout))
          )
        })
      // It waits until a frozen dispatcher has lost its lanes. Others may find at their first look what they would wait for.
      const coloured = yield* onTerminal("zombie")
      assert.include(coloured, "\u001B[31m✗ break:\u001B[0m")
      assert.include(coloured, "… waiting for ")
      const plain = yield* onTerminal("lost-ack", "NO_COLOR=1")
      for (const colour of ["31m", "32m", "33m", "2m"]) assert.notInclude(plain, `\u001B[${colour}`)
      assert.include(plain, "✗ break:")
      assert.include(plain, "Nothing was lost, and nothing was applied twice.")
    }).pipe(Effect.scoped, Effect.provide(world)),
  200_000
)

it.live(
  "on the service's own Postgres, where it owns no table, the drills are the owner, and a dispatcher of theirs joins the server",
  () =>
    Effect.gen(function* () {
      const directory = yield* TestDatabase.dataDirectory
      const env = { DATA_DIRECTORY: directory, PORT: "0", LOG_LEVEL: "Warn" }
      const { url } = yield* ServiceProcess.start({ env: { ...env, FAULTS: "on" } })
      const drilled = commandOf("drill", Effect.succeed(env), 200_000)
      for (const name of ["poison", "zombie"]) {
        const { code, stderr, stdout } = yield* drilled(name, "--url", url!)
        assert.strictEqual(code, 0, `${stdout}${stderr}`)
        assert.include(stdout, "Nothing was lost, and nothing was applied twice.")
      }
    }).pipe(Effect.scoped),
  300_000
)
