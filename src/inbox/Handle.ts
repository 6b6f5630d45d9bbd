/** Runs a subscriber's handler: as part of the trace that the event belongs to, and for so long only. */
import { Cause, Context, Effect } from "effect"
import { Faults } from "../platform/Faults.ts"
import * as Tracing from "../platform/Tracing.ts"
import type { Transaction } from "../platform/Transaction.ts"
import type { ReadableArrival } from "./Arrival.ts"
import type { Subscriber } from "./Subscriber.ts"

/** How long handlers may take. */
export const HandleSettings = Context.Reference<{
  /**
   * For the handlers of a slice together, and again for each alone when that was not enough; then the event has failed. `Infinity`: nobody
   * looks at the clock.
   */
  readonly timeoutMillis: number
}>("paid-once/inbox/HandleSettings", {
  // A slice takes milliseconds. Longer than a connection of the pool may be silent: a database that hangs is not the event's fault.
  defaultValue: () => ({ timeoutMillis: 30_000 })
})

/** `effect`, for so long only. */
export const bounded = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  timeoutMillis: number
): Effect.Effect<A, E | Cause.TimeoutError, R> =>
  timeoutMillis === Infinity ? effect : Effect.timeout(effect, timeoutMillis)

const spanOf = (subscriber: Subscriber, { event, record }: ReadableArrival) => ({
  name: `${subscriber.name} ${event.eventType}`,
  options: {
    kind: "consumer" as const,
    parent: Tracing.fromTraceparent(record.headers["traceparent"]),
    attributes: () => ({
      consumer: subscriber.name,
      event_id: event.eventId,
      event_type: event.eventType,
      aggregate_id: event.aggregateId,
      aggregate_version: event.aggregateVersion
    })
  }
})

/** A handler ended itself by an interrupt that nobody had asked for. */
export class HandlerInterrupted extends Error {
  override readonly name = "HandlerInterrupted"
  constructor() {
    super("the handler interrupted itself")
  }
}

/** Calls a handler. It may throw while it is called, and it may interrupt itself: both are the event's failure. */
const call = <E, R>(handle: () => Effect.Effect<void, E, R>): Effect.Effect<void, E, R> =>
  Effect.catchCause(Effect.suspend(handle), (cause) =>
    Cause.hasInterruptsOnly(cause)
      ? // Where it is the consumer that is being stopped, this ends here.
        Effect.andThen(Effect.interruptible(Effect.void), Effect.die(new HandlerInterrupted()))
      : Effect.failCause(cause)
  )

/** The effect of one event, as a part of the trace that its record names. */
export const one = (subscriber: Subscriber, arrival: ReadableArrival): Effect.Effect<void, unknown, Transaction> => {
  const { name, options } = spanOf(subscriber, arrival)
  return Tracing.within(name, options)(call(() => subscriber.handle(arrival.event)))
}

/** Whose handler runs now, for whoever has to know on whom a failure came down. */
export interface Running {
  arrival: ReadableArrival | undefined
}

/** The effects of several events, in their order. `running` names each while it is handled alone. */
export const all = Effect.fnUntraced(function* (
  subscriber: Subscriber,
  arrivals: ReadonlyArray<ReadableArrival>,
  running: Running = { arrival: undefined }
): Effect.fn.Return<void, unknown, Transaction> {
  const faults = yield* Faults
  const { handleMany } = subscriber
  const [first, ...rest] = arrivals
  if (first === undefined) return
  if (handleMany === undefined || rest.length === 0) {
    for (const arrival of arrivals) {
      yield* faults.at("consumer.before-handler")
      running.arrival = arrival
      yield* one(subscriber, arrival)
    }
    running.arrival = undefined
    return
  }
  yield* faults.at("consumer.before-handler")
  const together = call(() => handleMany([first.event, ...rest.map(({ event }) => event)]))
  // One effect for all of them, and where spans are collected one in the trace of each.
  yield* Tracing.withinEach(
    arrivals.map((arrival) => spanOf(subscriber, arrival)),
    together
  )
})
