/**
 * Broker reachability: whether this process can reach the broker. If not, its lanes go to dispatchers that can, and return when it can again.
 *
 * A failed send can't tell a local failure from a general outage. So each process publishes whether it reaches the broker (platform/Ownership.ts). If
 * no process does, all keep their lanes. A cluster counts as reachable if one of its servers answers: partitions on the other servers are paused, and
 * no lane moves.
 *
 * Without this layer the lanes of a process that is cut off wait until it reaches the broker again.
 */
import { Context, Effect, Layer } from "effect"
import { Broker } from "../brokers/Broker.ts"
import { LaneOwnership } from "../outbox/LaneOwnership.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Supervised from "../platform/Supervised.ts"
import { PartitionPauses } from "./PartitionPauses.ts"

export const ReachabilitySettings = Context.Reference<{
  /** If no send was answered for this long, the broker is asked. */
  readonly strandedMillis: number
  /** The interval between questions, until the broker answers. */
  readonly askMillis: number
}>("paid-once/guards/ReachabilitySettings", {
  // Longer than most sends, and no longer than a leader election, because moving lanes takes a moment. A question costs one connection.
  defaultValue: () => ({ strandedMillis: 5_000, askMillis: 5_000 })
})

/** The interval at which the unanswered time is checked. The check is local. */
const lookMillis = 1_000

export class BrokerReachability extends Context.Service<
  BrokerReachability,
  {
    /** Whether the broker was reachable when it was last asked. */
    readonly isReachable: Effect.Effect<boolean>
  }
>()("paid-once/guards/BrokerReachability") {
  static readonly layer: Layer.Layer<
    BrokerReachability,
    never,
    PartitionPauses | LaneOwnership | Broker | Supervised.Fibers
  > = Layer.effect(
    BrokerReachability,
    Effect.gen(function* () {
      const pauses = yield* PartitionPauses
      const ownership = yield* LaneOwnership
      const { reach } = yield* Broker
      const { askMillis, strandedMillis } = yield* ReachabilitySettings
      let isReachable = true
      let askedMillis = Number.NEGATIVE_INFINITY
      /** The topic that is asked about: one that failed. */
      let topic = ""
      const ask = Effect.suspend(() =>
        reach === undefined
          ? Effect.succeed(true)
          : Effect.match(reach(topic), { onSuccess: () => true, onFailure: () => false })
      )
      yield* Supervised.forkLoop(
        "broker reachability",
        Effect.gen(function* () {
          const now = yield* Monotonic.millis
          const isDue = askedMillis + askMillis <= now
          if (isDue && (!isReachable || (yield* pauses.strandedMillis) >= strandedMillis)) {
            askedMillis = now
            // Without lanes this process sends nothing, and forgets its failures after a while. Then it asks about the last topic.
            topic = (yield* pauses.all)[0]?.topic ?? topic
            const answers = yield* ask
            if (answers !== isReachable) {
              isReachable = answers
              yield* ownership.setAble(answers)
              if (answers) yield* pauses.release
              yield* answers
                ? Effect.logDebug("the broker can be reached again: this process takes its part of the lanes")
                : // The log tells the outage itself by its failed sends.
                  Effect.logDebug(
                    "the broker can't be reached from here: lanes go to dispatchers that reach it, if any do"
                  )
            }
          }
          yield* Effect.sleep(Math.min(lookMillis, askMillis))
        })
      )
      return BrokerReachability.of({ isReachable: Effect.sync(() => isReachable) })
    })
  )
}
