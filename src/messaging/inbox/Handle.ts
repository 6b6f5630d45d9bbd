/** Runs a subscriber's handler: as part of the trace that the event belongs to, and for so long only. */
import { type Cause, Context, Effect, Tracer } from "effect"
import type { Transaction } from "../../platform/database/Transaction.ts"
import { Faults } from "../../platform/Faults.ts"
import type { ReadableArrival } from "./Arrival.ts"
import type { Subscriber } from "./Subscriber.ts"

/** How long handlers may take. */
export const HandleSettings = Context.Reference<{
  /**
   * For the handlers of a slice together, and again for each alone when that was not enough; then the event has failed. `Infinity`: nobody
   * looks at the clock.
   */
  readonly timeoutMillis: number
}>("paid-once/messaging/inbox/HandleSettings", {
  // A slice takes milliseconds. Longer than a connection of the pool may be silent: a database that hangs is not the event's fault.
  defaultValue: () => ({ timeoutMillis: 30_000 })
})

/** `effect`, for so long only. */
export const bounded = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  timeoutMillis: number
): Effect.Effect<A, E | Cause.TimeoutError, R> =>
  timeoutMillis === Infinity ? effect : Effect.timeout(effect, timeoutMillis)

const traceparent = /^00-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})$/

/** The span that wrote the event, as its record's header names it. */
const writerOf = ({ record }: ReadableArrival): Tracer.ExternalSpan | undefined => {
  const [, traceId, spanId, flags = "00"] = traceparent.exec(record.headers["traceparent"] ?? "") ?? []
  return traceId === undefined || spanId === undefined
    ? undefined
    : Tracer.externalSpan({ traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 })
}

const spanOf = (subscriber: Subscriber, arrival: ReadableArrival) => {
  const { event } = arrival
  const parent = writerOf(arrival)
  return {
    name: `${subscriber.name} ${event.eventType}`,
    options: {
      kind: "consumer" as const,
      ...(parent === undefined ? {} : { parent }),
      attributes: {
        "messaging.consumer.group.name": subscriber.name,
        "messaging.message.id": event.eventId,
        "aggregate.id": event.aggregateId,
        "aggregate.version": event.aggregateVersion
      }
    }
  }
}

/** The effect of one event, in its own span. */
export const one = (subscriber: Subscriber, arrival: ReadableArrival): Effect.Effect<void, unknown, Transaction> => {
  const { name, options } = spanOf(subscriber, arrival)
  // A handler may throw while it is called: that is the event's failure, too.
  return Effect.suspend(() => subscriber.handle(arrival.event)).pipe(Effect.withSpan(name, options))
}

/** The effects of several events, in their order. */
export const all = Effect.fnUntraced(function* (
  subscriber: Subscriber,
  arrivals: ReadonlyArray<ReadableArrival>
): Effect.fn.Return<void, unknown, Transaction> {
  const faults = yield* Faults
  const { handleMany } = subscriber
  const [first, ...rest] = arrivals
  if (first === undefined) return
  if (handleMany === undefined || rest.length === 0) {
    for (const arrival of arrivals) {
      yield* faults.at("consumer.before-handler")
      yield* one(subscriber, arrival)
    }
    return
  }
  yield* faults.at("consumer.before-handler")
  // One effect for all of them, and a span in the trace of each.
  const scoped = Effect.forEach(
    arrivals,
    (arrival) => {
      const { name, options } = spanOf(subscriber, arrival)
      return Effect.makeSpanScoped(name, options)
    },
    { discard: true }
  )
  yield* Effect.scoped(
    Effect.andThen(
      scoped,
      Effect.suspend(() => handleMany([first.event, ...rest.map(({ event }) => event)]))
    )
  )
})
