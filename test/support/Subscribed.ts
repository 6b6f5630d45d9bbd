/**
 * Helpers for tests of a subscriber: orders that make events, and {@link apply}, which gives the events to the subscriber through the real
 * inbox, on a real Postgres.
 *
 * ```ts
 * layer(Subscribed.layer)("billing", (it) => {
 *   it.effect("books a paid order", () =>
 *     Effect.gen(function* () {
 *       const order = Subscribed.order()
 *       yield* Subscribed.apply(billing, order.placed(), order.paid())
 *       …
 * ```
 */
import { Array, Effect, Layer } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import { randomUUID } from "node:crypto"
import { totalOf } from "../../src/domain/Money.ts"
import { type OrderEvent, ordersTopic } from "../../src/domain/Events.ts"
import type { BrokerRecord, Slice } from "../../src/brokers/Broker.ts"
import type { Envelope } from "../../src/brokers/Envelope.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import { bind, type Subscriber } from "../../src/inbox/Subscriber.ts"
import * as Deliveries from "./Deliveries.ts"
import { TestDatabase } from "./TestDatabase.ts"

/** The inbox, on the database in the context. */
export const inbox = Deliveries.plainSteps.pipe(Layer.provideMerge(Inbox.layer))

/** The inbox, on a database of the test's own. */
export const layer = inbox.pipe(Layer.provideMerge(TestDatabase.layerPool))

/** A new UUID version 7, as for an event, an order or a payment. */
export const newId = () => {
  const millis = Date.now().toString(16).padStart(12, "0")
  return `${millis.slice(0, 8)}-${millis.slice(8)}-7${randomUUID().slice(15)}`
}

export interface Options {
  readonly customerId?: string
  readonly currency?: string
  readonly lines?: ReadonlyArray<{ readonly sku: string; readonly quantity: number; readonly unitAmountMinor: number }>
}

/** An order whose methods make its events in version order. `at` is when the event happened, in ISO 8601. */
export const order = (options: Options = {}) => {
  const {
    currency = "EUR",
    customerId = "ada",
    lines = [{ sku: "book", quantity: 1, unitAmountMinor: 1_250 }]
  } = options
  const id = newId()
  const paymentId = newId()
  let version = 0
  const event =
    (eventType: OrderEvent["_tag"], data: Envelope["data"]) =>
    (at = "2026-03-01T12:00:00.000Z"): Envelope => ({
      eventId: newId(),
      eventType,
      schemaVersion: 1,
      occurredAt: at,
      traceId: "0".repeat(32),
      aggregateType: "Order",
      aggregateId: id,
      aggregateVersion: ++version,
      data
    })
  const total = totalOf(lines)
  const amount = { amountMinor: total._tag === "Success" ? Number(total.success) : 0, currency }
  return {
    id,
    paymentId,
    amountMinor: amount.amountMinor,
    placed: event("OrderPlaced", { customerId, lines: lines.map((line) => ({ ...line })), total: amount }),
    declined: event("PaymentDeclined", { paymentId, reason: "no funds" }),
    paid: event("OrderPaid", { customerId, paymentId, amount }),
    refunded: event("OrderRefunded", { customerId, paymentId, amount }),
    cancelled: event("OrderCancelled", { lines: lines.map((line) => ({ ...line })) })
  }
}

/** The events as records, as any producer could write them. */
export const recordsOf = (events: ReadonlyArray<Envelope>): NonEmptyReadonlyArray<BrokerRecord> => {
  const [first, ...rest] = events.map((event) => ({
    key: event.aggregateId,
    headers: {},
    value: new TextEncoder().encode(JSON.stringify(event))
  }))
  return [first!, ...rest]
}

/** A slice of the orders topic, as a broker hands it out. Its commit does nothing. */
export const sliceOf = (events: ReadonlyArray<Envelope>, partition = 0): Slice => ({
  topic: ordersTopic,
  partition,
  records: Array.map(recordsOf(events), (record, index) => ({ ...record, offset: BigInt(index) })),
  commit: Effect.void
})

/** Gives the events to the subscriber in one slice, in the real transaction, with the real inbox's marks. */
export const apply = <R = never>(subscriber: Subscriber<R>, ...events: ReadonlyArray<Envelope>) =>
  Effect.gen(function* () {
    const { run } = yield* ApplySlice
    yield* run(bind(subscriber, yield* Effect.context<R>()), sliceOf(events))
  })
