/** Logs the outcome when the broker refuses an event that was sent alone. A dead letter is an error: it waits for a person. */
import { Effect } from "effect"
import type { MessageRejected } from "../../brokers/Broker.ts"
import type { QueuedEvent } from "../Queue.ts"
import type { Refused } from "./Holds.ts"

const sentences: Readonly<Record<Refused, string>> = {
  retrying: "the broker refuses an event: its aggregate waits, and it is tried again",
  dead: "the broker refuses an event for good: it is a dead letter, and its aggregate waits for an operator",
  skipped: "the broker refuses an event for good: it is a dead letter, and its aggregate goes on without it",
  gone: "the broker refuses an event that somebody else has dealt with meanwhile"
}

export const logRefusal = (
  event: QueuedEvent,
  attempt: number,
  error: MessageRejected,
  outcome: Refused
): Effect.Effect<void> =>
  (outcome === "dead" || outcome === "skipped" ? Effect.logError : Effect.logWarning)(sentences[outcome]).pipe(
    Effect.annotateLogs({
      topic: event.topic,
      event_id: event.eventId,
      event_type: event.eventType,
      aggregate_id: event.aggregateId,
      trace_id: event.traceId,
      attempt,
      detail: error.message
    })
  )
