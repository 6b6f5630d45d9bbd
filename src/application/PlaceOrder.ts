/** Placing an order: the order, its lines and OrderPlaced commit together. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import { type CustomerId, OrderId } from "../domain/Ids.ts"
import { type Currency } from "../domain/Money.ts"
import { place } from "../domain/Order.ts"
import type { OrderLine } from "../domain/OrderLines.ts"
import type { EventRefused } from "../outbox/Outbox.ts"
import { Faults } from "../platform/Faults.ts"
import { Ids } from "../platform/Ids.ts"
import * as SingleStatement from "../platform/SingleStatement.ts"
import * as Traced from "../platform/Traced.ts"
import { Transaction } from "../platform/Transaction.ts"
import { type FinalAnswer, Idempotency, type KeyReused, type KeyedRequest } from "./Idempotency.ts"
import { encodeView, Orders } from "./Orders.ts"

/** A customer's order. Its lines and their total have been checked (`OrderLines`). */
export interface NewOrder {
  readonly customerId: CustomerId
  readonly currency: Currency
  readonly lines: ReadonlyArray<OrderLine>
}

/** The order was placed, by this request or an earlier one with the same key. `body` is the order's JSON, byte for byte the same. */
export interface Placed {
  readonly orderId: OrderId
  readonly body: string
}

export class PlaceOrder extends Context.Service<
  PlaceOrder,
  {
    readonly place: (
      order: NewOrder,
      request: KeyedRequest | undefined
    ) => Effect.Effect<Placed, EventRefused | KeyReused>
  }
>()("paid-once/application/PlaceOrder") {
  static readonly layer: Layer.Layer<PlaceOrder, never, Orders | Idempotency | Ids | PgClient.PgClient> = Layer.effect(
    PlaceOrder,
    Effect.gen(function* () {
      const orders = yield* Orders
      const idempotency = yield* Idempotency
      const database = yield* PgClient.PgClient
      const single = SingleStatement.over(database, yield* Faults)
      const ids = yield* Ids

      const placeAs = Effect.fnUntraced(function* (id: OrderId, order: NewOrder) {
        // The sum was checked when the lines were decoded: a failure here is a hole in that check.
        const change = yield* Effect.orDie(Effect.fromResult(place({ id, ...order })))
        return encodeView(yield* orders.place(change, order.lines))
      })

      /** Without a key: a repeated request places another order. One statement writes the order, its lines and its event. */
      const placeNew = Effect.fnUntraced(function* (order: NewOrder) {
        const id = OrderId.make(ids.next())
        return { orderId: id, body: yield* placeAs(id, order) }
      })

      const placeOnce = Effect.fnUntraced(function* (order: NewOrder, request: KeyedRequest) {
        const orderId = OrderId.make(ids.next())
        const key = yield* idempotency.claim(request, orderId)
        switch (key._tag) {
          case "First": {
            const body = yield* placeAs(orderId, order)
            yield* idempotency.answer(orderId, { status: 201, body } satisfies FinalAnswer)
            return { orderId, body }
          }
          case "Answered":
            return { orderId: OrderId.make(key.subjectId), body: key.answer.body }
          case "Begun":
            // Claim and answer commit together, so no other transaction sees a claim without its answer.
            return yield* Effect.die(new Error(`the key of order ${key.subjectId} has no answer`))
        }
      })

      const placeOrder = Traced.fn("PlaceOrder.place")(function* (order: NewOrder, request: KeyedRequest | undefined) {
        return yield* request === undefined
          ? Effect.provideService(Transaction.run(placeNew(order)), PgClient.PgClient, single)
          : Effect.provideService(Transaction.run(placeOnce(order, request)), PgClient.PgClient, database)
      })

      return PlaceOrder.of({ place: placeOrder })
    })
  )
}
