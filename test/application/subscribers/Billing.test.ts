import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { billing } from "../../../src/application/subscribers/Billing.ts"
import * as Subscribed from "../../support/Subscribed.ts"

const balances = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    SELECT account, currency, balance_minor::int4 AS balance FROM billing_balances ORDER BY currency, account`
)

const movements = (orderId: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`
      SELECT debit_account AS debit, credit_account AS credit, amount_minor::int4 AS amount FROM billing_ledger
      WHERE order_id = ${orderId}::uuid ORDER BY occurred_at`
  )

layer(Subscribed.layer, { excludeTestServices: true })("billing", (it) => {
  it.effect("a payment and its refund are one movement each, and the books balance after any events", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const kept = Subscribed.order({ lines: [{ sku: "pen", quantity: 3, unitAmountMinor: 99 }] })
      const returned = Subscribed.order({ currency: "JPY" })
      yield* Subscribed.apply(billing, kept.placed(), kept.declined(), kept.paid(), returned.placed(), returned.paid())
      yield* Subscribed.apply(billing, returned.refunded("2026-03-02T00:00:00.000Z"))
      assert.deepStrictEqual(yield* movements(kept.id), [{ debit: "gateway", credit: "sales", amount: 297 }])
      assert.deepStrictEqual(yield* movements(returned.id), [
        { debit: "gateway", credit: "sales", amount: 1_250 },
        { debit: "refunds", credit: "gateway", amount: 1_250 }
      ])
      assert.deepStrictEqual(yield* balances, [
        { account: "gateway", currency: "EUR", balance: 297 },
        { account: "sales", currency: "EUR", balance: -297 },
        { account: "gateway", currency: "JPY", balance: 0 },
        { account: "refunds", currency: "JPY", balance: 1_250 },
        { account: "sales", currency: "JPY", balance: -1_250 }
      ])
      assert.deepStrictEqual(yield* sql`SELECT sum(balance_minor)::int4 AS total FROM billing_balances`, [{ total: 0 }])
    })
  )

  it.effect("a duplicate event, in one slice or later, is booked once", () =>
    Effect.gen(function* () {
      const order = Subscribed.order()
      const events = [order.placed(), order.paid()]
      yield* Subscribed.apply(billing, ...events, ...events)
      yield* Subscribed.apply(billing, ...events)
      assert.strictEqual((yield* movements(order.id)).length, 1)
    })
  )

  it.effect("an order that is cancelled unpaid books nothing", () =>
    Effect.gen(function* () {
      const order = Subscribed.order()
      yield* Subscribed.apply(billing, order.placed(), order.cancelled())
      assert.deepStrictEqual(yield* movements(order.id), [])
    })
  )
})
