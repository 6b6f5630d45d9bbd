/** An event that nobody can tell again: what a repair's refusal says is done, and the books agree. */
import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { SettlePayment } from "../../../src/application/SettlePayment.ts"
import { HoldRetries } from "../../../src/inbox/holds/HoldRetries.ts"
import { bind } from "../../../src/inbox/Subscriber.ts"
import { InboxDeadLetters } from "../../../src/operations/InboxDeadLetters.ts"
import * as DirectWakeups from "../../../src/platform/DirectWakeups.ts"
import { cancel, pay, place, recover } from "../World.ts"
import { brokenIn, deliver, look, paid, refundAtGateway, repair, subscribers, test } from "./Books.ts"
import { asked, cancelledInFlight, capture } from "./cases/Steps.ts"

/** `paid-once inbox skip CONSUMER EVENT`, for each event that `paid-once inbox list` names as a gap. */
const skipAll = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const letters = yield* InboxDeadLetters
  const { retryHeld } = yield* HoldRetries
  for (const subscriber of subscribers) {
    const held = yield* sql<{ readonly id: string }>`
      SELECT event_id AS id FROM inbox_holds WHERE consumer_name = ${subscriber.name} AND status = 'gap'`
    assert.strictEqual(held.length, 1, subscriber.name)
    yield* letters.skip(subscriber.name, held[0]!.id, { actor: "ada", reason: "its event is lost" })
    yield* retryHeld(bind(subscriber as never, (yield* Effect.context<never>()) as never))
  }
}).pipe(Effect.provide(InboxDeadLetters.layer.pipe(Layer.provide(DirectWakeups.layer))))

const lost = /^(event-missing) .*paid-once inbox skip CONSUMER EVENT/
const refusals = Effect.map(repair, ({ items }) =>
  items.flatMap(({ repair, rule }) => (repair?.outcome === "manual" ? [`${rule} ${repair.why}`] : []))
)
const saysSkip = Effect.gen(function* () {
  const [refusal, ...more] = yield* refusals
  assert.match(refusal ?? "nothing was refused", lost)
  assert.deepStrictEqual(more, [])
})
const agreesAfterSkip = Effect.gen(function* () {
  yield* deliver
  yield* skipAll
  yield* repair
  assert.deepStrictEqual(brokenIn(yield* look), {})
})

test(
  "OrderPlaced is lost before a later event, or with it",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    for (const isBoth of [false, true]) {
      const orderId = yield* place
      if (!isBoth) yield* sql`DELETE FROM outbox_events`
      yield* pay(orderId, orderId)
      if (isBoth) yield* sql`DELETE FROM outbox_events`
      yield* saysSkip
      yield* agreesAfterSkip
    }
  })
)

test(
  "the event of a declined payment is lost",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const orderId = yield* place
    yield* deliver
    yield* pay(orderId, "declined", "pm_declined")
    yield* sql`DELETE FROM outbox_events`
    yield* saysSkip
    yield* pay(orderId, "again")
    yield* agreesAfterSkip
  })
)

/** An order whose first payment was declined, and whose event PaymentDeclined is lost. */
const lostDecline = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const orderId = yield* place
  yield* deliver
  const { paymentId } = yield* pay(orderId, "first", "pm_declined")
  yield* sql`DELETE FROM outbox_events`
  return { orderId, paymentId }
})

/** Nothing is broken any more but the lost event, which a person has to skip. */
const onlyTheEventIsMissing = Effect.gen(function* () {
  yield* repair
  yield* deliver
  yield* repair
  const { "event-missing": _, ...others } = brokenIn(yield* look)
  assert.deepStrictEqual(others, {})
})

test(
  "an event that can't be told holds up no money: the payment after the declined one is taken up, or recorded",
  Effect.gen(function* () {
    for (const status of ["charging", "manual"] as const) {
      const { orderId } = yield* lostDecline
      yield* asked(orderId, yield* capture(orderId, status))
      yield* onlyTheEventIsMissing
    }
  })
)

test(
  "the event of a declined payment is lost, and the gateway has captured it after all: its money goes back",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paymentId } = yield* lostDecline
    yield* sql`UPDATE sandbox_gateway.charges SET status = 'captured', decline_reason = NULL WHERE idempotency_key = ${paymentId}`
    yield* onlyTheEventIsMissing
    const [row] = yield* sql`SELECT status FROM payments WHERE id = ${paymentId}::uuid`
    assert.deepStrictEqual(row, { status: "refunding" })
  })
)

test(
  "the archive has forgotten a sale, its cursors are lost, and a person has refunded it at the gateway",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paymentId } = yield* paid
    yield* deliver
    yield* sql`DELETE FROM event_log`
    yield* sql`INSERT INTO retention (table_name, forgotten_before) VALUES ('event_log', clock_now())`
    yield* sql`DELETE FROM consumer_cursors`
    yield* refundAtGateway(paymentId, "re_1", 100)
    yield* repair
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

test(
  "OrderCancelled is lost, and the request of the payment that was declined before has lost its answer",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const orderId = yield* place
    yield* pay(orderId, "declined", "pm_declined")
    yield* deliver
    yield* cancel(orderId)
    yield* sql`DELETE FROM outbox_events`
    yield* sql`UPDATE idempotency_keys SET response_status = NULL, response_body = NULL`
    yield* repair
    yield* deliver
    assert.deepStrictEqual(brokenIn(yield* look), {})
  })
)

for (const status of ["charging", "refunding"] as const) {
  test(
    `OrderCancelled is lost, and so is the recovery of a payment that is ${status}: with the payment at manual a person gets out`,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { paymentId } = yield* cancelledInFlight("error-after")
      if (status === "refunding") yield* recover(paymentId)
      yield* sql`DELETE FROM outbox_events`
      yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'payment.recover'`
      const [recovery, event, ...more] = yield* refusals
      assert.match(recovery ?? "", /^recovery-missing its event of version 2 is missing/)
      assert.match(
        event ?? "",
        /^event-missing .* that recovery-missing names, too, once psql has set its status to manual/
      )
      assert.deepStrictEqual(more, [])
      yield* sql`UPDATE payments SET status = 'manual' WHERE id = ${paymentId}::uuid`
      if (status === "refunding") yield* refundAtGateway(paymentId, "re_1", 100)
      const as = status === "refunding" ? { as: "refunded" as const } : {}
      yield* SettlePayment.use(({ settle }) => settle(paymentId, as, { actor: "ada", reason: "a test" })).pipe(
        Effect.provide(SettlePayment.layer)
      )
      if (status === "charging") yield* recover(paymentId)
      yield* repair
      yield* deliver
      assert.deepStrictEqual(brokenIn(yield* look), {})
    })
  )
}
