/**
 * Finds out whether this process can't reach the broker while others can. If so, its lanes go to those, and come back when it reaches the broker again.
 *
 * No send can tell that from an outage for all, so each process says of itself what it knows (platform/Ownership.ts): where none reaches the broker,
 * all keep their parts, and nothing moves. A broker of several servers is reached when one of them answers: if only the others are out of reach,
 * their partitions are paused and no lane moves.
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
  /** After so long without any answer, though something was sent, the broker is asked. */
  readonly strandedMillis: number
  /** How often it is asked from then on, until it answers. */
  readonly askMillis: number
}>("paid-once/guards/ReachabilitySettings", {
  // Longer than a send takes as a rule, and no longer than an election of leaders: moving lanes costs a moment. Asking costs a connection.
  defaultValue: () => ({ strandedMillis: 5_000, askMillis: 5_000 })
})

/** How often it is looked whether sends are answered: costs no exchange with anybody. */
const lookMillis = 1_000

export class BrokerReachability extends Context.Service<
  BrokerReachability,
  {
    /** Whether the broker could be reached when it was last asked. */
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
      /** What is asked about: a topic that failed. */
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
            // Without lanes this process sends nothing, and its failures are forgotten after a while: then the last topic is asked about.
            topic = (yield* pauses.all)[0]?.topic ?? topic
            const answers = yield* ask
            if (answers !== isReachable) {
              isReachable = answers
              yield* ownership.setAble(answers)
              if (answers) yield* pauses.release
              yield* answers
                ? Effect.logInfo("the broker can be reached again: this process takes its part of the lanes")
                : Effect.logWarning(
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
