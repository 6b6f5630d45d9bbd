/** The use cases of a payment on a database of their own, with a scripted gateway, and queries for assertions. */
import { it } from "@effect/vitest"
import { Clock, Deferred, Effect, Layer, Redacted, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { CancelOrder } from "../../src/application/CancelOrder.ts"
import { GatewaySettings } from "../../src/application/Gateway.ts"
import { GatewayWebhook, WebhookSettings } from "../../src/application/GatewayWebhook.ts"
import { Idempotency, IdempotencyKey } from "../../src/application/Idempotency.ts"
import { Orders, type OrderView } from "../../src/application/Orders.ts"
import { PaymentOutcomes } from "../../src/application/PaymentOutcomes.ts"
import { PaymentReport } from "../../src/application/views/PaymentReport.ts"
import { Payments } from "../../src/application/Payments.ts"
import { PayOrder } from "../../src/application/PayOrder.ts"
import { PlaceOrder } from "../../src/application/PlaceOrder.ts"
import { RecoverPayment } from "../../src/application/RecoverPayment.ts"
import { RefundOrder } from "../../src/application/RefundOrder.ts"
import { SettlePayment } from "../../src/application/SettlePayment.ts"
import type { Phase } from "../../src/application/tasks/PaymentRecover.ts"
import { CustomerId, type OrderId, PaymentId } from "../../src/domain/Ids.ts"
import { Currency } from "../../src/domain/Money.ts"
import { Sku } from "../../src/domain/OrderLines.ts"
import { PaymentMethod } from "../../src/domain/Payment.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskWakeup } from "../../src/tasks/TaskWakeup.ts"
import { eventually } from "../support/Counters.ts"
import { ScriptedGateway, silence } from "../support/ScriptedGateway.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

export const timeoutMillis = 60_000
export const keyRetentionMillis = 86_400_000

export const webhookSecret = Redacted.make("a-secret-of-two-companies")

export const applicationOver = (gateway: ScriptedGateway) =>
  Layer.mergeAll(
    PlaceOrder.layer,
    PayOrder.layer,
    RecoverPayment.layer,
    CancelOrder.layer,
    RefundOrder.layer,
    SettlePayment.layer,
    PaymentReport.layer,
    GatewayWebhook.layer
  ).pipe(
    Layer.provide(Layer.succeed(WebhookSettings, { secrets: [webhookSecret] })),
    Layer.provideMerge(PaymentOutcomes.layer),
    Layer.provideMerge(Layer.mergeAll(Orders.layer, Payments.layer, Idempotency.layer, Tasks.layer, gateway.layer)),
    Layer.provideMerge(
      Layer.succeed(GatewaySettings, { url: "http://none.invalid", timeoutMillis, keyRetentionMillis })
    ),
    Layer.provideMerge(TaskWakeup.layer),
    Layer.provideMerge(TestProcess.outbox),
    Layer.provideMerge(TestDatabase.layer),
    Layer.provideMerge(Layer.mergeAll(TestProcess.quiet, FaultInjection.layer()))
  )

/** Places an order of one book, and returns the answer. */
export const placed = Effect.gen(function* () {
  const { place } = yield* PlaceOrder
  return yield* place(
    {
      customerId: CustomerId.make("ada"),
      currency: Currency.make("EUR"),
      lines: [{ sku: Sku.make("book"), quantity: 1, unitAmountMinor: 100 }]
    },
    undefined
  )
})

export const place = Effect.map(placed, ({ orderId }) => orderId)

export const pay = (orderId: OrderId, key: string, method = "pm_ok") =>
  Effect.flatMap(PayOrder, (service) =>
    service.pay(orderId, PaymentMethod.make(method), {
      caller: "anonymous",
      method: "POST",
      path: `/orders/${orderId}/pay`,
      key: IdempotencyKey.make(key),
      body: { paymentMethod: method }
    })
  )

/** A payment without an answer of the gateway. */
export const payUnanswered = (gateway: ScriptedGateway, orderId: OrderId, when: "before charge" | "after charge") =>
  Effect.gen(function* () {
    gateway.next(when, silence)
    const result = yield* pay(orderId, "k")
    return result.paymentId
  })

export const cancel = (orderId: OrderId) =>
  Effect.map(
    CancelOrder.use((service) => service.cancel(orderId)),
    ({ body, paymentId }) => ({ view: JSON.parse(body) as OrderView, inFlight: paymentId })
  )
export const refund = (orderId: OrderId) =>
  Effect.map(
    RefundOrder.use((service) => service.refund(orderId)),
    ({ body, paymentId }) => ({ view: JSON.parse(body) as OrderView, paymentId: paymentId! })
  )
/** Runs the recovery of the payment's refund, if it has one, else that of its charge. */
export const recover = (id: PaymentId, isLast = false) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [row] = yield* sql<{ readonly phase: Phase }>`
      SELECT CASE WHEN captured_minor > 0 THEN 'refund' ELSE 'charge' END AS phase FROM payments WHERE id = ${id}::uuid`
    return yield* RecoverPayment.use((service) => service.recover(id, { phase: row?.phase ?? "charge", isLast }))
  })

/** The order's status for readers, and its payments' statuses, the oldest first. */
export const stateOf = (orderId: OrderId) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { status }: { readonly status: string } = yield* Orders.use((orders) => orders.get(orderId))
    const payments = yield* sql<{ readonly status: string }>`
      SELECT status FROM payments WHERE order_id = ${orderId}::uuid ORDER BY id`
    return [status, ...payments.map((payment) => payment.status)]
  })

/** The types of the order's events, in order. */
export const eventsOf = (orderId: OrderId) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly type: string }>`
      SELECT event_type AS type FROM outbox_events WHERE aggregate_id = ${orderId} ORDER BY aggregate_version`
    return rows.map(({ type }) => type)
  })

/** The recovery tasks of the payment by key, with their state. */
export const tasksOf = (id: PaymentId) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly key: string; readonly state: string }>`
      SELECT idempotency_key AS key, state FROM outbox_tasks
      WHERE task_type = 'payment.recover' AND payload ->> 'paymentId' = ${id} ORDER BY idempotency_key`
    return rows.map(({ key, state }) => [key.endsWith("-refund") ? "refund" : "charge", state])
  })

export const paymentOf = (orderId: OrderId) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [row] = yield* sql<{ readonly id: string }>`SELECT id FROM payments WHERE order_id = ${orderId}::uuid`
    return PaymentId.make(row!.id)
  })

/** A test with a gateway, a database and services of its own. */
export const test = <A, E>(
  name: string,
  body: (
    gateway: ScriptedGateway
  ) => Effect.Effect<A, E, Layer.Success<ReturnType<typeof applicationOver>> | Scope.Scope>
) =>
  it.live(name, () => {
    const gateway = new ScriptedGateway()
    return Effect.scoped(Effect.provide(body(gateway), applicationOver(gateway)))
  })

export const tagOf = (error: unknown) => (error as { readonly _tag: string })._tag

/** Holds the gateway's next charge before its answer until `release`; `asked` waits for the charge. */
export const holdAnswer = (gateway: ScriptedGateway) =>
  Effect.gen(function* () {
    const asked = yield* Deferred.make<void>()
    const release = yield* Deferred.make<void>()
    gateway.next("after charge", Effect.andThen(Deferred.succeed(asked, undefined), Deferred.await(release)))
    return { asked: Deferred.await(asked), release: Deferred.succeed(release, undefined) }
  })

export const untilStatus = (orderId: OrderId, status: string) =>
  eventually(
    `order ${orderId} to be ${status}`,
    Effect.map(stateOf(orderId), ([now]) => now === status)
  )

/** A clock that jumps as the test says, as the clock of a frozen process does. */
export const movable = Effect.map(Clock.Clock, (clock) => {
  let addedMillis = 0
  const moved: Clock.Clock = Object.assign(Object.create(clock), {
    currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() + addedMillis
  })
  const freeze = (millis: number) => Effect.sync(() => void (addedMillis += millis))
  return { freeze, moved }
})
