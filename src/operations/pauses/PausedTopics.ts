/**
 * Sends nothing to a topic that an operator has paused, neither from the queue nor from the holds. Its events wait in the queue, in their order;
 * the other topics of their lanes flow. Decorates {@link Queue} and the outbox's {@link Holds}.
 */
import { Context, Effect, Layer } from "effect"
import { Holds } from "../../outbox/holds/Holds.ts"
import { leavingOut } from "../../guards/PartitionPauses.ts"
import { PollRequests } from "../../outbox/PollRequests.ts"
import { type LaneView, Queue } from "../../outbox/Queue.ts"
import { Pauses } from "./Pauses.ts"

export const layer: Layer.Layer<Queue | Holds, never, Queue | Holds | PollRequests> = Layer.effectContext(
  Effect.gen(function* () {
    const queue = yield* Queue
    const holds = yield* Holds
    const pauses = yield* Pauses
    const pollRequests = yield* PollRequests
    const running = <A extends LaneView>(views: ReadonlyArray<A>) =>
      Effect.map(pauses.names("topic"), (topics) =>
        topics.length === 0 ? views : views.map((view) => leavingOut(view, topics))
      )
    // Events and held events that waited are due now.
    yield* pauses.onChange(Effect.andThen(pollRequests.now, holds.changed.open))
    return Context.make(
      Queue,
      Queue.of({
        ...queue,
        ready: (views) => Effect.flatMap(running(views), queue.ready),
        fetch: (parts, without) => Effect.flatMap(running(parts), (some) => queue.fetch(some, without))
      })
    ).pipe(
      Context.add(
        Holds,
        Holds.of({
          ...holds,
          due: (views) => Effect.flatMap(running(views), holds.due),
          nextDue: (lanes) =>
            Effect.zipWith(holds.nextDue(lanes), pauses.names("topic"), (next, topics) =>
              next.filter(({ topic }) => !topics.includes(topic))
            )
        })
      )
    )
  })
)
