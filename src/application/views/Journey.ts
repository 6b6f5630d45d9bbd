/**
 * The journey of an order: every change from its request to its effects, hop by hop, and for what waits: why, and what would free it.
 *
 * It is read from what is stored, so it is the same at every process, also after restarts. A time that is not stored is not made up.
 */
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { OrderId } from "../../domain/Ids.ts"
import { AppliedEvents } from "../../operations/AppliedEvents.ts"
import { ConsumerPace } from "../../operations/reports/ConsumerPace.ts"
import { timelinePage } from "../../operations/History.ts"
import { PauseDecisions } from "../../operations/pauses/PauseDecisions.ts"
import { laneOf } from "../../outbox/Lane.ts"
import { LaneOwnership } from "../../outbox/LaneOwnership.ts"
import * as SlotOwners from "../../platform/SlotOwners.ts"
import * as JourneyFacts from "./JourneyFacts.ts"
import { legsOf } from "./JourneyLegs.ts"
import type { JourneyView } from "./JourneyView.ts"
import { type OrderNotFound, Orders } from "../Orders.ts"
import { Subscribers } from "../Timeline.ts"

export class Journey extends Context.Service<
  Journey,
  {
    /** The order's way: a page of the {@link timelinePage} versions after `cursor` (0). Payments without an event are on the last page. */
    readonly of: (orderId: OrderId, cursor?: number) => Effect.Effect<JourneyView, OrderNotFound>
  }
>()("paid-once/application/Journey") {
  static readonly layer: Layer.Layer<
    Journey,
    never,
    AppliedEvents | ConsumerPace | Orders | PauseDecisions | SqlClient.SqlClient | Subscribers
  > = Layer.effect(
    Journey,
    Effect.gen(function* () {
      const appliedEvents = yield* AppliedEvents
      const consumerPace = yield* ConsumerPace
      const orders = yield* Orders
      const pauses = yield* PauseDecisions
      const sql = yield* SqlClient.SqlClient
      const { names } = yield* Subscribers

      const of = Effect.fn("Journey.of")(function* (orderId: OrderId, cursor = 0) {
        const order = yield* orders.summary(orderId)
        const facts = yield* Effect.provideService(JourneyFacts.read(orderId, cursor, names), SqlClient.SqlClient, sql)
        const { events } = facts
        const lane = laneOf(orderId)
        const owners = yield* Effect.orDie(
          Effect.provideService(SlotOwners.of(LaneOwnership.group), SqlClient.SqlClient, sql)
        )
        const end = cursor + timelinePage
        const isLastPage = order.version <= end
        const around = {
          facts,
          consumers: names,
          applied: yield* appliedEvents.applied(names, orderId, events),
          skips: yield* appliedEvents.skips(names, events),
          paused: yield* pauses.all,
          lane,
          laneOwner: owners.get(lane) ?? null,
          lags: (yield* consumerPace.latest)?.lags ?? []
        }
        return {
          orderId,
          at: facts.at,
          order,
          // Versions are contiguous. There may be more: the order was read before.
          complete: events.length >= Math.min(order.version, end) - cursor,
          legs: legsOf(around, isLastPage),
          nextCursor: isLastPage ? null : end
        }
      })
      return Journey.of({ of })
    })
  )
}
