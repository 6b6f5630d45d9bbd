/** Sums through /admin: they add up what is stored, and tell a difference that somebody has made by hand. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { ask, service } from "./Admin.ts"
import { newOrder, send } from "./Service.ts"

const total = 2 * 1_250 + 99

/** An order of this currency that is paid. Answers with its id. */
const paidOrder = Effect.fnUntraced(function* (currency: string) {
  const { url } = yield* BoundAddress
  const { json: order } = yield* send(`${url}/orders`, { body: { ...newOrder, currency } })
  const paid = yield* send(`${url}/orders/${order.id}/pay`, {
    body: { paymentMethod: "pm_ok" },
    headers: { "idempotency-key": order.id }
  })
  assert.strictEqual(paid.status, 200, paid.text)
  return String(order.id)
})

const minor = (paid: number, captured: number, booked: number) => ({
  paidMinor: String(paid),
  capturedMinor: String(captured),
  bookedMinor: String(booked)
})

layer(service, { excludeTestServices: true })((it) => {
  it.effect("sums that agree, a lost event, money that was captured and not ordered, and a forged booking", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const none = yield* ask("/sums")
      assert.strictEqual(none.status, 200)
      assert.deepInclude(none.json, { orders: 0, areAll: true, changes: 0, published: 0, waiting: 0, books: [] })

      const [euros, dollars] = [yield* paidOrder("EUR"), yield* paidOrder("USD")]
      const { json: agreeing } = yield* ask("/sums?sinceSeconds=600")
      assert.deepInclude(agreeing, {
        orders: 2,
        changes: 4,
        waiting: 4,
        published: 0,
        dead: 0,
        discarded: 0,
        underWay: 0
      })
      assert.deepStrictEqual(agreeing.books, [
        { currency: "EUR", ...minor(total, total, 0) },
        { currency: "USD", ...minor(total, total, 0) }
      ])
      assert.isNotEmpty(agreeing.effects)
      for (const { applied } of agreeing.effects) assert.strictEqual(applied, 0)

      yield* sql`DELETE FROM outbox_events WHERE aggregate_id = ${euros} AND event_type = 'OrderPaid'`
      const { json: lost } = yield* ask("/sums")
      assert.deepInclude(lost, { changes: 4, waiting: 3, published: 0, dead: 0, discarded: 0 })

      yield* sql`UPDATE payments SET amount_minor = amount_minor - 1, captured_minor = captured_minor - 1 WHERE order_id = ${dollars}::uuid`
      yield* sql`
        INSERT INTO billing_ledger SELECT event_id, aggregate_id::uuid, aggregate_id::uuid, 'gateway', 'sales', 7, 'USD', occurred_at, occurred_at
        FROM outbox_events WHERE aggregate_id = ${dollars} AND event_type = 'OrderPaid'`
      const { json: differing } = yield* ask("/sums")
      assert.deepStrictEqual(differing.books, [
        { currency: "EUR", ...minor(total, total, 0) },
        { currency: "USD", ...minor(total, total - 1, 7) }
      ])
    })
  )

  it.effect("a time that is none, and a filter that is unknown, are refused with what is wrong", () =>
    Effect.gen(function* () {
      for (const [query, pointer] of [
        ["sinceSeconds=soon", "/sinceSeconds"],
        ["sinceSeconds=-1", "/sinceSeconds"],
        ["since=60", "/since"]
      ] as const) {
        const { json, status } = yield* ask(`/sums?${query}`)
        assert.strictEqual(status, 400, query)
        assert.deepInclude(json.errors[0], { in: "query", pointer }, query)
      }
    })
  )
})
