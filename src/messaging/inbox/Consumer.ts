/**
 * A consumer as a scoped resource: acquiring its layer joins the group, releasing it ends the slice under way and leaves.
 */
import { Cause, Clock, Context, Effect, Layer, Metric } from "effect"
import * as Supervised from "../../platform/Supervised.ts"
import { Broker, type Slice, TopicSettings } from "../broker/Broker.ts"
import { ApplySlice } from "./ApplySlice.ts"
import { bind, type Subscriber } from "./Subscriber.ts"

/** How many records a consumer applies in one transaction. */
export const ConsumerSettings = Context.Reference<{ readonly sliceSize: number }>(
  "paid-once/messaging/inbox/ConsumerSettings",
  {
    // Two hundred one-row effects are some ten milliseconds: the commit is shared, and a redone slice costs little.
    defaultValue: () => ({ sliceSize: 200 })
  }
)

const failuresTotal = Metric.counter("inbox_slice_failures_total", {
  description: "Slices that failed and came again",
  incremental: true
})

/** How often a consumer shows that none of its slices hangs. */
const stampMillis = 5_000

/** Consumes the subscriber's topic for as long as the layer lives, supervised: whatever ends it, it joins again. */
export const layer = <R = never>(
  given: Subscriber<R>
): Layer.Layer<never, never, Broker | ApplySlice | Supervised.Fibers | R> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const subscriber = bind(given, yield* Effect.context<R>())
      const broker = yield* Broker
      const apply = yield* ApplySlice
      const { sliceSize } = yield* ConsumerSettings
      const { partitions } = yield* TopicSettings
      const fibers = yield* Supervised.Fibers
      const name = `consumer ${subscriber.name}`
      /** Since when each slice is being applied, by its partition. */
      const startedMillis = new Map<number, number>()
      /** When a slice of a partition last failed that comes again. */
      const failedMillis = new Map<number, number>()
      const failedTotal = Metric.withAttributes(failuresTotal, { consumer: subscriber.name })

      /** A slice that fails waits for its next try; whoever runs the service hears of it each time, and health is degraded. */
      const failed = (slice: Slice, cause: Cause.Cause<unknown>) =>
        Effect.gen(function* () {
          failedMillis.set(slice.partition, yield* Clock.currentTimeMillis)
          yield* Metric.update(failedTotal, 1)
          yield* fibers.update(name, (state) => ({
            ...state,
            status: "restarting",
            lastError: String(Cause.squash(cause))
          }))
          yield* Effect.logWarning(`${subscriber.name} could not apply a slice, which comes again`, cause).pipe(
            Effect.annotateLogs({
              consumer: subscriber.name,
              topic: slice.topic,
              partition: slice.partition,
              offset: String(slice.records[0].offset)
            })
          )
        })

      const consume = broker.consume({ group: subscriber.name, topic: subscriber.topic, sliceSize }, (slice) =>
        Effect.acquireUseRelease(
          Effect.map(Clock.currentTimeMillis, (now) => startedMillis.set(slice.partition, now)),
          () => apply.run(subscriber, slice),
          () => Effect.sync(() => startedMillis.delete(slice.partition))
        ).pipe(
          Effect.tap(Effect.sync(() => failedMillis.delete(slice.partition))),
          Effect.tapCause((cause) => (Cause.hasInterruptsOnly(cause) ? Effect.void : failed(slice, cause)))
        )
      )

      /**
       * Stamps progress unless a slice hangs or keeps failing: an idle consumer is healthy, and one that never ends its slice is
       * not. A failure that is older than any wait between two tries belongs to a partition that has gone to another member.
       */
      const watch = (stamp: Effect.Effect<void>) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          const isRecent = (millis: number) => now - millis < Supervised.stuckAfterMillis
          return [...startedMillis.values()].every(isRecent) && ![...failedMillis.values()].some(isRecent)
            ? stamp
            : Effect.void
        }).pipe(Effect.andThen(Effect.sleep(stampMillis)), Effect.forever)

      yield* Supervised.forkLoop(name, (stamp) =>
        Effect.andThen(
          // A consumer may be the first to come: the topic is there before its group is.
          broker.ensureTopic(subscriber.topic, partitions),
          Effect.raceFirst(consume, watch(stamp))
        )
      )
    })
  )
