import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { inventory } from "../../src/application/subscribers/Inventory.ts"
import * as Subscribed from "../support/Subscribed.ts"

const stock = Effect.fnUntraced(function* (sku: string, available: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO inventory_stock (sku, available) VALUES (${sku}, ${available})`
})

const available = Effect.fnUntraced(function* (sku: string) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly available: number }>`
    SELECT available::int4 AS available FROM inventory_stock WHERE sku = ${sku}`
  return row?.available
})

const decisions = Effect.fnUntraced(function* (orderId: string) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly sku: string; readonly quantity: number; readonly status: string }>`
    SELECT sku, quantity::int4 AS quantity, status FROM inventory_reservations WHERE order_id = ${orderId}::uuid ORDER BY sku`
  return rows.map(({ quantity, sku, status }) => `${quantity} ${sku} ${status}`)
})

const line = (sku: string, quantity: number) => ({ sku, quantity, unitAmountMinor: 100 })

layer(Subscribed.layer, { excludeTestServices: true })("inventory", (it) => {
  it.effect("what is not there any more is out of stock, as data; what nobody listed is unlimited", () =>
    Effect.gen(function* () {
      yield* stock("lamp", 5)
      const first = Subscribed.order({ lines: [line("lamp", 2), line("lamp", 2), line("air", 1_000_000)] })
      const second = Subscribed.order({ lines: [line("lamp", 2), line("air", 1)] })
      const third = Subscribed.order({ lines: [line("lamp", 1)] })
      yield* Subscribed.apply(inventory, first.placed(), second.placed(), third.placed())
      assert.deepStrictEqual(yield* decisions(first.id), ["1000000 air reserved", "4 lamp reserved"])
      assert.deepStrictEqual(yield* decisions(second.id), ["1 air reserved", "2 lamp out_of_stock"])
      assert.deepStrictEqual(yield* decisions(third.id), ["1 lamp reserved"])
      assert.strictEqual(yield* available("lamp"), 0)
    })
  )

  it.effect("a cancelled and a refunded order give back what they took, once, and nothing that they did not get", () =>
    Effect.gen(function* () {
      yield* stock("cup", 3)
      const cancelled = Subscribed.order({ lines: [line("cup", 2), line("air", 7)] })
      const short = Subscribed.order({ lines: [line("cup", 2)] })
      const refunded = Subscribed.order({ lines: [line("cup", 1)] })
      yield* Subscribed.apply(inventory, cancelled.placed(), short.placed(), refunded.placed(), refunded.paid())
      assert.strictEqual(yield* available("cup"), 0)
      const events = [cancelled.cancelled(), short.cancelled(), refunded.refunded()]
      yield* Subscribed.apply(inventory, ...events)
      yield* Subscribed.apply(inventory, ...events)
      assert.strictEqual(yield* available("cup"), 3)
      assert.deepStrictEqual(yield* decisions(cancelled.id), ["7 air released", "2 cup released"])
      assert.deepStrictEqual(yield* decisions(short.id), ["2 cup out_of_stock"])
      assert.deepStrictEqual(yield* decisions(refunded.id), ["1 cup released"])
    })
  )

  it.effect("what was reserved before its sku was listed does not add to the stock when it comes back", () =>
    Effect.gen(function* () {
      const order = Subscribed.order({ lines: [line("vase", 4)] })
      yield* Subscribed.apply(inventory, order.placed())
      yield* stock("vase", 10)
      yield* Subscribed.apply(inventory, order.cancelled())
      assert.strictEqual(yield* available("vase"), 10)
    })
  )
})
