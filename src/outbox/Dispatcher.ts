/**
 * The dispatcher: moves committed events from the queue to the broker, in order per aggregate, at least once.
 *
 * Four rules keep the order, with any number of dispatchers and without a lock over the send:
 *
 * 1. a batch is a version-prefix of each aggregate's unpublished events (the fetch; checked in OutOfOrderVersions.ts);
 * 2. an event is marked only after its ack;
 * 3. one batch is in flight per lane and topic (LaneWorkers: one owner per lane, one worker per lane; checked below within a process);
 * 4. one aggregate's part of a batch is appended whole (one lane lies in one partition, one send is one record batch).
 *
 * So a dispatcher that lost its lane and does not know it yet can only repeat: whatever comes before an event of a batch was marked when the
 * batch was fetched, and then the broker had it (2), or stands in front of it in the batch (1), which lands whole (4) or piece after
 * piece (3). Readers see duplicates, never a newer event before an older one's first delivery.
 *
 * An outage is not a poison message. What says nothing about the data (`BrokerUnavailable`, `TopicUnavailable`) pauses its topic in the
 * partition and burns nothing. Only an event that is refused when it is sent alone counts an attempt, and its aggregate steps aside (Holds.ts).
 */
import type { PgClient } from "@effect/sql-pg"
import { Array, Context, Effect, type Latch, Layer, Metric, Result } from "effect"
import type { BrokerUnavailable, MessageRejected, TopicUnavailable } from "../brokers/Broker.ts"
import * as OutOfOrderVersions from "../guards/OutOfOrderVersions.ts"
import * as PartitionPauses from "../guards/PartitionPauses.ts"
import * as SizeLimits from "../guards/SizeLimits.ts"
import * as Backoff from "../platform/Backoff.ts"
import { ControlSettings } from "../platform/ControlConnection.ts"
import { Faults } from "../platform/Faults.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import { eventTypeLabel } from "./EventTypeLabel.ts"
import { dueLimit, type HeldEvent, Holds, type Refused } from "./holds/Holds.ts"
import type { Lane } from "./Lane.ts"
import type { NonEmpty } from "./Outbox.ts"
import { type Aggregate, OutboxQueue, type QueuedEvent } from "./OutboxQueue.ts"
import { Publisher } from "./Publisher.ts"

/** The full-jitter backoff of a topic that can't be reached. */
export const DispatcherSettings = Context.Reference<{
  readonly backoffBaseMillis: number
  readonly backoffCapMillis: number
}>("paid-once/outbox/DispatcherSettings", {
  // A broker that comes back is noticed within half a minute, unless very many partitions wait for a try, and one that stays away costs
  // next to nothing.
  defaultValue: () => ({
    backoffBaseMillis: Backoff.partitionPauseBaseMillis,
    backoffCapMillis: Backoff.partitionPauseCapMillis
  })
})

/**
 * How a batch that the broker refuses is divided: the parts in the order in which they are sent. Left before right, for an event must
 * not overtake an earlier one of its aggregate. A reference of its own, so that a test can show what the other order does.
 */
export const Halves = Context.Reference<
  (events: ReadonlyArray<QueuedEvent>) => readonly [ReadonlyArray<QueuedEvent>, ReadonlyArray<QueuedEvent>]
>("paid-once/outbox/Halves", {
  defaultValue: () => (events) => {
    const middle = Math.ceil(events.length / 2)
    return [events.slice(0, middle), events.slice(middle)]
  }
})

/** Whether rule 3 is checked. A reference of its own, so that a test can show what two batches in flight do. */
export const OneInFlight = Context.Reference<boolean>("paid-once/outbox/OneInFlight", {
  defaultValue: () => true
})

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

/** What comes up in a turn of a lane. */
interface Turn {
  /** Aggregates of which an event was refused. */
  readonly aside: Set<string>
  /** A refused event was dead at once, and its aggregate goes on without it. */
  hasSkipped: boolean
}

export class Dispatcher extends Context.Service<
  Dispatcher,
  {
    /**
     * Sends one batch per topic of the lane, if it has any, and marks it; of topics that could not be reached, one, and what is well behind it goes
     * first. Returns whether there may be more at once. An outage pauses its topic in the partition; it burns nothing and loses nothing. An
     * event that is refused makes its aggregate wait, and no other.
     */
    readonly drainOnce: (lane: Lane) => Effect.Effect<"idle" | "more">
    /**
     * Sends the lane's refused events whose next try is due, each alone: a few of them, the longest due first. Returns whether none is due
     * any more, as far as that could be asked for. For a caller that has the lane as it has for {@link drainOnce}, and no batch of it in flight.
     */
    readonly retryHeld: (lane: Lane) => Effect.Effect<boolean>
    /** Topics that are not to be fetched now, in any of the lanes. */
    readonly pausedTopics: PartitionPauses.PartitionPauses["running"]
    /** Topics whose last send failed, in one of their partitions at least, for health. */
    readonly pauses: PartitionPauses.PartitionPauses["all"]
    /** Milliseconds until the next paused partition may be sent to again; undefined where none is paused. */
    readonly nextTryMillis: PartitionPauses.PartitionPauses["nextEndMillis"]
    /** Topics that have failed in the lane's partition. */
    readonly failedIn: PartitionPauses.PartitionPauses["failedIn"]
    /** How long nothing was reached, of what is sent to; 0 where nothing has failed. */
    readonly strandedMillis: PartitionPauses.PartitionPauses["strandedMillis"]
    /** What has failed is tried again at once. */
    readonly release: PartitionPauses.PartitionPauses["release"]
    /** When the lane's partition failed; 0 for one that is well. */
    readonly failedMillis: PartitionPauses.PartitionPauses["failedMillis"]
    /** Opened when there is something else to wait for, or nothing any more: pauses changed, or a misordered aggregate was found. */
    readonly paused: Latch.Latch
    /** Lanes in which aggregates are not sent because their versions fall in the queue, as of each lane's last turn here, for health. */
    readonly misordered: OutOfOrderVersions.OutOfOrderVersions["counts"]
  }
>()("paid-once/outbox/Dispatcher") {
  static readonly layerNoDeps: Layer.Layer<Dispatcher, never, OutboxQueue | Publisher | Holds> = Layer.effect(
    Dispatcher,
    Effect.gen(function* () {
      const queue = yield* OutboxQueue
      const publisher = yield* Publisher
      const holds = yield* Holds
      const faults = yield* Faults
      const halves = yield* Halves
      const oneInFlight = yield* OneInFlight
      const { backoffBaseMillis, backoffCapMillis } = yield* DispatcherSettings
      const { sessionTimeoutMillis } = yield* ControlSettings
      const pauses = yield* PartitionPauses.make({
        baseMillis: backoffBaseMillis,
        capMillis: backoffCapMillis,
        // A send takes less than a session's silence may (Config.ts), as a rule some seconds.
        forgottenAfterMillis: Math.max(60_000, 2 * sessionTimeoutMillis),
        // What is held waits for pauses, too.
        onChange: holds.changed.open
      })
      const sizeLimits = SizeLimits.make()
      const misordered = OutOfOrderVersions.make(queue, pauses.changed)

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

      /** Publishes, and pauses what was not reached. What is refused was reached, too. */
      const publish = Effect.fnUntraced(function* (lane: Lane, topic: string, events: NonEmpty<QueuedEvent>) {
        const sentMillis = yield* Monotonic.millis
        const reached = Effect.suspend(() => pauses.end(topic, publisher.placeOf(lane, topic), sentMillis))
        const sent = Effect.tapError(publisher.publish(lane, topic, events), (error) =>
          // What is refused together is sent again in parts; what is refused alone is counted when it is told.
          error._tag === "MessageRejected"
            ? reached
            : Effect.andThen(
                pauses.begin(topic, publisher.placeOf(lane, topic), error, sentMillis),
                count(failedTotal, events, { reason: error._tag })
              )
        )
        const receipt = yield* pauses.attempt(topic, publisher.placeOf(lane, topic), sent)
        return { receipt, reached }
      })

      const send = Effect.fnUntraced(function* (lane: Lane, topic: string, events: NonEmpty<QueuedEvent>) {
        const { reached, receipt } = yield* publish(lane, topic, events)
        yield* faults.at("dispatcher.after-publish")
        yield* queue.mark(lane, events, receipt)
        yield* faults.at("dispatcher.after-mark")
        yield* reached
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
       * Sends the events, in halves where the broker refuses them together, or has lately refused as much: a topic's limit counts the batch,
       * and may be lower than ours. Left half before right: an event must not overtake an earlier one of its aggregate. One that is refused
       * alone makes its aggregate step aside, and `aside` keeps what comes behind it from being sent in its batch.
       */
      const sendInOrder = (
        lane: Lane,
        topic: string,
        batch: ReadonlyArray<QueuedEvent>,
        turn: Turn
      ): Effect.Effect<void, BrokerUnavailable | TopicUnavailable | PartitionPauses.TopicPaused> =>
        Effect.suspend(() => {
          const { aside } = turn
          const events = aside.size === 0 ? batch : batch.filter((event) => !aside.has(OutOfOrderVersions.keyOf(event)))
          if (!Array.isReadonlyArrayNonEmpty(events)) return Effect.void
          const inParts = Effect.suspend(() => {
            const [left, right] = halves(events)
            return Effect.andThen(sendInOrder(lane, topic, left, turn), sendInOrder(lane, topic, right, turn))
          })
          const whole = Effect.catchTag(send(lane, topic, events), "MessageRejected", (rejected) => {
            const [first, second] = events
            if (second === undefined) {
              aside.add(OutOfOrderVersions.keyOf(first))
              return holds.hold(lane, first, rejected).pipe(
                Effect.tap((outcome) => Effect.sync(() => (turn.hasSkipped ||= outcome === "skipped"))),
                Effect.flatMap((outcome) => tell(first, 1, rejected, outcome)),
                Effect.andThen(faults.at("dispatcher.after-hold"))
              )
            }
            return Effect.andThen(
              rejected.isTooLarge === true ? sizeLimits.refused(topic, events) : Effect.void,
              inParts
            )
          })
          return Effect.flatMap(sizeLimits.isOver(topic, events), (isOver) => (isOver ? inParts : whole))
        })

      /** The lane's next events, but for those of paused topics and of `leftOut`, of misordered aggregates and of `others`. */
      const fetchBeside = Effect.fnUntraced(function* (
        lane: Lane,
        leftOut: ReadonlyArray<string>,
        others: ReadonlyArray<Aggregate>
      ) {
        const left = new Map(
          [...(yield* misordered.of(lane)), ...others].map((one) => [OutOfOrderVersions.keyOf(one), one])
        )
        return yield* queue.fetch(lane, [...(yield* pauses.runningIn(lane)), ...leftOut], [...left.values()])
      })

      /** One batch per topic, and one try of a topic that failed; beside `leftOut`, which is to be tried, what is well alone. */
      const drainBeside = (lane: Lane, leftOut: ReadonlyArray<string>, turn: Turn): Effect.Effect<"idle" | "more"> =>
        Effect.gen(function* () {
          const started = yield* Monotonic.millis
          const fetched = yield* fetchBeside(lane, leftOut, [])
          if (fetched.length === 0) return "idle"
          yield* faults.at("dispatcher.after-fetch")
          const isCut = fetched.at(-1)?.followed === true
          const held = fetched.filter((event) => event.held === true)
          const parked = held.length === 0 ? 0 : yield* holds.park(lane, held)
          // What a held aggregate has in the queue may be many batches: nobody waits until all of it is put away.
          const met = held.length > 0 && isCut ? yield* fetchBeside(lane, leftOut, held) : fetched
          const free = held.length === 0 ? met : met.filter((event) => event.held !== true)
          const events = yield* misordered.sift(lane, free)
          const parts = Object.entries(Array.groupBy(events, (event) => event.topic)).map(([topic, batch]) => ({
            topic,
            batch,
            failedMillis: pauses.failedAtMillis(topic, publisher.placeOf(lane, topic))
          }))
          const send = (these: typeof parts) =>
            Effect.forEach(these, ({ batch, topic }) =>
              Effect.match(sendInOrder(lane, topic, batch, turn), { onSuccess: () => true, onFailure: () => false })
            )
          const well = parts.filter(({ failedMillis }) => failedMillis === 0)
          const failed = parts
            .filter(({ failedMillis }) => failedMillis > 0)
            .toSorted((one, other) => one.failedMillis - other.failedMillis)
          // What may take long keeps no other topic waiting, also where its backlog fills the batch; and it is one thing at a time, the longest
          // due first: the others come with another turn.
          const sentWell = yield* send(well)
          const sentMillis = yield* Monotonic.millis
          const behind =
            isCut && failed.length > 0
              ? yield* drainBeside(lane, [...leftOut, ...failed.map(({ topic }) => topic)], turn)
              : "idle"
          const behindMillis = (yield* Monotonic.millis) - sentMillis
          const tried = leftOut.length > 0 ? [] : failed.slice(0, 1)
          const sent = [...sentWell, ...(yield* send(tried))]
          yield* Metric.update(batchSeconds, ((yield* Monotonic.millis) - started - behindMillis) / 1_000)
          // Whatever was cut off by the fetch's bounds is there at once; what was committed since comes with a wake-up, and what failed is
          // looked for after its pause.
          const hasMoved = parked > 0 || events.length < free.length || sent.some(Boolean)
          return behind === "more" || failed.length > tried.length || (isCut && hasMoved) ? "more" : "idle"
        })

      const drainOnce = Effect.fnUntraced(function* (lane: Lane) {
        const turn: Turn = { aside: new Set(), hasSkipped: false }
        const left = yield* drainBeside(lane, [], turn)
        // What waited behind an event that was skipped is in the queue again.
        return turn.hasSkipped ? ("more" as const) : left
      })

      /** One more send of a refused event, by itself. */
      const retry = Effect.fnUntraced(function* (lane: Lane, event: HeldEvent) {
        const sent = yield* Effect.result(publish(lane, event.topic, [event]))
        if (Result.isSuccess(sent)) {
          const { reached, receipt } = sent.success
          yield* faults.at("dispatcher.after-publish")
          const released = yield* holds.published(event, receipt)
          yield* faults.at("dispatcher.after-release")
          yield* reached
          if (released) yield* count(publishedTotal, [event], {})
        } else if (sent.failure._tag === "MessageRejected") {
          yield* tell(event, event.attempts + 1, sent.failure, yield* holds.rejected(event, sent.failure))
        }
        // Else there was no answer about the event: no attempt is counted, and it stays due for when its topic is back.
      })

      const retryHeld = Effect.fnUntraced(function* (lane: Lane) {
        // Looked up anew before each send: what an operator has discarded meanwhile must not be sent any more.
        for (let turn = 0; turn < dueLimit; turn++) {
          const paused = yield* pauses.runningIn(lane)
          const [event] = yield* holds.due(lane, paused)
          if (event === undefined) return paused.length === 0
          yield* retry(lane, event)
        }
        return false
      })

      return Dispatcher.of({
        drainOnce: (lane) => alone(lane, drainOnce(lane)),
        retryHeld: (lane) => alone(lane, retryHeld(lane)),
        pausedTopics: pauses.running,
        pauses: pauses.all,
        nextTryMillis: pauses.nextEndMillis,
        failedIn: pauses.failedIn,
        strandedMillis: pauses.strandedMillis,
        release: pauses.release,
        failedMillis: pauses.failedMillis,
        paused: pauses.changed,
        misordered: misordered.counts
      })
    })
  )

  /** With its holds, which the lanes' workers ask for the next due time. */
  static readonly layer: Layer.Layer<Dispatcher | Holds, never, OutboxQueue | Publisher | PgClient.PgClient> =
    Dispatcher.layerNoDeps.pipe(Layer.provideMerge(Holds.layer))
}

const tellings: Readonly<Record<Refused, string>> = {
  retrying: "the broker refuses an event: its aggregate waits, and it is tried again",
  dead: "the broker refuses an event for good: it is a dead letter, and its aggregate waits for an operator",
  skipped: "the broker refuses an event for good: it is a dead letter, and its aggregate goes on without it",
  gone: "the broker refuses an event that somebody else has dealt with meanwhile"
}

export { batchSeconds, failedTotal, publishedTotal }
