import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { inventory } from "../../../src/application/subscribers/Inventory.ts"
import { ApplySlice } from "../../../src/inbox/ApplySlice.ts"
import type { Subscriber } from "../../../src/inbox/Subscriber.ts"
import * as Subscribed from "../../support/Subscribed.ts"

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
  it.effect("a sku that has run out is stored as out of stock; an unlisted sku is unlimited", () =>
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

  it.effect("a cancelled and a refunded order release what they reserved, once, and nothing else", () =>
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

  it.effect("a reservation from before its sku was listed does not add to the stock when it is released", () =>
    Effect.gen(function* () {
      const order = Subscribed.order({ lines: [line("vase", 4)] })
      yield* Subscribed.apply(inventory, order.placed())
      yield* stock("vase", 10)
      yield* Subscribed.apply(inventory, order.cancelled())
      assert.strictEqual(yield* available("vase"), 10)
    })
  )

  it.effect(
    "partitions that reserve and release the same skus in opposite orders never deadlock, and the sum is right",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { run } = yield* ApplySlice
        for (const sku of ["x", "y", "z"]) yield* stock(sku, 100_000)
        const slices = 40
        let runs = 0
        const counted: Subscriber = {
          ...inventory,
          handleMany: (events) => {
            runs += 1
            return inventory.handleMany?.(events) ?? Effect.die("inventory applies many events at once")
          }
        }
        yield* Effect.forEach(
          Array.from({ length: slices }, (_, partition) => partition),
          (partition) => {
            const skus = partition % 2 === 0 ? ["x", "y", "z"] : ["z", "y", "x"]
            const events = Array.from({ length: 20 }, (_, index) => {
              const order = Subscribed.order({ lines: [line(skus[index % 3]!, 1), line(skus[(index + 1) % 3]!, 2)] })
              return index % 2 === 0 ? [order.placed()] : [order.placed(), order.cancelled()]
            }).flat()
            return run(counted, Subscribed.sliceOf(events, partition))
          },
          { concurrency: 10 }
        )
        const [row] = yield* sql<{ readonly missing: number; readonly taken: number }>`
        SELECT (SELECT sum(100000 - available) FROM inventory_stock WHERE sku IN ('x', 'y', 'z'))::int4 AS missing,
               (SELECT sum(quantity) FROM inventory_reservations WHERE sku IN ('x', 'y', 'z') AND status = 'reserved')::int4 AS taken`
        assert.deepStrictEqual(row, { missing: slices * 10 * 3, taken: slices * 10 * 3 })
        // A slice that loses a deadlock runs again; none did.
        assert.strictEqual(runs, slices)
      })
  )
})
