/**
 * The step that makes an effect happen once: first time? → effect → commit, and only then the offset.
 *
 * The mark and the effects of a slice commit in one transaction. A crash before the commit leaves nothing; a crash after it
 * and before the offset brings the slice again, and every event in it is found marked.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Metric, Result, Schema } from "effect"
import { isTransient, Transaction } from "../../platform/database/Transaction.ts"
import { Faults } from "../../platform/Faults.ts"
import type { BrokerUnavailable, Slice } from "../broker/Broker.ts"
import * as Envelope from "../Envelope.ts"
import { Inbox } from "./Inbox.ts"
import type { Subscriber } from "./Subscriber.ts"

export type { Subscriber } from "./Subscriber.ts"

/** A record on the topic is no event of ours. Its partition waits: skipping it would be losing it. */
export class Undecodable extends Schema.TaggedError<Undecodable>()("Undecodable", {
  topic: Schema.String,
  partition: Schema.Int,
  offset: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `record ${this.offset} of ${this.topic}/${this.partition} can't be read: ${this.reason}`
  }
}

const eventsTotal = Metric.counter("inbox_events_total", {
  description: "Events by what became of them",
  incremental: true
})

export class ApplySlice extends Context.Service<
  ApplySlice,
  {
    /** Applies the slice's new events and commits the group's place behind it. */
    readonly run: (
      subscriber: Subscriber,
      slice: Slice
    ) => Effect.Effect<void, BrokerUnavailable | Undecodable | HandlerFailed>
  }
>()("paid-once/messaging/inbox/ApplySlice") {
  static readonly layer: Layer.Layer<ApplySlice, never, Inbox | PgClient.PgClient> = Layer.effect(
    ApplySlice,
    Effect.gen(function* () {
      const inbox = yield* Inbox
      const faults = yield* Faults
      const database = yield* PgClient.PgClient

      const decode = (slice: Slice) =>
        Effect.forEach(slice.records, (record) =>
          Effect.fromResult(
            Result.mapError(
              Envelope.decode(record),
              (reason) =>
                new Undecodable({
                  topic: slice.topic,
                  partition: slice.partition,
                  offset: String(record.offset),
                  reason
                })
            )
          )
        )

      const run = Effect.fn("ApplySlice.run")(
        function* (subscriber: Subscriber, slice: Slice) {
          const events = yield* decode(slice)
          yield* faults.at("consumer.after-decode")
          const applied = yield* Transaction.run(
            Effect.gen(function* () {
              const first = new Set(
                yield* inbox.markFirst(
                  subscriber.name,
                  events.map((event) => event.eventId)
                )
              )
              // Counted before the loop empties the set.
              const count = first.size
              for (const event of events) {
                // Taken out as it is handled: an event that stands twice in a slice is handled once.
                if (!first.delete(event.eventId)) continue
                yield* faults.at("consumer.before-handler")
                yield* Effect.catch(subscriber.handle(event), (cause) =>
                  // A deadlock or a serialization failure says nothing about the event: the whole transaction is run again.
                  isTransient(cause)
                    ? Effect.die(cause)
                    : Effect.fail(
                        new HandlerFailed({
                          consumer: subscriber.name,
                          eventId: event.eventId,
                          eventType: event.eventType,
                          cause
                        })
                      )
                )
              }
              yield* faults.at("consumer.before-commit")
              return count
            })
          )
          yield* faults.at("consumer.after-commit")
          yield* slice.commit
          yield* faults.at("consumer.after-offset")
          const outcome = (name: string) =>
            Metric.withAttributes(eventsTotal, { consumer: subscriber.name, outcome: name })
          yield* Metric.update(outcome("applied"), applied)
          yield* Metric.update(outcome("duplicate"), events.length - applied)
        },
        Effect.provideService(PgClient.PgClient, database)
      )

      return ApplySlice.of({ run })
    })
  )
}

/** A subscriber refused an event. The slice was rolled back and comes again. */
export class HandlerFailed extends Schema.TaggedError<HandlerFailed>()("HandlerFailed", {
  consumer: Schema.String,
  eventId: Schema.String,
  eventType: Schema.String,
  cause: Schema.Defect()
}) {
  override get message() {
    return `${this.consumer} could not apply ${this.eventType} ${this.eventId}: ${
      this.cause instanceof Error ? this.cause.message : String(this.cause)
    }`
  }
}
