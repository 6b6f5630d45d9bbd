/**
 * A consumer as a scoped resource: acquiring its layer joins the group, releasing it ends the slice under way and leaves.
 */
import { Clock, Context, Effect, Layer } from "effect"
import * as Supervised from "../../platform/Supervised.ts"
import { Broker, TopicSettings } from "../broker/Broker.ts"
import { ApplySlice, type Subscriber } from "./ApplySlice.ts"

/** How many records a consumer applies in one transaction. */
export const ConsumerSettings = Context.Reference<{ readonly sliceSize: number }>(
  "paid-once/messaging/inbox/ConsumerSettings",
  {
    // Two hundred one-row effects are some ten milliseconds: the commit is shared, and a redone slice costs little.
    defaultValue: () => ({ sliceSize: 200 })
  }
)

/** How often a consumer shows that none of its slices hangs. */
const stampMillis = 5_000

/** Consumes the subscriber's topic for as long as the layer lives, supervised: whatever ends it, it joins again. */
export const layer = (subscriber: Subscriber): Layer.Layer<never, never, Broker | ApplySlice | Supervised.Fibers> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const broker = yield* Broker
      const apply = yield* ApplySlice
      const { sliceSize } = yield* ConsumerSettings
      const { partitions } = yield* TopicSettings
      /** Since when each slice is being applied, by its partition. */
      const startedMillis = new Map<number, number>()

      const consume = broker.consume({ group: subscriber.name, topic: subscriber.topic, sliceSize }, (slice) =>
        Effect.acquireUseRelease(
          Effect.map(Clock.currentTimeMillis, (now) => startedMillis.set(slice.partition, now)),
          () => apply.run(subscriber, slice),
          () => Effect.sync(() => startedMillis.delete(slice.partition))
        )
      )

      /** Stamps progress unless a slice hangs: an idle consumer is healthy, and one that never ends its slice is not. */
      const watch = (stamp: Effect.Effect<void>) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) =>
          [...startedMillis.values()].every((started) => now - started < Supervised.stuckAfterMillis)
            ? stamp
            : Effect.void
        ).pipe(Effect.andThen(Effect.sleep(stampMillis)), Effect.forever)

      yield* Supervised.forkLoop(`consumer ${subscriber.name}`, (stamp) =>
        Effect.andThen(
          // A consumer may be the first to come: the topic is there before its group is.
          broker.ensureTopic(subscriber.topic, partitions),
          Effect.raceFirst(consume, watch(stamp))
        )
      )
    })
  )
