/** Runs a subscriber's handlers: each in the trace of its event, and within a time limit. */
import { Cause, Context, Effect } from "effect"
import { Faults } from "../platform/Faults.ts"
import * as Tracing from "../platform/Tracing.ts"
import type { Transaction } from "../platform/Transaction.ts"
import type { ReadableArrival } from "./Arrival.ts"
import { type Subscriber, withServices } from "./Subscriber.ts"

/** The time limit of handlers. */
export const HandleSettings = Context.Reference<{
  /**
   * For a slice's transaction, with all its handlers. After a timeout each event has the whole time alone; one that exceeds it alone has
   * failed. `Infinity`: no limit.
   */
  readonly timeoutMillis: number
}>("paid-once/inbox/HandleSettings", {
  // A slice takes milliseconds. Longer than a connection of the pool may be silent: for a database that hangs no event is to blame.
  defaultValue: () => ({ timeoutMillis: 30_000 })
})

/** Interrupts `effect` after `timeoutMillis`, and fails with a `TimeoutError` then. */
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

/** A handler interrupted itself, while its consumer was not being stopped. */
export class HandlerInterrupted extends Error {
  override readonly name = "HandlerInterrupted"
  constructor() {
    super("the handler interrupted itself")
  }
}

/** Calls a handler. An exception that it throws, and an interrupt of its own, are failures of the event. */
const call = <E, R>(handle: () => Effect.Effect<void, E, R>): Effect.Effect<void, E, R> =>
  Effect.catchCause(Effect.suspend(handle), (cause) =>
    Cause.hasInterruptsOnly(cause)
      ? // If the consumer is being stopped, this is where it ends.
        Effect.andThen(Effect.interruptible(Effect.void), Effect.die(new HandlerInterrupted()))
      : Effect.failCause(cause)
  )

/** The effect of one event, in the trace that its record names. */
const one = (subscriber: Subscriber, arrival: ReadableArrival): Effect.Effect<void, unknown, Transaction> => {
  const { name, options } = spanOf(subscriber, arrival)
  return Tracing.within(name, options)(call(() => subscriber.handle(arrival.event)))
}

/** The event whose handler is running, so that a failure has a suspect. Changed in place. */
export interface Running {
  arrival: ReadableArrival | undefined
}

const callAll = Effect.fnUntraced(function* (
  subscriber: Subscriber,
  arrivals: ReadonlyArray<ReadableArrival>,
  running: Running
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
  // One call for all events, and a span in the trace of each.
  yield* Tracing.withinEach(() => arrivals.map((arrival) => spanOf(subscriber, arrival)), together)
})

/** The effects of several events, in their order. `running` names each event while its own handler runs. */
export const all = (
  subscriber: Subscriber,
  arrivals: ReadonlyArray<ReadableArrival>,
  running: Running = { arrival: undefined }
): Effect.Effect<void, unknown, Transaction> => withServices(subscriber, callAll(subscriber, arrivals, running))
