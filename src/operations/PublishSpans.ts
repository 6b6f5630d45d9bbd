/** Spans of publishing: one for each event, in the trace of the request that wrote it. */
import { Clock, Effect, Exit, Layer, Option, Tracer, Context } from "effect"
import type { StoredEvent } from "../brokers/Envelope.ts"
import { Publisher } from "../outbox/Publisher.ts"
import * as Tracing from "../platform/Tracing.ts"

/**
 * Adds spans to the {@link Publisher} where a tracer is installed. Without one it is the publisher itself.
 *
 * A batch has events of many traces. Each event gets a span with the times of the send and the offset of its own record. A failed send, which
 * is repeated, gets a span for its first event only.
 */
export const layer: Layer.Layer<Publisher, never, Publisher> = Layer.effect(
  Publisher,
  Effect.gen(function* () {
    const publisher = yield* Publisher
    const tracer = yield* Tracing.exporter
    if (tracer === undefined) return publisher
    const clock = yield* Clock.Clock

    const begin = (topic: string, event: StoredEvent, startTime: bigint) => {
      const span = tracer.span({
        name: `publish ${topic}`,
        parent: Option.some(Tracer.externalSpan({ traceId: event.traceId, spanId: event.spanId })),
        annotations: Context.empty(),
        links: [],
        startTime,
        kind: "producer",
        root: false,
        sampled: true
      })
      span.attribute("messaging.destination.name", topic)
      span.attribute("event_id", event.eventId)
      span.attribute("event_type", event.eventType)
      span.attribute("aggregate_id", event.aggregateId)
      return span
    }

    return Publisher.of({
      ...publisher,
      publish: Effect.fnUntraced(function* (batch) {
        const { events, topic } = batch
        const startTime = clock.currentTimeNanosUnsafe()
        const exit = yield* Effect.exit(publisher.publish(batch))
        const endTime = clock.currentTimeNanosUnsafe()
        if (Exit.isFailure(exit)) begin(topic, events[0], startTime).end(endTime, exit)
        else {
          const { baseOffset, partition } = exit.value
          events.forEach((event, index) => {
            const span = begin(topic, event, startTime)
            span.attribute("messaging.destination.partition.id", String(partition))
            span.attribute("messaging.offset", String(baseOffset + BigInt(index)))
            span.end(endTime, exit)
          })
        }
        return yield* exit
      })
    })
  })
)
