/** Books that agree, of real use cases, consumers and the sandbox gateway, for tests that make them differ. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { it } from "@effect/vitest"
import { Effect, Layer, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { CancelOrder } from "../../../src/application/CancelOrder.ts"
import { Gateway, GatewaySettings } from "../../../src/application/Gateway.ts"
import { GatewayLedger } from "../../../src/application/GatewayLedger.ts"
import { Idempotency } from "../../../src/application/Idempotency.ts"
import { Orders } from "../../../src/application/Orders.ts"
import { PaymentOutcomes } from "../../../src/application/PaymentOutcomes.ts"
import { Payments } from "../../../src/application/Payments.ts"
import { PayOrder } from "../../../src/application/PayOrder.ts"
import { PlaceOrder } from "../../../src/application/PlaceOrder.ts"
import { Reconciliation, ReconciliationSettings } from "../../../src/application/reconciliation/Reconciliation.ts"
import { ReconciliationRuns } from "../../../src/application/reconciliation/ReconciliationRuns.ts"
import { TopicHistory } from "../../../src/application/reconciliation/TopicHistory.ts"
import { RecoverPayment } from "../../../src/application/RecoverPayment.ts"
import { RefundOrder } from "../../../src/application/RefundOrder.ts"
import { analytics } from "../../../src/application/subscribers/Analytics.ts"
import { billing } from "../../../src/application/subscribers/Billing.ts"
import { inventory } from "../../../src/application/subscribers/Inventory.ts"
import { receipts } from "../../../src/application/subscribers/Receipts.ts"
import { Subscribers } from "../../../src/application/Timeline.ts"
import type { Envelope } from "../../../src/brokers/Envelope.ts"
import type { OrderId, PaymentId } from "../../../src/domain/Ids.ts"
import * as FaultInjection from "../../../src/platform/FaultInjection.ts"
import { isoTime } from "../../../src/platform/IsoTime.ts"
import { GatewayServer } from "../../../src/sandbox/GatewayServer.ts"
import { Tasks } from "../../../src/tasks/Tasks.ts"
import { TaskWakeup } from "../../../src/tasks/TaskWakeup.ts"
import { gateway } from "../../http/Service.ts"
import * as Subscribed from "../../support/Subscribed.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"
import { cancel, pay, place, recover, refund } from "../World.ts"

const gatewaySettings = Layer.effect(
  GatewaySettings,
  GatewayServer.useSync(({ url }) => ({ url, timeoutMillis: 10_000, keyRetentionMillis: 86_400_000 }))
)

export const subscribers = [receipts, inventory, billing, analytics]

export const layer = Layer.mergeAll(
  PlaceOrder.layer,
  PayOrder.layer,
  RecoverPayment.layer,
  CancelOrder.layer,
  RefundOrder.layer,
  Reconciliation.layer
).pipe(
  Layer.provideMerge(Layer.merge(PaymentOutcomes.layer, ReconciliationRuns.layer)),
  Layer.provideMerge(
    Layer.mergeAll(
      Orders.layer,
      Payments.layer,
      Idempotency.layer,
      Tasks.layer,
      Gateway.layerHttp,
      GatewayLedger.layerHttp,
      Layer.succeed(Subscribers, { names: subscribers.map(({ name }) => name) }),
      Subscribed.inbox
    )
  ),
  Layer.provideMerge(TopicHistory.layerEmbedded),
  Layer.provide(Layer.succeed(ReconciliationSettings, { graceMillis: 1 })),
  Layer.provideMerge(Layer.merge(gatewaySettings, NodeHttpClient.layerUndici)),
  Layer.provideMerge(Layer.merge(gateway, TaskWakeup.layer)),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(Layer.mergeAll(TestProcess.quiet, FaultInjection.layer()))
)

/** A test on a database of its own. */
export const test = <A, E>(name: string, body: Effect.Effect<A, E, Layer.Success<typeof layer> | Scope.Scope>) =>
  it.live(name, () => Effect.scoped(Effect.provide(body, layer)))

/** Publishes what is queued, and no consumer reads it. */
export const publish = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    WITH sent AS (DELETE FROM outbox_events RETURNING *)
    INSERT INTO event_log
    SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id, data,
           0, 0, clock_now() FROM sent`
)

/** Publishes what is queued, and applies it by all consumers, as the dispatcher and the consumers do. */
export const deliver = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const sent = yield* sql<{ readonly event: Envelope }>`
    WITH sent AS (DELETE FROM outbox_events RETURNING *),
    logged AS (
      INSERT INTO event_log
      SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id, data,
             0, 0, clock_now() FROM sent
      RETURNING *)
    SELECT json_build_object(
             'eventId', event_id, 'eventType', event_type, 'schemaVersion', schema_version, 'occurredAt', ${sql.literal(isoTime("occurred_at"))},
             'traceId', trace_id, 'aggregateType', aggregate_type, 'aggregateId', aggregate_id, 'aggregateVersion', aggregate_version,
             'data', data) AS event
    FROM logged ORDER BY aggregate_id, aggregate_version`
  const events = sent.map(({ event }) => event)
  if (events.length === 0) return
  for (const subscriber of subscribers) yield* Subscribed.apply(subscriber, ...events)
})

/** A paid order, and its payment. */
export const paid = Effect.gen(function* () {
  const orderId = yield* place
  const { paymentId } = yield* pay(orderId, orderId)
  return { orderId, paymentId }
})

/** Orders that have come to each of their ends, and one that is pending, all delivered. */
export interface AgreeingBooks {
  readonly pending: OrderId
  readonly paid: { readonly orderId: OrderId; readonly paymentId: PaymentId }
  readonly refunded: { readonly orderId: OrderId; readonly paymentId: PaymentId }
  readonly cancelled: OrderId
  readonly declined: OrderId
}
export const agreeing: Effect.Effect<AgreeingBooks, unknown, Layer.Success<typeof layer>> = Effect.gen(function* () {
  const pending = yield* place
  const stays = yield* paid
  const refunded = yield* paid
  yield* recover((yield* refund(refunded.orderId)).paymentId)
  const cancelled = yield* place
  yield* cancel(cancelled)
  const declined = yield* place
  yield* pay(declined, declined, "pm_declined")
  yield* deliver
  return { pending, paid: stays, refunded, cancelled, declined }
})

const operator = { actor: "ada" }

/** Looks, and changes nothing. */
export const look = Reconciliation.use(({ run }) => run(operator))
/** Looks, and repairs. */
export const repair = Reconciliation.use(({ run }) => run({ ...operator, repair: { reason: "a test" } }))

/** The rules that are broken, with their counts. */
export const brokenIn = (report: Effect.Success<typeof look>): Readonly<Record<string, number>> =>
  Object.fromEntries(report.rules.filter(({ count }) => count > 0).map(({ count, rule }) => [rule, count]))

/** The audit's entries of repairs. */
export const repairs = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<{
    readonly actor: string
    readonly reason: string
    readonly subject: string
    readonly rule: string
  }>`
    SELECT actor, reason, subject, after ->> 'rule' AS rule FROM operator_audit WHERE action = 'reconcile' ORDER BY audit_id`
})

/** Inserts a row of the gateway's books. */
export const chargeAtGateway = (key: string, amountMinor: number, status = "captured") =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      sql`
      INSERT INTO sandbox_gateway.charges (id, idempotency_key, amount_minor, currency, payment_method, status, decline_reason, charged_at)
      VALUES (gen_random_uuid(), ${key}, ${amountMinor}::int8, 'EUR', 'pm_ok', ${status}, ${status === "declined" ? "no funds" : null}, clock_now())`
  )
export const refundAtGateway = (chargeKey: string, key: string, amountMinor: number) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      sql`
      INSERT INTO sandbox_gateway.refunds (id, charge_id, idempotency_key, charge_key, amount_minor, currency, refunded_at)
      SELECT gen_random_uuid(), id, ${key}, ${chargeKey}, ${amountMinor}::int8, 'EUR', clock_now()
      FROM sandbox_gateway.charges WHERE idempotency_key = ${chargeKey}`
  )
