/** Placing an order: the order, its lines and OrderPlaced commit together. */
import type { OrderLine } from "../domain/OrderLines.ts"
import { type CustomerId, OrderId } from "../domain/Ids.ts"
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { type Currency } from "../domain/Money.ts"
import { place } from "../domain/Order.ts"
import type { EventRefused } from "../outbox/Outbox.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Ids } from "../platform/Ids.ts"
import { type FinalAnswer, Idempotency, type KeyReused, type KeyedRequest } from "./Idempotency.ts"
import { Orders, OrderView } from "./Orders.ts"

/** What a customer orders; the lines and their total have been checked (`OrderLines`). */
export interface NewOrder {
  readonly customerId: CustomerId
  readonly currency: Currency
  readonly lines: ReadonlyArray<OrderLine>
}

/** The order was placed, now or by an earlier request with the same key. `body` is the order's JSON, the same each time. */
export interface Placed {
  readonly orderId: OrderId
  readonly body: string
}

const encodeView = Schema.encodeUnknownEffect(Schema.fromJsonString(OrderView))

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
      const ids = yield* Ids

      const placeNew = Effect.fnUntraced(function* (id: OrderId, order: NewOrder) {
        // The sum was checked when the lines were decoded: a failure here is a hole in that check.
        const change = yield* Effect.orDie(Effect.fromResult(place({ id, ...order })))
        yield* orders.save(change, { lines: order.lines })
        return yield* Effect.orDie(Effect.flatMap(orders.get(id), encodeView))
      })

      const placeOrder = Effect.fn("PlaceOrder.place")(
        function* (order: NewOrder, request: KeyedRequest | undefined) {
          const id = OrderId.make(ids.next())
          return yield* Transaction.run(
            Effect.gen(function* (): Effect.fn.Return<Placed, EventRefused | KeyReused, Transaction> {
              if (request === undefined) return { orderId: id, body: yield* placeNew(id, order) }
              const claim = yield* idempotency.claim(request, id)
              switch (claim._tag) {
                case "First": {
                  const body = yield* placeNew(id, order)
                  yield* idempotency.answer(id, { status: 201, body } satisfies FinalAnswer)
                  return { orderId: id, body }
                }
                case "Answered":
                  return { orderId: OrderId.make(claim.subjectId), body: claim.answer.body }
                case "Begun":
                  // Claim and answer commit together here, so a claim without an answer can't be seen from outside.
                  return yield* Effect.die(new Error(`the key of order ${claim.subjectId} has no answer`))
              }
            })
          )
        },
        Effect.provideService(PgClient.PgClient, database)
      )

      return PlaceOrder.of({ place: placeOrder })
    })
  )
}
