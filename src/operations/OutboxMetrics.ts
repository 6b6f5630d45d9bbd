/**
 * The outbox's metrics: what is published and what fails, how long a batch takes and how long events take to the broker, and how much waits. Every
 * series is there at 0 from the start, so that a rule over it has something to compare with before the first failure.
 *
 * Decorates {@link Queue} and {@link Publisher}. Without it nothing is counted.
 */
import { Clock, Context, Effect, Layer, Metric, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Holds } from "../outbox/holds/Holds.ts"
import { Publisher } from "../outbox/Publisher.ts"
import { Queue, type QueuedEvent, wholeQueue } from "../outbox/Queue.ts"
import { seriesOf } from "../platform/MetricSeries.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Rows from "../platform/Rows.ts"
import * as Supervised from "../platform/Supervised.ts"
import { eventTypeLabel } from "./EventTypeLabel.ts"

const published = seriesOf(
  (attributes) =>
    Metric.counter("outbox_events_published_total", {
      description: "Events acknowledged by the broker",
      incremental: true,
      attributes
    }),
  ["event_type"]
)
const failed = seriesOf(
  (attributes) =>
    Metric.counter("outbox_events_failed_total", {
      description: "Events in sends that failed; of refusals, only those of an event by itself",
      incremental: true,
      attributes
    }),
  ["event_type", "reason"]
)
const batchSeconds = Metric.histogram("outbox_batch_duration_seconds", {
  description: "From fetch to mark of one batch, of which up to 20 ms are a wait for other marks",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
})
const pendingGauge = Metric.gauge("outbox_events_pending", { description: "Events in the queue, sampled" })
const oldestGauge = Metric.gauge("outbox_oldest_pending_age_seconds", {
  description: "Age of the oldest event in the queue, sampled"
})
const parkedGauge = Metric.gauge("outbox_events_parked", {
  description: "Events that were refused or wait behind one that was, sampled"
})
const deadGauge = Metric.gauge("outbox_dead_letters", { description: "Events that wait for an operator, sampled" })

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
      const clock = yield* Clock.Clock
      const services = yield* Effect.context()
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
        publish: (batch) =>
          Effect.map(publisher.publish(batch), (receipt) => {
            published = true
            if (aheadMillis !== undefined) {
              const tookMillis = clock.currentTimeMillisUnsafe() + aheadMillis - Date.parse(batch.events[0].occurredAt)
              publishLatency.updateUnsafe(Math.max(0, tookMillis) / 1_000, services)
            }
            return receipt
          })
      })
    })
  )

/** Counts the events, type by type. Plain code, like all metrics of each turn: an effect for each costs as much as the count. */
const count = (
  events: ReadonlyArray<QueuedEvent>,
  series: (eventType: string) => ReturnType<typeof published>,
  services: Context.Context<never>
) => {
  for (const [eventType, { length }] of Map.groupBy(events, ({ eventType }) => eventType)) {
    series(eventTypeLabel(eventType)).updateUnsafe(length, services)
  }
}

/** Counts what is published and what fails, and measures each batch from its fetch to its mark. */
export const layerCounts: Layer.Layer<Queue | Publisher, never, Queue | Publisher> = Layer.effectContext(
  Effect.gen(function* () {
    const queue = yield* Queue
    const publisher = yield* Publisher
    const clock = yield* Clock.Clock
    const services = yield* Effect.context()
    const fetchedMillis = new WeakMap<QueuedEvent, number>()
    return Context.make(
      Publisher,
      Publisher.of({
        ...publisher,
        publish: (batch) =>
          publisher.publish(batch).pipe(
            Effect.map((receipt) => {
              count(batch.events, published, services)
              return receipt
            }),
            Effect.tapError((error) =>
              Effect.sync(() => {
                // A batch that is refused is sent again in pieces.
                if (error._tag === "MessageRejected" && batch.events.length > 1) return
                count(batch.events, (eventType) => failed(eventType, error._tag), services)
              })
            )
          )
      })
    ).pipe(
      Context.add(
        Queue,
        Queue.of({
          ...queue,
          fetch: (parts, without) =>
            Effect.suspend(() => {
              const began = Monotonic.millisUnsafe(clock)
              return Effect.map(queue.fetch(parts, without), (fetched) => {
                for (const { events } of fetched) for (const event of events) fetchedMillis.set(event, began)
                return fetched
              })
            }),
          mark: (runs) =>
            Effect.suspend(() => {
              // All of a batch were fetched together, and a fetch has one batch of a partition, or a few that are as slow.
              const batches = new Map(
                runs.map(({ events: [event], receipt, topic }) => {
                  const began = event && fetchedMillis.get(event)
                  return [`${topic}/${receipt.partition}/${began}`, began]
                })
              )
              return Effect.map(queue.mark(runs), () => {
                const now = Monotonic.millisUnsafe(clock)
                for (const began of batches.values())
                  batchSeconds.updateUnsafe((now - (began ?? now)) / 1_000, services)
              })
            })
        })
      )
    )
  })
)

/** How often the queue's length is sampled: often enough for an alert of minutes, seldom enough to cost nothing. */
const sizeMillis = 5_000

/** Samples how much waits. */
export const layerSizes: Layer.Layer<never, never, Queue | Holds | Supervised.Fibers> = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* Queue
    const holds = yield* Holds
    yield* Supervised.forkLoop(
      "outbox sizes",
      Effect.gen(function* () {
        const pending = yield* queue.pending(wholeQueue)
        yield* Metric.update(pendingGauge, pending.count)
        yield* Metric.update(oldestGauge, pending.oldestSeconds)
        const { dead, parked } = yield* holds.counts
        yield* Metric.update(parkedGauge, parked)
        yield* Metric.update(deadGauge, dead)
        yield* Effect.sleep(sizeMillis)
      })
    )
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
        yield* Metric.value(published(event_type))
        for (const reason of reasons) yield* Metric.value(failed(event_type, reason))
      }
    })
  )
