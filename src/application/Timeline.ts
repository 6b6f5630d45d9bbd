/** The timeline of an order: each of its events, how far it has been delivered, and which subscribers have applied it. */
import { Context, Effect, Layer, Schema } from "effect"
import { OrderId } from "../domain/Ids.ts"
import { AppliedEvents, WaitingState } from "../operations/AppliedEvents.ts"
import { History, PastEvent, timelinePage } from "../operations/History.ts"
import { type OrderNotFound, Orders } from "./Orders.ts"

/** The subscribers of the orders topic, by the names of their consumer groups. */
export class Subscribers extends Context.Service<Subscribers, { readonly names: ReadonlyArray<string> }>()(
  "paid-once/application/Subscribers"
) {}

/** What a consumer has made of an event. `pending` has not come to it, or is being applied; `parked` waits for an earlier event of its order. */
const ConsumerState = Schema.Literals(["applied", "pending", ...WaitingState.literals])

export const TimelineView = Schema.Struct({
  orderId: OrderId,
  /** False where retention has dropped events of this page. */
  complete: Schema.Boolean,
  events: Schema.Array(
    Schema.Struct({
      ...PastEvent.fields,
      consumers: Schema.Record(Schema.String, ConsumerState)
    })
  ),
  /** The last version of this page; null where the order has no more. */
  nextCursor: Schema.NullOr(Schema.Int)
}).annotate({ identifier: "Timeline" })
export type TimelineView = typeof TimelineView.Type

export class Timeline extends Context.Service<
  Timeline,
  {
    /** A page of the order's events: those of the {@link timelinePage} versions after `cursor` (0). An order has an event for each declined payment. */
    readonly of: (orderId: OrderId, cursor?: number) => Effect.Effect<TimelineView, OrderNotFound>
  }
>()("paid-once/application/Timeline") {
  static readonly layer: Layer.Layer<Timeline, never, Orders | History | AppliedEvents | Subscribers> = Layer.effect(
    Timeline,
    Effect.gen(function* () {
      const orders = yield* Orders
      const history = yield* History
      const appliedEvents = yield* AppliedEvents
      const { names } = yield* Subscribers

      const of = Effect.fn("Timeline.of")(function* (orderId: OrderId, cursor = 0) {
        const { version } = yield* orders.summary(orderId)
        const events = yield* history.of(orderId, cursor)
        const end = cursor + timelinePage
        const applied = yield* appliedEvents.applied(names, orderId, events)
        const waiting = yield* appliedEvents.waiting(names, events)
        /** An event that was discarded at the outbox may have arrived by a send whose answer was lost. Otherwise nobody gets it. */
        const stateOf = ({ delivery, eventId }: typeof PastEvent.Type, name: string): typeof ConsumerState.Type => {
          const key = `${name} ${eventId}`
          const undelivered = delivery.state === "discarded" ? "discarded" : "pending"
          return applied.has(key) ? "applied" : (waiting.get(key) ?? undelivered)
        }
        return {
          orderId,
          // Versions are contiguous, so the count shows whether an event is missing. There may be more: the order was read before.
          complete: events.length >= Math.min(version, end) - cursor,
          events: events.map((event) => ({
            ...event,
            consumers: Object.fromEntries(names.map((name) => [name, stateOf(event, name)]))
          })),
          nextCursor: version > end ? end : null
        }
      })
      return Timeline.of({ of })
    })
  )
}
