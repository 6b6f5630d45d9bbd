/** `paid-once reconcile …` as an operator runs it, beside a running service and the sandbox gateway as another company's server. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import { gateway, send, sendElsewhere } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const environment = Effect.flatMap(GatewayServer, ({ url }) =>
  environmentWith({ GATEWAY_URL: url, GATEWAY_WEBHOOK_SECRET: "a-secret-of-two-companies" })
)
const run = commandOf("reconcile", environment)

const world = gateway.pipe(Layer.provideMerge(TestDatabase.layerPool), Layer.provideMerge(Directory.layer))

it.live(
  "books that agree, that differ, that are repaired, and that can't be compared: in words, as JSON, and as exit statuses",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const service = yield* ServiceProcess.start({ env: yield* environment })
      const { json: order } = yield* send(`${service.url}/orders`, {
        body: { customerId: "ada", currency: "EUR", lines: [{ sku: "book", quantity: 1, unitAmountMinor: 2_500 }] }
      })
      yield* send(`${service.url}/orders/${order.id}/pay`, {
        body: { paymentMethod: "pm_ok" },
        headers: { "idempotency-key": "k" }
      })
      const sales = Effect.map(sql`SELECT FROM billing_ledger`, ({ length }) => length)
      yield* eventually(
        "the sale to be booked",
        Effect.map(sales, (count) => count === 1)
      )

      const clean = yield* run()
      assert.strictEqual(clean.code, 0, clean.stderr + clean.stdout)
      assert.match(clean.stdout, /Compared the gateway's ledger \(1\), orders \(1\), .*\n\nAll books agree\.\n$/)
      assert.match(clean.stderr, /the gateway is http:\/\/127\.0\.0\.1:/)

      yield* sql`DELETE FROM billing_ledger`
      const found = yield* run()
      assert.strictEqual(found.code, 1)
      assert.include(
        found.stdout,
        [
          "",
          `Order ${order.id}`,
          "  billing-entry-missing (orders ↔ billing): the ledger shows less, or more, than the customers have paid.",
          "    expected:  a sale in the ledger",
          "    found:     no entry, and billing has gone through the order's events",
          "    --repair:  billing's own handler books the event from the archive",
          "",
          "1 difference.",
          ""
        ].join("\n")
      )
      assert.match(found.stdout, /\n1 difference\.\n$/)

      const silent = yield* run("--repair")
      assert.strictEqual(silent.code, 2)
      assert.include(silent.stderr, "--repair needs --reason")
      assert.strictEqual(yield* sales, 0)
      const idle = yield* run("--reason", "a table was restored")
      assert.strictEqual(idle.code, 2)
      assert.include(idle.stderr, "--reason needs --repair")

      const repaired = yield* run("--repair", "--reason", "a table was restored", "--by", "ada", "--json")
      assert.strictEqual(repaired.code, 0, repaired.stdout)
      const report = JSON.parse(repaired.stdout)
      assert.deepInclude(report, { actor: "ada", differences: 0, repaired: 1 })
      assert.deepStrictEqual(report.items[0].repair, { outcome: "repaired", why: null })
      assert.strictEqual(yield* sales, 1)
      const [entry] = yield* sql`SELECT actor, action, reason, subject_id AS id FROM operator_audit`
      assert.deepStrictEqual(entry, { actor: "ada", action: "reconcile", reason: "a table was restored", id: order.id })

      // The mail's repair waits for the entry, which only a person can mend.
      yield* sql`UPDATE billing_ledger SET amount_minor = 2_400`
      yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email'`
      const refused = yield* run("--repair", "--reason", "a test")
      assert.strictEqual(refused.code, 1)
      assert.strictEqual(refused.stdout.split(`Order ${order.id}\n`).length, 2, "one heading")
      assert.match(
        refused.stdout,
        /mail-missing .*\n {4}expected: {2}a receipt\n {4}found: {5}.*\n {4}refused: {3}it waits for billing-entry-differs of the same order/
      )
      assert.match(
        refused.stdout,
        /billing-entry-differs .*\n {4}payment: .*\n {4}expected: {2}25\.00 EUR of a payment of the order.*\n {4}found: {5}24\.00 EUR .*\n {4}by hand: {3}paid-once events search --order/
      )
      assert.notInclude(refused.stdout, "--repair:")

      yield* sql`UPDATE billing_ledger SET amount_minor = 2_500`
      const mended = yield* run("--repair", "--reason", "a test")
      assert.strictEqual(mended.code, 0, mended.stdout)

      const { url } = yield* GatewayServer
      yield* sendElsewhere(`${url}/behaviour`, { method: "PUT", body: { mode: "down" } })
      const away = yield* run()
      assert.strictEqual(away.code, 1)
      assert.match(
        away.stdout,
        /Not compared: the gateway's ledger can't be read: it answered 503: gateway-charge-unknown, /
      )
      assert.match(away.stdout, /\n\nThe books that were compared agree\.\n$/)

      const { name } = yield* TestDatabase
      yield* TestDatabase.administer(`ALTER DATABASE ${name} SET default_transaction_read_only = on`)
      const unwritten = yield* run()
      assert.strictEqual(unwritten.code, 1)
      assert.match(
        unwritten.stderr,
        /paid-once: the database says: cannot execute .* in a read-only transaction; paid-once doctor/
      )
      assert.notInclude(unwritten.stderr, "    at ")
    }).pipe(Effect.scoped, Effect.provide(world)),
  90_000
)
