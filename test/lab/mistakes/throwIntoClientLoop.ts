import { Effect, Layer } from "effect"
import { ApplySlice } from "../../../src/inbox/ApplySlice.ts"
import { DependencyDown, type Subscriber } from "../../../src/inbox/Subscriber.ts"
import type { Mistake } from "./Mistake.ts"

/** ApplySlice throws failures that are not the event's own; this mistake throws every failure. */
class Thrown extends DependencyDown {
  override get message() {
    return this.reason
  }
}

const thrown = <R>(effect: Effect.Effect<void, unknown, R>) =>
  Effect.mapError(effect, (error) => new Thrown({ reason: error instanceof Error ? error.message : String(error) }))

const throwing = (subscriber: Subscriber): Subscriber => ({
  ...subscriber,
  handle: (event) => thrown(subscriber.handle(event)),
  handleMany: (events) =>
    thrown(subscriber.handleMany?.(events) ?? Effect.forEach(events, subscriber.handle, { discard: true }))
})

export const throwIntoClientLoop: Mistake = {
  name: "throw-into-client-loop",
  what: "A handler that fails throws into the client's loop (`eachMessage` in kafkajs), for the client knows how to try again.",
  why: "Nothing is lost: the offset stays, and the client comes again. But kafkajs tries five times, crashes with all its partitions, starts anew, and meets the same event: it and all behind it are never handled, whosever they are.",
  rule: "Nothing is thrown into the client's loop: an event that can't be applied is parked, and its partition goes on.",
  read: "src/brokers/kafkajs/KafkaConsumer.ts",
  plant: (real) => ({
    clientLoop: "stops",
    applySlice: Layer.effect(
      ApplySlice,
      Effect.map(ApplySlice, (applySlice) =>
        ApplySlice.of({
          run: (subscriber, slice) => applySlice.run(throwing(subscriber), slice),
          runTogether: (subscriber, slices) => applySlice.runTogether(throwing(subscriber), slices)
        })
      )
    ).pipe(Layer.provide(real.applySlice))
  })
}
