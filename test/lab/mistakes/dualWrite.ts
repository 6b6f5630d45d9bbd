import { Effect, Layer } from "effect"
import { Broker } from "../../../src/brokers/Broker.ts"
import { Outbox } from "../../../src/outbox/Outbox.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import type { Mistake } from "./Mistake.ts"
import { batchOf, writeWithoutEvents } from "./sendDirectly.ts"

export const dualWrite: Mistake = {
  name: "dual-write",
  what: "The row is saved, and after the commit its event is sent straight to the broker. There is no outbox.",
  why: "It is the shortest code, both calls are there, and on a developer's machine both always succeed.",
  rule: "An event and its change are one statement; nothing is published from a request.",
  read: "src/outbox/Outbox.ts",
  plant: () => ({
    outbox: Layer.effect(
      Outbox,
      Effect.map(Broker, (broker) =>
        Outbox.of({
          append: () => Effect.die(new Error("not used here")),
          save: Effect.fnUntraced(function* (stream, events, write, also) {
            const { afterCommit } = yield* Transaction
            const row = yield* writeWithoutEvents(write, also)
            const batch = yield* batchOf(stream, row.version - events.length, events)
            yield* afterCommit(Effect.ignore(broker.publish(batch)))
            return row
          })
        })
      )
    )
  })
}
