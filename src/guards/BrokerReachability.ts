/**
 * Whether it is this process that the broker can't be reached from. If so its lanes go to dispatchers that reach it, and come back when it does, too.
 *
 * No send can tell that from an outage of all, so each process says of itself what it knows (Shares.ts): where none reaches the broker, all keep
 * their parts, and nothing moves. A broker of several servers is reached when one of them answers: what the others keep from a process
 * pauses their partitions alone.
 */
import { Context, Effect } from "effect"
import { Dispatcher } from "../outbox/Dispatcher.ts"
import { Publisher } from "../outbox/Publisher.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import type { Membership } from "../platform/Ownership.ts"
import * as Supervised from "../platform/Supervised.ts"

export const ReachSettings = Context.Reference<{
  /** After so long without any answer, though something was sent, the broker is asked. */
  readonly strandedMillis: number
  /** How often it is asked from then on, until it answers. */
  readonly askMillis: number
}>("paid-once/guards/ReachSettings", {
  // Longer than a send may take as a rule, and no longer than an election of leaders lasts: lanes that move cost a moment. To ask is a connection.
  defaultValue: () => ({ strandedMillis: 5_000, askMillis: 5_000 })
})

/** How often it is looked whether sends are answered: costs no exchange with anybody. */
const lookMillis = 1_000

/** Watches over it for as long as the scope lives. Returns whether the broker could be reached when it was last asked. */
export const watch = Effect.fnUntraced(function* (membership: Membership) {
  const dispatcher = yield* Dispatcher
  const publisher = yield* Publisher
  const { askMillis, strandedMillis } = yield* ReachSettings
  let isAble = true
  let askedMillis = Number.NEGATIVE_INFINITY
  /** What is asked about: something that failed. */
  let topic = ""
  yield* Supervised.forkLoop(
    "dispatcher reach",
    Effect.gen(function* () {
      const now = yield* Monotonic.millis
      const isDue = askedMillis + askMillis <= now
      if (isDue && (!isAble || (yield* dispatcher.strandedMillis) >= strandedMillis)) {
        askedMillis = now
        // Who has no lanes any more has no failures either, after a while.
        topic = (yield* dispatcher.pauses)[0]?.topic ?? topic
        const answers = yield* publisher.canReach(topic)
        if (answers !== isAble) {
          isAble = answers
          yield* membership.setAble(answers)
          if (answers) yield* dispatcher.release
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
  return { isAble: () => isAble }
})
