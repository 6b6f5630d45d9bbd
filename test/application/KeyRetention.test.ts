/** The limits of retention: of a request's key, and the first half of the retention of the gateway's keys. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { mayRepeat } from "../../src/application/Gateway.ts"
import * as Idempotency from "../../src/application/Idempotency.ts"
import { RefundOrder } from "../../src/application/RefundOrder.ts"
import { PaymentStatus } from "../../src/domain/Payment.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { keyRetentionMillis, pay, place, test } from "./World.ts"

const expired = Effect.all([Idempotency.dropExpired({ dryRun: true }), Idempotency.dropExpired()])

test("a key is kept for 7 days less a minute, and gone a minute after them", () =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    yield* pay(yield* place, "k")
    yield* DatabaseClock.advance("6 days 23 hours 59 minutes")
    assert.deepStrictEqual(yield* expired, [0, 0])
    yield* DatabaseClock.advance("2 minutes")
    assert.deepStrictEqual(yield* expired, [1, 1])
  }))

test("a retention of 0 days keeps a key", () =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    yield* pay(yield* place, "k")
    yield* DatabaseClock.advance("400 days")
    const keepsAll = Layer.succeed(Idempotency.IdempotencySettings, { retentionDays: 0 })
    assert.deepStrictEqual(yield* Effect.provide(expired, keepsAll), [0, 0])
  }))

test("an old key is kept while its payment is charging, refunding or manual", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* DatabaseClock.install
    yield* pay(yield* place, "k")
    yield* DatabaseClock.advance("8 days")
    for (const status of PaymentStatus.literals) {
      yield* sql`
        UPDATE payments SET status = ${status}, decline_reason = CASE WHEN ${status} = 'declined' THEN 'a test' END,
          captured_minor = CASE WHEN ${status} IN ('captured', 'refunding', 'refunded') THEN amount_minor ELSE 0 END,
          refunded_minor = CASE WHEN ${status} = 'refunded' THEN amount_minor ELSE 0 END,
          refund_begun_at = CASE WHEN ${status} IN ('refunding', 'refunded') THEN clock_now() END`
      const isOpen = status === "charging" || status === "refunding" || status === "manual"
      assert.strictEqual(yield* Idempotency.dropExpired({ dryRun: true }), isOpen ? 0 : 1, status)
      // Rolled back, for the next state.
      const dropped = yield* Effect.flip(sql.withTransaction(Effect.flip(Idempotency.dropExpired())))
      assert.strictEqual(dropped, isOpen ? 0 : 1, status)
    }
  }))

test("an old key of a refund is kept while the money is on its way back", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* DatabaseClock.install
    const orderId = yield* place
    yield* pay(orderId, "k")
    yield* RefundOrder.use(({ refund }) =>
      refund(orderId, {
        caller: "shop",
        method: "POST",
        path: `/orders/${orderId}/refund`,
        key: Idempotency.IdempotencyKey.make("r"),
        body: null
      })
    )
    yield* DatabaseClock.advance("8 days")
    assert.deepStrictEqual(yield* expired, [0, 0])
    yield* sql`UPDATE payments SET status = 'refunded', refunded_minor = amount_minor`
    assert.deepStrictEqual(yield* expired, [2, 2])
  }))

it("the gateway's key may be used again in the first half of its retention, and not from then on", () => {
  assert.isTrue(mayRepeat(0, keyRetentionMillis))
  assert.isTrue(mayRepeat(keyRetentionMillis / 2 - 1, keyRetentionMillis))
  assert.isFalse(mayRepeat(keyRetentionMillis / 2, keyRetentionMillis))
  assert.isFalse(mayRepeat(keyRetentionMillis, keyRetentionMillis))
})
