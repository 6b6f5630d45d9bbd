/** The lists of orders by a status that is not stored: they read the payments under way, beside 100,000 orders that are paid or wait. */
import { assert } from "@effect/vitest"
import { Effect, Option } from "effect"
import { SqlClient } from "effect/sql"
import { Orders } from "../../src/application/Orders.ts"
import type { OrderId } from "../../src/domain/Ids.ts"
import type { OrderStatus } from "../../src/domain/Order.ts"
import { rowsVisited } from "../support/Planned.ts"
import { silence } from "../support/ScriptedGateway.ts"
import { idAt } from "../support/SqlIds.ts"
import { pay, place, refund, test } from "./World.ts"

/** Every second one is paid. */
const manyOrders = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    INSERT INTO orders (id, customer_id, currency, status, version, total_amount_minor, created_at, updated_at)
    SELECT ${sql.literal(idAt("clock_now()"))}, 'ada', 'EUR', (ARRAY['paid', 'pending'])[1 + number % 2], 1, 100, clock_now(), clock_now()
    FROM generate_series(1, 100000) AS number`
  yield* sql`
    INSERT INTO payments (id, order_id, status, payment_method, amount_minor, captured_minor, currency, leased_until, created_at, updated_at)
    SELECT ${sql.literal(idAt("clock_now()"))}, id, 'captured', 'pm_ok', 100, 100, 'EUR', clock_now(), clock_now(), clock_now()
    FROM orders WHERE status = 'paid' ON CONFLICT DO NOTHING`
  yield* sql`ANALYZE orders`
  yield* sql`ANALYZE payments`
})

const list = (status: OrderStatus, cursor?: OrderId) =>
  Orders.use((orders) => orders.list({ status: Option.some(status), cursor: Option.fromUndefinedOr(cursor), limit: 2 }))

test("the lists of paying and of refunding orders read the payments under way, and no other order", (gateway) =>
  Effect.gen(function* () {
    const paying: Array<OrderId> = []
    const refunding: Array<OrderId> = []
    for (let number = 0; number < 3; number++) {
      const open = yield* place
      gateway.next("before charge", silence)
      yield* pay(open, "k")
      paying.unshift(open)
      const paid = yield* place
      yield* pay(paid, "k")
      yield* refund(paid)
      refunding.unshift(paid)
      if (number === 1) yield* manyOrders
    }
    for (const [status, ids] of [
      ["paying", paying],
      ["refunding", refunding]
    ] as const) {
      const first = yield* list(status)
      assert.deepStrictEqual(
        first.items.map((order) => [order.id, order.status]),
        ids.slice(0, 2).map((id) => [id, status])
      )
      assert.strictEqual(first.nextCursor, ids[1])
      const second = yield* list(status, ids[1])
      assert.deepStrictEqual(
        second.items.map(({ id }) => id),
        ids.slice(2)
      )
      assert.isNull(second.nextCursor)
      for (const cursor of [undefined, ids[1]]) {
        // Six payments are under way, of as many orders.
        assert.isAtMost(yield* rowsVisited(list(status, cursor)), 12)
      }
    }
  }))
