/**
 * The outbox's metrics beside those that the dispatcher counts itself: how long events take to the broker, and every series at 0 from
 * the start, so that a rule over it has something to compare with before the first failure.
 */
import { Clock, Effect, Layer, Metric } from "effect"
import { SqlClient } from "effect/sql"
import { batchSeconds, failedTotal, publishedTotal } from "../outbox/Dispatcher.ts"
import { eventTypeLabel } from "../outbox/EventTypeLabel.ts"
import { Publisher } from "../outbox/Publisher.ts"
import * as Supervised from "../platform/Supervised.ts"

/** The ways in which a send fails. */
const reasons = ["BrokerUnavailable", "TopicUnavailable", "MessageRejected"] as const

/** From the wake-up that finds everything ready to an outage that lasts. */
const publishLatency = Metric.histogram("outbox_publish_latency_seconds", {
  description:
    "Of each acknowledged send, the time since its first event was written (just before its commit), by the database's clock",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600]
})

/** How often the database's clock is read where something was published since: two clocks drift by less than a millisecond in between. */
const sampleMillis = 5_000

/** An answer that took longer says too little about when the clock was read. */
const maxRoundTripMillis = 250

/**
 * Puts a stopwatch around the {@link Publisher}: from `occurred_at`, which the database's clock wrote, to the ack, by the same clock.
 *
 * **Details**
 *
 * The clock is not asked for each send: its distance from this process's own is measured every few seconds while something is published.
 * Of a send only the first event counts, which waited longest; to look at each would cost more than it tells.
 */
export const layerLatency: Layer.Layer<Publisher, never, Publisher | SqlClient.SqlClient | Supervised.Fibers> =
  Layer.effect(
    Publisher,
    Effect.gen(function* () {
      const publisher = yield* Publisher
      const sql = yield* SqlClient.SqlClient
      let aheadMillis: number | undefined
      let published = true

      const measure = Effect.gen(function* () {
        const before = yield* Clock.currentTimeMillis
        const [row] = yield* sql<{
          readonly now: number
        }>`SELECT (extract(epoch FROM clock_now()) * 1000)::float8 AS now`
        const after = yield* Clock.currentTimeMillis
        if (aheadMillis === undefined || after - before <= maxRoundTripMillis) {
          aheadMillis = row!.now - (before + after) / 2
        }
      })
      yield* Supervised.forkLoop(
        "publish latency",
        Effect.gen(function* () {
          if (published) yield* measure
          published = false
          yield* Effect.sleep(sampleMillis)
        })
      )

      return Publisher.of({
        ...publisher,
        publish: Effect.fnUntraced(function* (lane, topic, events) {
          const receipt = yield* publisher.publish(lane, topic, events)
          published = true
          if (aheadMillis !== undefined) {
            const ackedMillis = (yield* Clock.currentTimeMillis) + aheadMillis
            yield* Metric.update(publishLatency, Math.max(0, ackedMillis - Date.parse(events[0].occurredAt)) / 1_000)
          }
          return receipt
        })
      })
    })
  )

/** Every series of these event types, at 0 until something happens. */
export const layerZero = (eventTypes: ReadonlyArray<string>): Layer.Layer<never> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      yield* Metric.value(batchSeconds)
      yield* Metric.value(publishLatency)
      for (const eventType of eventTypes) {
        const event_type = eventTypeLabel(eventType)
        yield* Metric.value(Metric.withAttributes(publishedTotal, { event_type }))
        for (const reason of reasons) yield* Metric.value(Metric.withAttributes(failedTotal, { event_type, reason }))
      }
    })
  )
