import { Effect, Layer } from "effect"
import { Broker } from "../../../src/brokers/Broker.ts"
import { Outbox } from "../../../src/outbox/Outbox.ts"
import type { Mistake } from "./Mistake.ts"
import { batchOf, writeWithoutEvents } from "./sendDirectly.ts"

export const publishThenCommit: Mistake = {
  name: "publish-then-commit",
  what: "The event is sent inside the transaction, before its commit, so that a failed send rolls back the change.",
  why: "Nothing can be committed without its event: the send comes first. That the commit may not come at all is easy to forget.",
  rule: "A transaction writes its events, and the dispatcher sends them after the commit.",
  read: "src/outbox/Outbox.ts",
  plant: () => ({
    outbox: Layer.effect(
      Outbox,
      Effect.map(Broker, (broker) =>
        Outbox.of({
          append: () => Effect.die(new Error("not used here")),
          save: Effect.fnUntraced(function* (stream, events, write, also) {
            const row = yield* writeWithoutEvents(write, also)
            yield* Effect.orDie(broker.publish(yield* batchOf(stream, row.version - events.length, events)))
            return row
          })
        })
      )
    )
  })
}
