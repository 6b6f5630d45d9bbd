/**
 * The dispatcher: moves committed events from the queue to the broker, in order per aggregate, at least once.
 *
 * Four rules keep the order, with any number of dispatchers and without a lock over the send:
 *
 * 1. a batch is a version-prefix of each aggregate's unpublished events (the fetch, checked below);
 * 2. an event is marked only after its ack;
 * 3. one batch is in flight per lane and topic (LaneWorkers: one owner per lane, one worker per lane);
 * 4. one aggregate's part of a batch is appended whole (one lane lies in one partition, one send is one record batch).
 *
 * So a dispatcher that lost its lane and does not know it yet can only repeat what its successor sends too: by 1 and 4 it starts
 * each aggregate at the oldest unmarked event, and by 2 nothing is taken from the queue that the broker does not have. Readers
 * see duplicates, never a newer event before an older one's first delivery.
 */
import { Array, Clock, Context, Effect, Layer, Metric, Ref } from "effect"
import { Faults } from "../../platform/Faults.ts"
import * as Supervised from "../../platform/Supervised.ts"
import type { PublishError } from "../broker/Broker.ts"
import type { Lane } from "./Lane.ts"
import type { NonEmpty } from "./Outbox.ts"
import { OutboxQueue, type QueuedEvent } from "./OutboxQueue.ts"
import { Publisher } from "./Publisher.ts"

/** The full-jitter backoff of a topic that can't be reached. */
export const DispatcherSettings = Context.Reference<{
  readonly backoffBaseMillis: number
  readonly backoffCapMillis: number
}>("paid-once/messaging/outbox/DispatcherSettings", {
  // A broker that comes back is noticed within half a minute, and one that stays away costs next to nothing.
  defaultValue: () => ({ backoffBaseMillis: 100, backoffCapMillis: 30_000 })
})

/** A topic that waits for its next try. */
export interface PausedTopic {
  readonly topic: string
  /** Failures in a row. */
  readonly attempt: number
  readonly reason: string
}

interface Pause {
  readonly attempt: number
  readonly untilMillis: number
  readonly reason: string
}

const publishedTotal = Metric.counter("outbox_events_published_total", {
  description: "Events acknowledged by the broker",
  incremental: true
})
const failedTotal = Metric.counter("outbox_events_failed_total", {
  description: "Events in sends that failed",
  incremental: true
})
const batchSeconds = Metric.histogram("outbox_batch_duration_seconds", {
  description: "From fetch to mark of one batch",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
})

export class Dispatcher extends Context.Service<
  Dispatcher,
  {
    /**
     * Sends one batch per topic of the lane, if it has any, and marks it. Returns whether there may be more at once. A failure
     * pauses its topic; it burns nothing and loses nothing.
     */
    readonly drainOnce: (lane: Lane) => Effect.Effect<"idle" | "more">
    /** Topics that are not to be fetched now. */
    readonly pausedTopics: Effect.Effect<ReadonlyArray<string>>
    /** Topics whose last send failed, for health. */
    readonly pauses: Effect.Effect<ReadonlyArray<PausedTopic>>
  }
>()("paid-once/messaging/outbox/Dispatcher") {
  static readonly layer: Layer.Layer<Dispatcher, never, OutboxQueue | Publisher> = Layer.effect(
    Dispatcher,
    Effect.gen(function* () {
      const queue = yield* OutboxQueue
      const publisher = yield* Publisher
      const faults = yield* Faults
      const settings = yield* DispatcherSettings
      const pauses = yield* Ref.make<ReadonlyMap<string, Pause>>(new Map())

      const pausedTopics = Effect.flatMap(Clock.currentTimeMillis, (now) =>
        Effect.map(Ref.get(pauses), (map) =>
          [...map].filter(([, pause]) => pause.untilMillis > now).map(([topic]) => topic)
        )
      )

      /** Pauses the topic for a jittered while, longer each time in a row. Failures of one round count as one. */
      const pause = Effect.fnUntraced(function* (topic: string, error: PublishError) {
        const now = yield* Clock.currentTimeMillis
        const current = (yield* Ref.get(pauses)).get(topic)
        if (current !== undefined && current.untilMillis > now) return
        const attempt = (current?.attempt ?? 0) + 1
        const delay = yield* Supervised.fullJitterMillis(
          attempt - 1,
          settings.backoffBaseMillis,
          settings.backoffCapMillis
        )
        yield* Ref.update(pauses, (map) =>
          new Map(map).set(topic, { attempt, untilMillis: now + delay, reason: error.message })
        )
        yield* Effect.logWarning(`publishing to ${topic} failed; next try in ${Math.round(delay)} ms`).pipe(
          Effect.annotateLogs({ topic, attempt, reason: error._tag, detail: error.message })
        )
      })
      const resume = (topic: string) =>
        Ref.update(pauses, (map) => {
          if (!map.has(topic)) return map
          const rest = new Map(map)
          rest.delete(topic)
          return rest
        })

      const count = (
        metric: typeof publishedTotal,
        events: ReadonlyArray<QueuedEvent>,
        labels: Readonly<Record<string, string>>
      ) =>
        Effect.forEach(
          Object.entries(Array.groupBy(events, (event) => event.eventType)),
          ([event_type, group]) =>
            Metric.update(Metric.withAttributes(metric, { event_type, ...labels }), group.length),
          { discard: true }
        )

      const send = Effect.fnUntraced(function* (lane: Lane, topic: string, events: NonEmpty<QueuedEvent>) {
        const receipt = yield* publisher.publish(lane, topic, events)
        yield* faults.at("dispatcher.after-publish")
        yield* queue.mark(lane, events, receipt)
        yield* faults.at("dispatcher.after-mark")
        yield* resume(topic)
        yield* count(publishedTotal, events, {})
      })

      /**
       * Sends the events, in halves where the broker refuses them together: a topic's limit counts the batch, and may be lower than
       * ours. Left half before right: an event must not overtake an earlier one of its aggregate.
       */
      const sendInOrder = (
        lane: Lane,
        topic: string,
        events: NonEmpty<QueuedEvent>
      ): Effect.Effect<void, PublishError> =>
        Effect.catchTag(send(lane, topic, events), "MessageRejected", (rejected) => {
          const middle = Math.ceil(events.length / 2)
          const left = events.slice(0, middle)
          const right = events.slice(middle)
          return Array.isReadonlyArrayNonEmpty(left) && Array.isReadonlyArrayNonEmpty(right)
            ? Effect.andThen(sendInOrder(lane, topic, left), sendInOrder(lane, topic, right))
            : Effect.fail(rejected)
        })

      const drainOnce = Effect.fn("Dispatcher.drainOnce")(function* (lane: Lane) {
        const started = yield* Clock.currentTimeMillis
        const events = yield* queue.fetch(lane, yield* pausedTopics)
        if (!Array.isReadonlyArrayNonEmpty(events)) return "idle" as const
        yield* faults.at("dispatcher.after-fetch")
        const sent = yield* Effect.forEach(
          Object.entries(Array.groupBy(events, (event) => event.topic)),
          ([topic, batch]) =>
            Effect.suspend(() => {
              assertPrefix(batch)
              return sendInOrder(lane, topic, batch)
            }).pipe(
              Effect.as(true),
              Effect.catch((error) =>
                Effect.as(Effect.andThen(pause(topic, error), count(failedTotal, batch, { reason: error._tag })), false)
              )
            )
        )
        yield* Metric.update(batchSeconds, ((yield* Clock.currentTimeMillis) - started) / 1_000)
        // Whatever was cut off by the fetch's bounds is there at once; what was committed since comes with a wake-up, and what failed is
        // found by the poll after its pause.
        return sent.some(Boolean) && events.at(-1)?.followed === true ? ("more" as const) : ("idle" as const)
      })

      return Dispatcher.of({
        drainOnce,
        pausedTopics,
        pauses: Effect.map(Ref.get(pauses), (map) =>
          [...map].map(([topic, { attempt, reason }]) => ({ topic, attempt, reason }))
        )
      })
    })
  )
}

/**
 * Rule 1, where it is cheap to see: within a batch the versions of each aggregate follow one another. Anything else means that
 * the queue holds what could not have been committed, and sending it would break the order for good.
 */
const assertPrefix = (events: ReadonlyArray<QueuedEvent>): void => {
  const last = new Map<string, number>()
  for (const { aggregateId, aggregateType, aggregateVersion } of events) {
    const aggregate = `${aggregateType} ${aggregateId}`
    const before = last.get(aggregate)
    if (before !== undefined && aggregateVersion !== before + 1) {
      throw new Error(`${aggregate}: version ${aggregateVersion} follows ${before} in the queue`)
    }
    last.set(aggregate, aggregateVersion)
  }
}
