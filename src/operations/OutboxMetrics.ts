/**
 * The outbox's metrics beside those that the dispatcher counts: how long events take to the broker. Every series starts at 0, because an
 * alert's rule needs a value from before the first failure.
 */
import { Clock, Effect, Layer, Metric, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { batchSeconds, failedTotal, publishedTotal } from "../outbox/Dispatcher.ts"
import { eventTypeLabel } from "../outbox/EventTypeLabel.ts"
import { Publisher } from "../outbox/Publisher.ts"
import * as Rows from "../platform/Rows.ts"
import * as Supervised from "../platform/Supervised.ts"

/** The ways in which a send fails. */
const reasons = ["BrokerUnavailable", "TopicUnavailable", "MessageRejected"] as const

/** From a send right after the commit to an outage of minutes. */
const publishLatency = Metric.histogram("outbox_publish_latency_seconds", {
  description:
    "Of each acknowledged send, the time since its first event was written (just before its commit), by the database's clock",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600]
})

/** How often the database's clock is read while events are published: two clocks drift by less than a millisecond in that time. */
const sampleMillis = 5_000

/** A slower answer does not say precisely enough when the clock was read. */
const maxRoundTripMillis = 250

const oneNow = Rows.one(Schema.Struct({ now: Schema.Number }))

/**
 * Measures the {@link Publisher}: the time from `occurred_at`, which the database's clock wrote, to the acknowledgement, by the same clock.
 *
 * **Details**
 *
 * The database's clock is not read for each send. Its difference from this process's clock is measured every few seconds while events are
 * published. Only the first event of a send counts: it has waited longest.
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
        const { now } = yield* oneNow(sql`SELECT (extract(epoch FROM clock_now()) * 1000)::float8 AS now`)
        const after = yield* Clock.currentTimeMillis
        if (aheadMillis === undefined || after - before <= maxRoundTripMillis) {
          aheadMillis = now - (before + after) / 2
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

/** Starts every series of these event types at 0. */
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
