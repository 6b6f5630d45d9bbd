import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Ref } from "effect"
import { SqlClient } from "effect/sql"
import { Gateway, GatewaySettings, OutcomeUnknown } from "../../src/application/Gateway.ts"
import { Idempotency, IdempotencyKey } from "../../src/application/Idempotency.ts"
import { Orders } from "../../src/application/Orders.ts"
import { Payments } from "../../src/application/Payments.ts"
import { PayOrder } from "../../src/application/PayOrder.ts"
import { PlaceOrder } from "../../src/application/PlaceOrder.ts"
import { Currency } from "../../src/domain/Money.ts"
import { CustomerId, type OrderId, Sku } from "../../src/domain/Order.ts"
import { PaymentMethod } from "../../src/domain/Payment.ts"
import * as Faults from "../../src/platform/Faults.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** A gateway that counts its calls and the keys it sees, and answers as the test says. */
const calls = Ref.makeUnsafe(0)
const keys = new Set<string>()
let answer: Effect.Effect<{ readonly _tag: "Captured" }, OutcomeUnknown> = Effect.succeed({ _tag: "Captured" })

const gateway = Layer.succeed(Gateway, {
  charge: ({ paymentId }) =>
    Effect.suspend(() => {
      keys.add(paymentId)
      return Effect.andThen(
        Ref.update(calls, (n) => n + 1),
        answer
      )
    })
})

const timeoutMillis = 5_000

const application = Layer.mergeAll(PlaceOrder.layer, PayOrder.layer).pipe(
  Layer.provideMerge(Layer.mergeAll(Orders.layer, Payments.layer, Idempotency.layer, gateway)),
  Layer.provideMerge(Layer.succeed(GatewaySettings, { url: "http://none.invalid", timeoutMillis })),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(Layer.mergeAll(TestProcess.quiet, Faults.layer()))
)

const place = Effect.gen(function* () {
  yield* Ref.set(calls, 0)
  keys.clear()
  answer = Effect.succeed({ _tag: "Captured" })
  const { place } = yield* PlaceOrder
  const placed = yield* place(
    {
      customerId: CustomerId.make("ada"),
      currency: Currency.make("EUR"),
      lines: [{ sku: Sku.make("book"), quantity: 1, unitAmountMinor: 100 }]
    },
    undefined
  )
  return placed.orderId
})

const pay = (orderId: OrderId, key: string) =>
  Effect.flatMap(PayOrder, (service) =>
    service.pay(orderId, PaymentMethod.make("pm_ok"), {
      method: "POST",
      path: `/orders/${orderId}/pay`,
      key: IdempotencyKey.make(key),
      body: { paymentMethod: "pm_ok" }
    })
  )

/** Makes the gateway wait with its answer until `release`; `asked` waits until it has been asked. */
const holdAnswer = Effect.gen(function* () {
  const asked = yield* Deferred.make<void>()
  const release = yield* Deferred.make<void>()
  answer = Effect.andThen(
    Deferred.succeed(asked, undefined),
    Effect.as(Deferred.await(release), { _tag: "Captured" as const })
  )
  return { asked: Deferred.await(asked), release: Deferred.succeed(release, undefined) }
})

/** Puts a clock in the place of this database's that stands where the test sets it. */
const setClockAhead = (millis: number) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    sql.unsafe(
      `CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
       AS 'SELECT clock_timestamp() + interval ''${millis} milliseconds'''`
    )
  )

it.live("twenty equal requests at once ask the gateway once", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer
    const first = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    const others = yield* Effect.forEach(Array.from({ length: 19 }), () => Effect.flip(pay(orderId, "k")), {
      concurrency: "unbounded"
    })
    for (const error of others) assert.strictEqual((error as { readonly _tag: string })._tag, "PaymentInProgress")
    yield* release
    const result = yield* Fiber.join(first)
    assert.deepStrictEqual(yield* pay(orderId, "k"), result)
    assert.strictEqual(yield* Ref.get(calls), 1)
  }).pipe(Effect.provide(application))
)

it.live("another key finds the payment open, and after it the order paid", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer
    const first = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    const open = yield* Effect.flip(pay(orderId, "other"))
    assert.strictEqual((open as { readonly _tag: string })._tag, "PaymentOpen")
    yield* release
    yield* Fiber.join(first)
    const paid = yield* Effect.flip(pay(orderId, "third"))
    assert.strictEqual((paid as { readonly _tag: string })._tag, "OrderStateConflict")
    assert.strictEqual(yield* Ref.get(calls), 1)
  }).pipe(Effect.provide(application))
)

it.live("an unknown outcome is told as such, and the same key asks again with the same gateway key", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    answer = Effect.fail(new OutcomeUnknown({ reason: "no answer" }))
    assert.strictEqual((yield* pay(orderId, "k"))._tag, "Unknown")
    assert.strictEqual((yield* pay(orderId, "k"))._tag, "Unknown")
    answer = Effect.succeed({ _tag: "Captured" })
    const final = yield* pay(orderId, "k")
    assert.strictEqual(final._tag === "Final" ? final.answer.status : final._tag, 200)
    assert.strictEqual(keys.size, 1)
    assert.strictEqual(yield* Ref.get(calls), 3)
  }).pipe(Effect.provide(application))
)

for (const point of ["pay.after-intent", "pay.after-charge", "pay.before-commit"] as const) {
  it.live(`a request that dies ${point} is resumed by the next with its key, once its lease is over`, () =>
    Effect.gen(function* () {
      const orderId = yield* place
      const { set } = yield* Faults.FaultControl
      yield* set(point, { action: "fail", times: 1, delayMillis: 0 })
      yield* Effect.exit(pay(orderId, "k"))
      const early = yield* Effect.flip(pay(orderId, "k"))
      assert.strictEqual((early as { readonly _tag: string })._tag, "PaymentInProgress")
      yield* setClockAhead(timeoutMillis + 60_000)
      const final = yield* pay(orderId, "k")
      assert.strictEqual(final._tag === "Final" ? final.answer.status : final._tag, 200)
      assert.strictEqual(keys.size, 1, "the gateway saw one key")
      const { get } = yield* Orders
      assert.deepInclude(yield* get(orderId), { status: "paid", version: 2 })
    }).pipe(Effect.provide(application))
  )
}

it.live("a client that hangs up changes nothing: the payment is settled all the same", () =>
  Effect.gen(function* () {
    const orderId = yield* place
    const { asked, release } = yield* holdAnswer
    const client = yield* Effect.forkChild(pay(orderId, "k"))
    yield* asked
    yield* Fiber.interrupt(client)
    yield* release
    const { get } = yield* Orders
    yield* Effect.repeat(get(orderId), { until: (order) => order.status === "paid" }).pipe(Effect.timeout("30 seconds"))
    assert.strictEqual(yield* Ref.get(calls), 1)
  }).pipe(Effect.provide(application))
)
