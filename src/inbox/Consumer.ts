/**
 * A consumer as a scoped resource: building its layer joins the group, releasing it lets the slices under way end, and leaves the group.
 */
import { Context, Effect, Layer, type Scope } from "effect"
import { Broker, TopicSettings } from "../brokers/Broker.ts"
import * as Supervised from "../platform/Supervised.ts"
import type { Wakeups } from "../platform/Wakeups.ts"
import { ApplySlice } from "./ApplySlice.ts"
import { Holds } from "./holds/Holds.ts"
import * as SliceProgress from "./SliceProgress.ts"
import { bind, type Subscriber } from "./Subscriber.ts"

export const ConsumerSettings = Context.Reference<{
  /** The most records that a consumer applies in one transaction. */
  readonly sliceSize: number
}>("paid-once/inbox/ConsumerSettings", {
  // Two hundred one-row effects are some ten milliseconds: the commit is shared, and a slice that is applied again costs little.
  defaultValue: () => ({ sliceSize: 200 })
})

/**
 * The longest wait before a consumer joins again. A consumer that its broker throws out again and again must not keep its partitions waiting for
 * half a minute once the broker is healthy; a join costs the broker little.
 */
const rejoinCapMillis = 10_000

/** Reads the topic and applies its slices, for as long as the scope lives; joins the group again after a failure. */
const consume = Effect.fnUntraced(function* (
  subscriber: Subscriber
): Effect.fn.Return<void, never, Broker | ApplySlice | Supervised.Fibers | Scope.Scope> {
  const broker = yield* Broker
  const { run } = yield* ApplySlice
  const { sliceSize } = yield* ConsumerSettings
  const { partitions } = yield* TopicSettings
  const fiberName = `consumer ${subscriber.name}`
  const progress = yield* SliceProgress.make(subscriber.name, fiberName)
  const read = broker.consume({ group: subscriber.name, topic: subscriber.topic, sliceSize }, (slice) =>
    progress.follow(slice, run(subscriber, slice))
  )
  yield* Supervised.forkLoop(
    fiberName,
    (stamp) =>
      Effect.andThen(
        // The topic is made before its first group joins: a consumer may start before any producer.
        broker.ensureTopic(subscriber.topic, partitions),
        Effect.raceFirst(read, progress.stampWhileHealthy(stamp))
      ),
    { restartCapMillis: rejoinCapMillis }
  )
})

/** Consumes the subscriber's topic, and tries its holds again, for as long as the layer lives. */
export const layer = <R = never>(
  given: Subscriber<R>
): Layer.Layer<never, never, Broker | ApplySlice | Holds | Wakeups | Supervised.Fibers | R> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const subscriber = bind(given, yield* Effect.context<R>())
      yield* consume(subscriber)
      const { forkRetries } = yield* Holds
      yield* forkRetries(subscriber)
    })
  )
