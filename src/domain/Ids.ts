/** The ids of the domain. Each is a brand: one can't stand in for another. */
import { Schema } from "effect"
import { shortText } from "./Text.ts"

/** An order's id: a UUID version 7, whose time is the database's. */
export const OrderId = Schema.String.check(Schema.isUUID(7)).pipe(Schema.brand("OrderId"))
export type OrderId = typeof OrderId.Type

/** A payment's id: a UUID version 7, and the gateway's idempotency key. */
export const PaymentId = Schema.String.check(Schema.isUUID(7)).pipe(Schema.brand("PaymentId"))
export type PaymentId = typeof PaymentId.Type

/** The customer, by the id that the caller's own system gives. 200 characters hold any id and no essay. */
export const CustomerId = shortText(200).pipe(Schema.brand("CustomerId"))
export type CustomerId = typeof CustomerId.Type
