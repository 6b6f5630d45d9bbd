/**
 * The dispatcher: moves committed events from the queue to the broker, in order per aggregate, at least once.
 *
 * Four rules keep the order, with any number of dispatchers and without a lock over the send:
 *
 * 1. a batch is a version-prefix of each aggregate's unpublished events (the fetch, checked below);
 * 2. an event is marked only after its ack;
 * 3. one batch is in flight per lane and topic (LaneWorkers: one owner per lane, one worker per lane; checked below within a process);
 * 4. one aggregate's part of a batch is appended whole (one lane lies in one partition, one send is one record batch).
 *
 * So a dispatcher that lost its lane and does not know it yet can only repeat: whatever comes before an event of a batch was marked when the
 * batch was fetched, and then the broker had it (2), or stands in front of it in the batch (1), which lands whole (4) or piece after
 * piece (3). Readers see duplicates, never a newer event before an older one's first delivery.
 *
 * An outage is not a poison message. What says nothing about the data (`BrokerUnavailable`, `TopicUnavailable`) pauses its topic and
 * burns nothing. Only an event that is refused when it is sent alone counts an attempt, and its aggregate steps aside (Holds.ts).
 */
import type { PgClient } from "@effect/sql-pg"
import { Array, Clock, Context, Effect, Layer, Metric, Ref, Result } from "effect"
import { Faults } from "../../platform/Faults.ts"
import * as Supervised from "../../platform/Supervised.ts"
import type { BrokerUnavailable, MessageRejected, PublishError, TopicUnavailable } from "../broker/Broker.ts"
import { dueLimit, type HeldEvent, Holds, type Refused } from "./Holds.ts"
import type { Lane } from "./Lane.ts"
import type { NonEmpty } from "./Outbox.ts"
import { OutboxQueue, type QueuedEvent } from "./OutboxQueue.ts"
import { Publisher } from "./Publisher.ts"
import { eventTypeLabel } from "./EventTypeLabel.ts"

/** The full-jitter backoff of a topic that can't be reached. */
export const DispatcherSettings = Context.Reference<{
  readonly backoffBaseMillis: number
  readonly backoffCapMillis: number
}>("paid-once/messaging/outbox/DispatcherSettings", {
  // A broker that comes back is noticed within half a minute, and one that stays away costs next to nothing.
  defaultValue: () => ({ backoffBaseMillis: 100, backoffCapMillis: 30_000 })
})

/**
 * How a batch that the broker refuses is divided: the parts in the order in which they are sent. Left before right, for an event must
 * not overtake an earlier one of its aggregate. A reference of its own, so that a test can show what the other order does.
 */
export const Halves = Context.Reference<
  (events: ReadonlyArray<QueuedEvent>) => readonly [ReadonlyArray<QueuedEvent>, ReadonlyArray<QueuedEvent>]
>("paid-once/messaging/outbox/Halves", {
  defaultValue: () => (events) => {
    const middle = Math.ceil(events.length / 2)
    return [events.slice(0, middle), events.slice(middle)]
  }
})

/** Whether rule 3 is checked. A reference of its own, so that a test can show what two batches in flight do. */
export const OneInFlight = Context.Reference<boolean>("paid-once/messaging/outbox/OneInFlight", {
  defaultValue: () => true
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
  description: "Events in sends that failed; of refusals, only those of an event by itself",
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
     * Sends one batch per topic of the lane, if it has any, and marks it. Returns whether there may be more at once. An outage
     * pauses its topic; it burns nothing and loses nothing. An event that is refused makes its aggregate wait, and no other.
     */
    readonly drainOnce: (lane: Lane) => Effect.Effect<"idle" | "more">
    /**
     * Sends the lane's refused events whose next try is due, each alone: a few of them, the longest due first. For a caller that has
     * the lane as it has for {@link drainOnce}, and no batch of it in flight.
     */
    readonly retryHeld: (lane: Lane) => Effect.Effect<void>
    /** Topics that are not to be fetched now. */
    readonly pausedTopics: Effect.Effect<ReadonlyArray<string>>
    /** Topics whose last send failed, for health. */
    readonly pauses: Effect.Effect<ReadonlyArray<PausedTopic>>
    /** Lanes in which aggregates are not sent because their versions fall in the queue, as of each lane's last turn here, for health. */
    readonly misordered: Effect.Effect<ReadonlyArray<{ readonly lane: Lane; readonly aggregates: number }>>
  }
>()("paid-once/messaging/outbox/Dispatcher") {
  static readonly layerNoDeps: Layer.Layer<Dispatcher, never, OutboxQueue | Publisher | Holds> = Layer.effect(
    Dispatcher,
    Effect.gen(function* () {
      const queue = yield* OutboxQueue
      const publisher = yield* Publisher
      const holds = yield* Holds
      const faults = yield* Faults
      const settings = yield* DispatcherSettings
      const halves = yield* Halves
      const oneInFlight = yield* OneInFlight
      const pauses = yield* Ref.make<ReadonlyMap<string, Pause>>(new Map())

      const inFlight = new Set<Lane>()
      /** Rule 3, as far as this process can see it: what would come beside a batch of the lane is a defect, and sends nothing. */
      const alone = <A>(lane: Lane, effect: Effect.Effect<A>): Effect.Effect<A> =>
        Effect.acquireUseRelease(
          Effect.sync(() => {
            if (oneInFlight && inFlight.has(lane)) throw new Error(`lane ${lane} has a batch in flight already`)
            inFlight.add(lane)
          }),
          () => effect,
          () => Effect.sync(() => inFlight.delete(lane))
        )

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
            Metric.update(
              Metric.withAttributes(metric, { event_type: eventTypeLabel(event_type), ...labels }),
              group.length
            ),
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

      /** Tells what became of an event that was refused alone. */
      const tell = Effect.fnUntraced(function* (
        event: QueuedEvent,
        attempt: number,
        error: MessageRejected,
        outcome: Refused
      ) {
        yield* count(failedTotal, [event], { reason: error._tag })
        yield* Effect.logWarning(tellings[outcome]).pipe(
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
      })

      /**
       * Sends the events, in halves where the broker refuses them together: a topic's limit counts the batch, and may be lower than
       * ours. Left half before right: an event must not overtake an earlier one of its aggregate. One that is refused alone makes its
       * aggregate step aside, and `aside` keeps what comes behind it from being sent in its batch.
       */
      const sendInOrder = (
        lane: Lane,
        topic: string,
        batch: ReadonlyArray<QueuedEvent>,
        aside: Set<string>
      ): Effect.Effect<void, BrokerUnavailable | TopicUnavailable> =>
        Effect.suspend(() => {
          const events = aside.size === 0 ? batch : batch.filter((event) => !aside.has(aggregateOf(event)))
          if (!Array.isReadonlyArrayNonEmpty(events)) return Effect.void
          return Effect.catchTag(send(lane, topic, events), "MessageRejected", (rejected) => {
            const [first, second] = events
            if (second === undefined) {
              aside.add(aggregateOf(first))
              return holds.hold(lane, first, rejected).pipe(
                Effect.flatMap((outcome) => tell(first, 1, rejected, outcome)),
                Effect.andThen(faults.at("dispatcher.after-hold"))
              )
            }
            const [left, right] = halves(events)
            return Effect.andThen(sendInOrder(lane, topic, left, aside), sendInOrder(lane, topic, right, aside))
          })
        })

      const misordered = new Map<Lane, ReadonlyMap<string, string>>()
      /** Says once what is wrong with an aggregate, and keeps it for health until it is right. */
      const tellOfWrong = (lane: Lane, wrong: ReadonlyMap<string, string>) =>
        Effect.suspend(() => {
          const known = misordered.get(lane)
          if (wrong.size === 0) misordered.delete(lane)
          else misordered.set(lane, wrong)
          return Effect.forEach(
            [...wrong].filter(([aggregate]) => known?.has(aggregate) !== true),
            ([, sentence]) =>
              Effect.logError(`an aggregate is not sent any more, for its versions do not rise: ${sentence}`).pipe(
                Effect.annotateLogs({ lane })
              ),
            { discard: true }
          )
        })

      const drainOnce = Effect.fnUntraced(function* (lane: Lane) {
        const started = yield* Clock.currentTimeMillis
        const fetched = yield* queue.fetch(lane, yield* pausedTopics)
        if (fetched.length === 0) {
          misordered.delete(lane)
          return "idle" as const
        }
        yield* faults.at("dispatcher.after-fetch")
        const held = fetched.filter((event) => event.held === true)
        const free = held.length === 0 ? fetched : fetched.filter((event) => event.held !== true)
        const wrong = fallenIn(free)
        yield* tellOfWrong(lane, wrong)
        const events = wrong.size === 0 ? free : free.filter((event) => !wrong.has(aggregateOf(event)))
        const parked = held.length === 0 ? 0 : yield* holds.park(lane, held)
        const sent = yield* Effect.forEach(
          Object.entries(Array.groupBy(events, (event) => event.topic)),
          ([topic, batch]) =>
            sendInOrder(lane, topic, batch, new Set()).pipe(
              Effect.as(true),
              Effect.catch((error) =>
                Effect.as(Effect.andThen(pause(topic, error), count(failedTotal, batch, { reason: error._tag })), false)
              )
            )
        )
        yield* Metric.update(batchSeconds, ((yield* Clock.currentTimeMillis) - started) / 1_000)
        // Whatever was cut off by the fetch's bounds is there at once; what was committed since comes with a wake-up, and what failed is
        // found by the poll after its pause.
        const isCut = fetched.at(-1)?.followed === true
        return isCut && (parked > 0 || sent.some(Boolean)) ? ("more" as const) : ("idle" as const)
      })

      /** One more send of a refused event, by itself. */
      const retry = Effect.fnUntraced(function* (lane: Lane, event: HeldEvent) {
        const sent = yield* Effect.result(publisher.publish(lane, event.topic, [event]))
        if (Result.isSuccess(sent)) {
          yield* faults.at("dispatcher.after-publish")
          const released = yield* holds.published(event, sent.success)
          yield* faults.at("dispatcher.after-release")
          yield* resume(event.topic)
          if (released) yield* count(publishedTotal, [event], {})
        } else if (sent.failure._tag === "MessageRejected") {
          yield* tell(event, event.attempts + 1, sent.failure, yield* holds.rejected(event, sent.failure))
        } else {
          // No answer about the event: nothing is counted, and it stays due for when its topic is back.
          yield* pause(event.topic, sent.failure)
          yield* count(failedTotal, [event], { reason: sent.failure._tag })
        }
      })

      const retryHeld = Effect.fnUntraced(function* (lane: Lane) {
        // Looked up anew before each send: what an operator has discarded meanwhile must not be sent any more.
        for (let turn = 0; turn < dueLimit; turn++) {
          const [event] = yield* holds.due(lane, yield* pausedTopics)
          if (event === undefined) return
          yield* retry(lane, event)
        }
      })

      return Dispatcher.of({
        drainOnce: (lane) => alone(lane, drainOnce(lane)),
        retryHeld: (lane) => alone(lane, retryHeld(lane)),
        pausedTopics,
        misordered: Effect.sync(() => [...misordered].map(([lane, { size }]) => ({ lane, aggregates: size }))),
        pauses: Effect.map(Ref.get(pauses), (map) =>
          [...map].map(([topic, { attempt, reason }]) => ({ topic, attempt, reason }))
        )
      })
    })
  )

  /** With its holds, which the lanes' workers ask for the next due time. */
  static readonly layer: Layer.Layer<Dispatcher | Holds, never, OutboxQueue | Publisher | PgClient.PgClient> =
    Dispatcher.layerNoDeps.pipe(Layer.provideMerge(Holds.layer))
}

const aggregateOf = ({ aggregateId, aggregateType }: QueuedEvent): string => `${aggregateType} ${aggregateId}`

const tellings: Readonly<Record<Refused, string>> = {
  retrying: "the broker refuses an event: its aggregate waits, and it is tried again",
  dead: "the broker refuses an event for good: it is a dead letter, and its aggregate waits for an operator",
  skipped: "the broker refuses an event for good: it is a dead letter, and its aggregate goes on without it",
  gone: "the broker refuses an event that somebody else has dealt with meanwhile"
}

/**
 * Rule 1, where it is cheap to see: within a batch the versions of each aggregate rise. Anything else would break the order for good. Returns the
 * aggregates of which that is not so, with what is wrong: who wrote them gave a version that is not above those before it, and nothing of them
 * is sent until somebody has taken the wrong row away. That a fetch is out of order itself is a defect.
 *
 * They need not be contiguous. The late mark of a dispatcher that lost its lane may take events from behind one that is parked, and when
 * that one comes back there is a hole behind it. What a hole lacks was acknowledged, together with everything in front of it.
 */
const fallenIn = (events: ReadonlyArray<QueuedEvent>): ReadonlyMap<string, string> => {
  const last = new Map<string, QueuedEvent>()
  const fallen = new Map<string, string>()
  for (const event of events) {
    const aggregate = aggregateOf(event)
    const before = last.get(aggregate)
    if (before !== undefined && event.aggregateVersion <= before.aggregateVersion) {
      const sentence = `${aggregate}: version ${event.aggregateVersion} follows ${before.aggregateVersion} in the queue`
      if (event.seq <= before.seq) throw new Error(sentence)
      fallen.set(aggregate, sentence)
    }
    last.set(aggregate, event)
  }
  return fallen
}

export { batchSeconds, failedTotal, publishedTotal }
