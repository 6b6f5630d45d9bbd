/**
 * The dispatcher: moves committed events from the queue to the broker, in order per aggregate, at least once.
 *
 * Four rules keep the order, with any number of dispatchers and without a lock over the send:
 *
 * 1. a batch is a version-prefix of each aggregate's unpublished events (the fetch, checked below);
 * 2. an event is marked only after its ack;
 * 3. one batch is in flight per lane and topic (one owner per lane, one worker per lane here);
 * 4. one aggregate's part of a batch is appended whole (one lane lies in one partition, one send is one record batch).
 *
 * So a dispatcher that lost its lane and does not know it yet can only repeat what its successor sends too: by 1 and 4 it starts
 * each aggregate at the oldest unmarked event, and by 2 nothing is taken from the queue that the broker does not have. Readers
 * see duplicates, never a newer event before an older one's first delivery.
 */
import { Array, Clock, Context, Effect, Layer, Metric, Option, Queue, Ref } from "effect"
import { Shares } from "../../platform/database/Shares.ts"
import { Faults } from "../../platform/Faults.ts"
import * as Supervised from "../../platform/Supervised.ts"
import type { PublishError } from "../broker/Broker.ts"
import { Lane, laneCount } from "./Lane.ts"
import type { NonEmpty } from "./Outbox.ts"
import { OutboxQueue, type QueuedEvent } from "./OutboxQueue.ts"
import { Publisher } from "./Publisher.ts"
import { Wakeup } from "./Wakeup.ts"

/** How the dispatcher paces itself. */
export const DispatcherSettings = Context.Reference<{
  /** The net under lost wake-ups: how often all owned lanes are looked at. */
  readonly pollMillis: number
  /** Lanes drained side by side: sends in flight. */
  readonly lanesSideBySide: number
  /** Full-jitter backoff of a topic that can't be reached. */
  readonly backoffBaseMillis: number
  readonly backoffCapMillis: number
  /** Topics that are looked at (and made) before the first event. */
  readonly topics: ReadonlyArray<string>
}>("paid-once/messaging/outbox/DispatcherSettings", {
  defaultValue: () => ({
    pollMillis: 1_000,
    // Eight keep a broker and two cores busy; more only queue in the client.
    lanesSideBySide: 8,
    backoffBaseMillis: 100,
    // A broker that comes back is noticed within half a minute, and one that stays away costs next to nothing.
    backoffCapMillis: 30_000,
    topics: []
  })
})

/** What the dispatcher of this process is doing, for health. */
export interface DispatcherState {
  readonly lanes: ReadonlyArray<number>
  readonly pausedTopics: ReadonlyArray<{ readonly topic: string; readonly attempt: number; readonly reason: string }>
}

interface Pause {
  readonly attempt: number
  readonly untilMillis: number
  readonly reason: string
}

const publishedTotal = Metric.counter("outbox_events_published_total", { description: "Events acknowledged by the broker", incremental: true })
const failedTotal = Metric.counter("outbox_events_failed_total", { description: "Events in sends that failed", incremental: true })
const pendingGauge = Metric.gauge("outbox_events_pending", { description: "Events in the queue, sampled" })
const oldestGauge = Metric.gauge("outbox_oldest_pending_age_seconds", { description: "Age of the oldest event in the queue, sampled" })
const batchSeconds = Metric.histogram("outbox_batch_duration_seconds", {
  description: "From fetch to mark of one batch",
  boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
})

/** A worker that got no lane looks up this often, so that its silence means that it hangs. */
const idleMillis = 5_000

/** How often the queue's length is sampled: often enough for an alert of minutes, seldom enough to cost nothing. */
const sampleMillis = 5_000

export class Dispatcher extends Context.Service<
  Dispatcher,
  {
    /**
     * Sends one batch per topic of the lane, if it has any, and marks it. Returns whether there may be more at once. A failure
     * pauses its topic; it burns nothing and loses nothing.
     */
    readonly drainOnce: (lane: Lane) => Effect.Effect<"idle" | "more">
    readonly state: Effect.Effect<DispatcherState>
  }
>()("paid-once/messaging/outbox/Dispatcher") {
  /** Runs the dispatcher in supervised fibers of the layer's scope. Closing it ends the batches in flight, then frees the lanes. */
  static readonly layer: Layer.Layer<Dispatcher, never, OutboxQueue | Publisher | Wakeup | Shares | Supervised.Fibers> = Layer
    .effect(
      Dispatcher,
      Effect.gen(function*() {
        const queue = yield* OutboxQueue
        const publisher = yield* Publisher
        const wakeup = yield* Wakeup
        const faults = yield* Faults
        const settings = yield* DispatcherSettings
        const pauses = yield* Ref.make<ReadonlyMap<string, Pause>>(new Map())

        const pausedTopics = Effect.flatMap(Clock.currentTimeMillis, (now) =>
          Effect.map(Ref.get(pauses), (map) =>
            [...map].filter(([, pause]) => pause.untilMillis > now).map(([topic]) => topic)))

        /** Pauses the topic for a jittered while, longer each time in a row. Failures of one round count as one. */
        const pause = Effect.fnUntraced(function*(topic: string, error: PublishError) {
          const now = yield* Clock.currentTimeMillis
          const current = (yield* Ref.get(pauses)).get(topic)
          if (current !== undefined && current.untilMillis > now) return
          const attempt = (current?.attempt ?? 0) + 1
          const delay = yield* Supervised.fullJitterMillis(attempt - 1, settings.backoffBaseMillis, settings.backoffCapMillis)
          yield* Ref.update(pauses, (map) =>
            new Map(map).set(topic, { attempt, untilMillis: now + delay, reason: error.message }))
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

        const count = (metric: typeof publishedTotal, events: ReadonlyArray<QueuedEvent>, labels: Readonly<Record<string, string>>) =>
          Effect.forEach(
            Object.entries(Array.groupBy(events, (event) => event.eventType)),
            ([event_type, group]) => Metric.update(Metric.withAttributes(metric, { event_type, ...labels }), group.length),
            { discard: true }
          )

        const send = Effect.fnUntraced(function*(lane: Lane, topic: string, events: NonEmpty<QueuedEvent>) {
          assertPrefix(events)
          const receipt = yield* publisher.publish(lane, topic, events)
          yield* faults.at("dispatcher.after-publish")
          yield* queue.mark(lane, events, receipt)
          yield* faults.at("dispatcher.after-mark")
          yield* resume(topic)
          yield* count(publishedTotal, events, {})
        })

        const drainOnce = Effect.fn("Dispatcher.drainOnce")(function*(lane: Lane) {
          const started = yield* Clock.currentTimeMillis
          const events = yield* queue.fetch(lane, yield* pausedTopics)
          if (!Array.isReadonlyArrayNonEmpty(events)) return "idle" as const
          yield* faults.at("dispatcher.after-fetch")
          const sent = yield* Effect.forEach(Object.entries(Array.groupBy(events, (event) => event.topic)), ([topic, batch]) =>
            send(lane, topic, batch).pipe(
              Effect.as(true),
              Effect.catch((error) =>
                Effect.as(Effect.andThen(pause(topic, error), count(failedTotal, batch, { reason: error._tag })), false)
              )
            ))
          yield* Metric.update(batchSeconds, ((yield* Clock.currentTimeMillis) - started) / 1_000)
          // Whatever was cut off by the fetch's bounds is there at once; what failed is found by the poll after its pause.
          return sent.some(Boolean) ? "more" as const : "idle" as const
        })

        const membership = yield* (yield* Shares).join("dispatcher", laneCount)
        const heldLanes = Effect.map(membership.held, (shares) => shares.map((share) => Lane.make(share)))

        // FIFO among ready lanes: a lane stands in the line at most once, so a busy one can't crowd out the others.
        const line = yield* Queue.bounded<Lane>(laneCount)
        const queued = new Set<Lane>()
        const inFlight = new Set<Lane>()
        const again = new Set<Lane>()
        const enqueue = (lane: Lane) =>
          Effect.suspend(() => {
            if (inFlight.has(lane)) {
              again.add(lane)
              return Effect.void
            }
            if (queued.has(lane)) return Effect.void
            queued.add(lane)
            return Effect.asVoid(Queue.offer(line, lane))
          })

        const work = (lane: Lane) =>
          Effect.suspend(() => {
            queued.delete(lane)
            inFlight.add(lane)
            return membership.use(lane, drainOnce(lane))
          }).pipe(
            Effect.ensuring(Effect.sync(() => inFlight.delete(lane))),
            Effect.flatMap((result) =>
              again.delete(lane) || Option.getOrUndefined(result) === "more" ? enqueue(lane) : Effect.void)
          )

        yield* wakeup.onWake(enqueue)
        for (let worker = 0; worker < settings.lanesSideBySide; worker++) {
          yield* Supervised.forkLoop(
            `dispatcher worker ${worker}`,
            Effect.flatMap(Effect.timeoutOption(Queue.take(line), idleMillis), (lane) =>
              // A batch in flight is not cut off by a stop: the lane stays held, and nothing is sent twice because of it.
              Option.isSome(lane) ? Effect.uninterruptible(work(lane.value)) : Effect.void)
          )
        }
        yield* Supervised.forkLoop(
          "dispatcher poll",
          Effect.gen(function*() {
            const lanes = yield* heldLanes
            const ready = lanes.length === 0 ? [] : yield* queue.ready(lanes, yield* pausedTopics)
            yield* Effect.forEach(ready, enqueue, { discard: true })
            yield* Effect.sleep(settings.pollMillis)
          })
        )
        yield* Supervised.forkLoop(
          "dispatcher metrics",
          Effect.gen(function*() {
            const pending = yield* queue.pending
            yield* Metric.update(pendingGauge, pending.count)
            yield* Metric.update(oldestGauge, pending.oldestSeconds)
            yield* Effect.sleep(sampleMillis)
          })
        )
        yield* Supervised.forkLoop(
          "dispatcher topics",
          Effect.andThen(Effect.forEach(settings.topics, publisher.prepare, { discard: true }), Effect.sleep(idleMillis))
        )

        return Dispatcher.of({
          drainOnce,
          state: Effect.all({
            lanes: membership.held,
            pausedTopics: Effect.map(Ref.get(pauses), (map) =>
              [...map].map(([topic, { attempt, reason }]) => ({ topic, attempt, reason })))
          })
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
  for (const { aggregateId, aggregateVersion } of events) {
    const before = last.get(aggregateId)
    if (before !== undefined && aggregateVersion !== before + 1) {
      throw new Error(`aggregate ${aggregateId}: version ${aggregateVersion} follows ${before} in the queue`)
    }
    last.set(aggregateId, aggregateVersion)
  }
}
