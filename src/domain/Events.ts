/**
 * The events of an order, by type and schema version: the contract with the readers of the topic.
 *
 * Each version's JSON Schema is a file under `schemas/`. A change that a reader of the version would notice needs a new version
 * (test/domain/EventSchemas.test.ts).
 */
import { Schema } from "effect"
import { CustomerId, PaymentId } from "./Ids.ts"
import { Money } from "./Money.ts"
import { OrderLine } from "./OrderLines.ts"

export const OrderPlaced = Schema.TaggedStruct("OrderPlaced", {
  data: Schema.Struct({ customerId: CustomerId, lines: Schema.Array(OrderLine), total: Money })
})

export const PaymentDeclined = Schema.TaggedStruct("PaymentDeclined", {
  data: Schema.Struct({ paymentId: PaymentId, reason: Schema.String })
})

export const OrderPaid = Schema.TaggedStruct("OrderPaid", {
  data: Schema.Struct({ customerId: CustomerId, paymentId: PaymentId, amount: Money })
})

export const OrderRefunded = Schema.TaggedStruct("OrderRefunded", {
  data: Schema.Struct({ customerId: CustomerId, paymentId: PaymentId, amount: Money })
})

export const OrderCancelled = Schema.TaggedStruct("OrderCancelled", {
  data: Schema.Struct({ lines: Schema.Array(OrderLine) })
})

/** An event of an order. `_tag` is its type on the wire. */
export const OrderEvent = Schema.Union([OrderPlaced, PaymentDeclined, OrderPaid, OrderRefunded, OrderCancelled])
export type OrderEvent = typeof OrderEvent.Type

/** The schema version that is written today, by event type. */
export const schemaVersions: Readonly<Record<OrderEvent["_tag"], number>> = {
  OrderPlaced: 1,
  PaymentDeclined: 1,
  OrderPaid: 1,
  OrderRefunded: 1,
  OrderCancelled: 1
}

/** Every event type. */
export const eventTypes: ReadonlyArray<string> = Object.keys(schemaVersions)

/** The topic of an order's events, and the aggregate type they carry. */
export const ordersTopic = "orders"
export const orderAggregate = "Order"
