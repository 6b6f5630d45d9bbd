/** `paid-once replay …` and the refusals of `paid-once rebuild …`, as an operator runs them, beside a running service. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { send } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const environment = environmentWith({})
const replay = commandOf("replay", environment)
const rebuild = commandOf("rebuild", environment)

it.live("a mail that is lost is asked for again, and one that was sent is not sent twice", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const service = yield* ServiceProcess.start({ env: yield* environment })
    const ids: Array<string> = []
    for (const customerId of ["ada", "grace"]) {
      const { json: order } = yield* send(`${service.url}/orders`, {
        body: { customerId, currency: "EUR", lines: [{ sku: "book", quantity: 1, unitAmountMinor: 2_500 }] }
      })
      yield* send(`${service.url}/orders/${order.id}/pay`, {
        body: { paymentMethod: "pm_ok" },
        headers: { "idempotency-key": customerId }
      })
      ids.push(order.id)
    }
    const sent = Effect.map(
      sql<{ readonly sent: number }>`SELECT count(*)::int4 AS sent FROM mail_deliveries WHERE status = 'sent'`,
      ([row]) => row!.sent
    )
    const untilSent = (mails: number) =>
      eventually(
        `${mails} mails`,
        Effect.map(sent, (count) => count === mails)
      )
    yield* untilSent(2)
    // A backup was restored that did not have the second order's mail.
    yield* sql`
      WITH lost AS (
        DELETE FROM outbox_tasks WHERE task_type = 'email' AND idempotency_key IN (
          SELECT event_id::text FROM event_log WHERE aggregate_id = ${ids[1]!} AND event_type = 'OrderPaid') RETURNING task_id)
      DELETE FROM mail_deliveries WHERE task_id IN (SELECT task_id FROM lost)`
    assert.strictEqual(yield* sent, 1)

    const counted = yield* replay("receipts", "--type", "OrderPaid")
    assert.strictEqual(counted.code, 0, counted.stderr)
    assert.strictEqual(counted.stdout, 'receipts would get 2 events again. --apply --reason "…" hands them over.\n')
    assert.strictEqual((yield* replay("receipts", "--apply")).code, 2)
    const done = yield* replay(
      "receipts",
      "--type",
      "OrderPaid",
      "--apply",
      "--reason",
      "a backup",
      "--by",
      "ada",
      "--json"
    )
    assert.strictEqual(done.code, 0, done.stderr)
    assert.deepInclude(JSON.parse(done.stdout), { consumer: "receipts", dryRun: false, replayed: 2 })
    yield* untilSent(2)
    const mails = yield* sql`SELECT 1 AS one FROM outbox_tasks WHERE task_type = 'email'`
    assert.strictEqual(mails.length, 2)
    const [entry] = yield* sql`SELECT actor, action, reason FROM operator_audit`
    assert.deepStrictEqual(entry, { actor: "ada", action: "replay", reason: "a backup" })
    const alone = yield* replay("receipts", "--aggregate", ids[0]!, "--from", "2020-01-01T00:00:00Z", "--json")
    assert.deepInclude(JSON.parse(alone.stdout), { replayed: 2, dryRun: true })

    const [from, to] = ["2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z"]
    const reversed = yield* replay("receipts", "--from", from, "--to", to)
    assert.strictEqual(reversed.code, 2)
    assert.include(reversed.stderr, "--from is not before --to")
    const misspelt = yield* replay("receipts", "--aggregate", "0rder", "--type", "OrderPaid", "--from", to)
    assert.deepInclude(misspelt, { code: 1, stdout: "" })
    assert.include(
      misspelt.stderr,
      "receipts gets no event again: the archive has no event of topic orders of type OrderPaid of the aggregate 0rder from 2026-03-01T00:00:00.000Z on"
    )

    for (const [consumer, why] of [
      ["billing", "its effect would happen twice"],
      ["inventory", "its effect would happen twice"],
      ["analytics", "paid-once rebuild analytics"]
    ] as const) {
      const refused = yield* replay(consumer)
      assert.strictEqual(refused.code, 1)
      assert.include(refused.stderr, why)
    }
    assert.strictEqual((yield* replay("nobody")).code, 2)
    assert.strictEqual((yield* rebuild("billing", "--reason", "a test")).code, 2)
    const silent = yield* rebuild("analytics")
    assert.strictEqual(silent.code, 2)
    assert.include(silent.stderr, "--reason")
    yield* eventually(
      "analytics to have applied both orders",
      Effect.map(
        sql`SELECT 1 AS one FROM consumer_cursors WHERE consumer_name = 'analytics' AND version = 2`,
        ({ length }) => length === 2
      )
    )
    yield* sql`DELETE FROM event_log WHERE aggregate_id = ${ids[0]!}`
    const missing = yield* rebuild("analytics", "--reason", "a test")
    assert.strictEqual(missing.code, 1)
    assert.include(
      missing.stderr,
      `analytics can't be rebuilt: it has applied events that the archive does not have, Order ${ids[0]} version 1`
    )
  }).pipe(
    Effect.scoped,
    Effect.provide(Layer.merge(TestDatabase.layerPool, Layer.provideMerge(Directory.layer, TestDatabase.layerPool)))
  )
)
