/** Publishes the whole queue, as a dispatcher does after the broker's ack, for tests of what comes after that. */
import { Effect } from "effect"
import { Lane, laneCount } from "../../src/outbox/Lane.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as Lanes from "./Lanes.ts"

export const publishAll = Effect.gen(function* () {
  const queue = yield* Queue
  for (let lane = 0; lane < laneCount; lane++) {
    while (true) {
      const events = yield* Lanes.fetch(queue, Lane.make(lane), [])
      if (events.length === 0) break
      yield* Lanes.mark(queue, Lane.make(lane), events, { partition: lane % 8, baseOffset: 0n })
    }
  }
})
