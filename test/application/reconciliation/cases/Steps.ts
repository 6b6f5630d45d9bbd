/** Damages that several cases begin with. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { PaymentOutcomes } from "../../../../src/application/PaymentOutcomes.ts"
import type { PaymentId } from "../../../../src/domain/Ids.ts"
import { Transaction } from "../../../../src/platform/Transaction.ts"
import { GatewayServer } from "../../../../src/sandbox/GatewayServer.ts"
import { sendElsewhere } from "../../../http/Service.ts"
import * as Subscribed from "../../../support/Subscribed.ts"
import { cancel, pay, place } from "../../World.ts"
import { chargeAtGateway, deliver } from "../Books.ts"
import type { Break } from "./Case.ts"

/** Retention has dropped what was published of the paid order, its mail's task and its key, and its ledger entry is lost. */
export const forget: Break = ({ paid: { orderId } }, sql) =>
  Effect.gen(function* () {
    yield* sql`DELETE FROM event_log WHERE aggregate_id = ${orderId}`
    yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
    yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%${orderId}%`}`
    yield* sql`DELETE FROM idempotency_keys`
  })

/** The row of the paid order's payment becomes that of the pending or the cancelled order, as `set` says. */
export const moved =
  (to: "pending" | "cancelled", set: string): Break =>
  (books, sql) =>
    sql`UPDATE payments SET order_id = ${books[to]}::uuid, ${sql.literal(set)} WHERE id = ${books.paid.paymentId}::uuid`

/** The type of the order's last archived event is changed, and its entries are lost. */
export const retype =
  (from: "paid" | "refunded", to: string): Break =>
  (books, sql) =>
    Effect.gen(function* () {
      const { orderId } = books[from]
      yield* sql`
        UPDATE event_log AS e SET event_type = ${to} WHERE aggregate_id = ${orderId}
          AND aggregate_version = (SELECT version FROM orders WHERE id = ${orderId}::uuid)`
      yield* sql`DELETE FROM billing_ledger WHERE order_id = ${orderId}::uuid`
    })

/** Archive, marks and cursors have lost the order's last event, which was delivered. */
export const undeliver = (orderId: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [row] = yield* sql<{ readonly id: string; readonly version: number }>`
      DELETE FROM event_log AS e USING orders AS o
      WHERE e.aggregate_id = o.id::text AND e.aggregate_version = o.version AND o.id = ${orderId}::uuid
      RETURNING e.event_id::text AS id, o.version`
    const { id, version } = row!
    yield* sql`DELETE FROM processed_events WHERE event_id = ${id}::uuid`
    yield* sql`DELETE FROM consumer_cursors WHERE aggregate_id = ${orderId} AND version <= 1`
    yield* sql`UPDATE consumer_cursors SET version = version - 1 WHERE aggregate_id = ${orderId} AND version > 1`
    return { id, version }
  })

export const undelivered =
  (from: "pending" | "cancelled" | "paid" | "refunded"): Break =>
  (books) => {
    const one = books[from]
    return undeliver(typeof one === "string" ? one : one.orderId)
  }

/** The ledger's entry of the last movement is lost, too. */
export const andTheEntry =
  (from: "paid" | "refunded"): Break =>
  (books, sql) =>
    Effect.gen(function* () {
      const { id } = yield* undeliver(books[from].orderId)
      yield* sql`DELETE FROM billing_ledger WHERE event_id = ${id}::uuid`
    })

/** A payment of the order that the gateway has captured, as a late capture leaves it. `status` is what its row says. */
export const capture = (orderId: string, status: "charging" | "manual" | "captured" | "refunded") =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const id = Subscribed.newId()
    const captured = status === "charging" || status === "manual" ? 0 : 100
    const refunded = status === "refunded" ? 100 : 0
    yield* sql`
      INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, captured_minor, captured_at, refunded_minor, refund_begun_at,
                            leased_until, created_at, updated_at)
      SELECT ${id}::uuid, id, ${status}, 'pm_ok', 100, 'EUR', ${captured}::int8, CASE WHEN ${captured}::int8 > 0 THEN clock_now() END, ${refunded}::int8,
             CASE WHEN ${refunded}::int8 > 0 THEN clock_now() END, clock_now() - interval '1 day', clock_now(), clock_now()
      FROM orders WHERE id = ${orderId}::uuid`
    yield* chargeAtGateway(id, 100)
    return id
  })

/** The key of the request that asked for the payment, without an answer. */
export const asked = (orderId: string, paymentId: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`
      INSERT INTO idempotency_keys (method, path, idempotency_key, body_hash, subject_id, created_at)
      VALUES ('POST', ${`/orders/${orderId}/pay`}, ${paymentId}, sha256('body'), ${paymentId}::uuid, clock_now())`
  )

const gatewayBehaves = (behaviour: object) =>
  Effect.flatMap(GatewayServer, ({ url }) => sendElsewhere(`${url}/behaviour`, { method: "PUT", body: behaviour }))

/** An order that was paid without an answer. The gateway has captured it all the same, or never heard of it. */
export const inFlight = Effect.fnUntraced(function* (mode: "error-after" | "error") {
  const sql = yield* SqlClient.SqlClient
  const orderId = yield* place
  yield* deliver
  yield* gatewayBehaves({ mode, times: 1 })
  const { paymentId } = yield* pay(orderId, orderId)
  yield* gatewayBehaves({ mode: "normal" })
  yield* sql`UPDATE payments SET leased_until = clock_now() - interval '1 day' WHERE id = ${paymentId}::uuid`
  return { orderId, paymentId }
})

/** The same order, cancelled then. */
export const cancelledInFlight = (mode: "error-after" | "error") =>
  Effect.tap(inFlight(mode), ({ orderId }) => cancel(orderId))

/** The gateway reports that the payment was declined, so long after the order's last change. */
export const declineLate = (paymentId: PaymentId, afterSeconds: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const outcomes = yield* PaymentOutcomes
    yield* Transaction.run(outcomes.charged(paymentId, { _tag: "Declined", reason: "no funds" }))
    yield* sql`UPDATE payments SET updated_at = updated_at + ${afterSeconds}::int4 * interval '1 second' WHERE id = ${paymentId}::uuid`
  })
