/**
 * The dispatcher: moves committed events from the queue to the broker, in order per aggregate, at least once.
 *
 *     fetch → send → mark | hold
 *
 * Four rules keep the order, with any number of dispatchers and without a lock over the send:
 *
 * 1. A batch is a version-prefix of each aggregate's unpublished events. The fetch ensures it.
 * 2. An event is marked only after its acknowledgement.
 * 3. A lane and topic have one batch in flight. A lane is fetched again when its batches have ended (checked below within a process).
 * 4. The broker appends one aggregate's part of a batch as a whole: a lane lies in one partition, and a send is one record batch.
 *
 * So a dispatcher that has lost its lane without knowing can only repeat events. Take any event of its batch. Each earlier event of the aggregate is
 * either acknowledged or in the same batch (1): only acknowledged events are marked (2) or left out of a fetch. An acknowledged event is at the broker.
 * Events of the same batch arrive in order, as a whole (4) or one piece after the other (3). Consumers see duplicates, but never a newer event before
 * the first delivery of an older one.
 *
 * An outage is not a poison message. `BrokerUnavailable` and `TopicUnavailable` say nothing about the data: the events stay in the queue, and no
 * attempt is counted. An attempt counts only if the broker refuses an event that was sent alone. Then holds/Holds.ts decides about the event.
 *
 * This file has the steps. Pipeline.ts runs them for many lanes concurrently; {@link DispatcherService.drainOnce} runs them one after the other.
 */
import { Array, Context, Effect, Layer } from "effect"
import type { BrokerUnavailable, MessageRejected, TopicUnavailable } from "../brokers/Broker.ts"
import { Faults } from "../platform/Faults.ts"
import { type HeldEvent, Holds } from "./holds/Holds.ts"
import { byPartition, type Found, type Parcel, toBatches, toRuns } from "./Batches.ts"
import { type Lane, partitionOf } from "./Lane.ts"
import { deal, InFlightSettings } from "./LaneParts.ts"
import { type Batch, Publisher } from "./Publisher.ts"
import { type Acknowledged, aggregateKey, type LanePart, Queue, type QueuedEvent, QueueSettings } from "./Queue.ts"

/**
 * Divides a batch that the broker refused. The pieces are sent in the returned order: the left half first, so that no event overtakes an earlier one
 * of its aggregate. A reference, so that a test can show what the other order does.
 */
export const Halves = Context.Reference<
  (events: ReadonlyArray<QueuedEvent>) => readonly [ReadonlyArray<QueuedEvent>, ReadonlyArray<QueuedEvent>]
>("paid-once/outbox/Halves", {
  defaultValue: () => (events) => {
    const middle = Math.ceil(events.length / 2)
    return [events.slice(0, middle), events.slice(middle)]
  }
})

/** Whether rule 3 is checked. A reference, so that a test can show what two batches in flight do. */
export const OneInFlight = Context.Reference<boolean>("paid-once/outbox/OneInFlight", { defaultValue: () => true })

/** The sender's decisions between the pieces of a batch. */
export interface During {
  /** Whether the next piece may have events of the lane. */
  readonly isOurs: (lane: Lane) => boolean
  /** Marks the acknowledged events, and those of earlier batches, before the next piece is sent or an event is held. */
  readonly mark: (acknowledged: ReadonlyArray<Acknowledged>) => Effect.Effect<void>
}

/** The result of sending a batch. */
export interface Sent {
  /** Events that are acknowledged and not yet marked. */
  readonly acknowledged: ReadonlyArray<Acknowledged>
  /** Lanes with an event that was acknowledged or held. */
  readonly moved: ReadonlySet<Lane>
  /** Lanes in which parked events returned to the queue, because the dead event before them was skipped. */
  readonly returned: ReadonlySet<Lane>
}

/** See {@link Dispatcher}. */
export interface DispatcherService {
  /**
   * Fetches the parts and packs their events into batches: the lanes of one topic and partition together, as many as fit. Parks events of held
   * aggregates. Events with a `seq` in `without` are left out: their mark is on its way.
   */
  readonly fetch: (parts: ReadonlyArray<LanePart>, without?: ReadonlySet<bigint>) => Effect.Effect<Found>
  /** Divides a batch by partition. Asks the broker for the partitions of a topic that nothing was sent to; without an answer there are no batches. */
  readonly place: (parcel: Parcel) => Effect.Effect<ReadonlyArray<Batch>>
  /** Sends a batch, or its pieces if the broker refuses it. An outage ends it: events that were not acknowledged stay in the queue. */
  readonly send: (batch: Batch, during: During) => Effect.Effect<Sent>
  readonly mark: (acknowledged: ReadonlyArray<Acknowledged>) => Effect.Effect<void>
  /** Heads of held aggregates whose next attempt is due, eight at most. */
  readonly heads: (lanes: ReadonlyArray<Lane>) => Effect.Effect<ReadonlyArray<HeldEvent>>
  /** The partition that the event goes to; undefined while the topic's partitions are unknown. */
  readonly partitionOf: (event: QueuedEvent) => number | undefined
  /** Sends the head of a held aggregate, alone. */
  readonly retry: (head: HeldEvent) => Effect.Effect<void>
  /** Claims the lanes for one fetch until {@link leave}. Claiming a lane that is in flight is a defect: rule 3. */
  readonly enter: (lanes: ReadonlyArray<Lane>) => Effect.Effect<void>
  readonly leave: (lane: Lane) => void
  /** One round of the lanes, a step after the other. Returns whether another round may find more events at once. */
  readonly drainOnce: (lanes: ReadonlyArray<Lane>) => Effect.Effect<"idle" | "more">
  /** One round of the due heads of the lanes, one after the other. */
  readonly retryHeld: (lanes: ReadonlyArray<Lane>) => Effect.Effect<void>
}

export class Dispatcher extends Context.Service<Dispatcher, DispatcherService>()("paid-once/outbox/Dispatcher") {
  static readonly layer: Layer.Layer<Dispatcher, never, Queue | Publisher | Holds> = Layer.effect(
    Dispatcher,
    Effect.gen(function* () {
      const queue = yield* Queue
      const publisher = yield* Publisher
      const holds = yield* Holds
      const faults = yield* Faults
      const halves = yield* Halves
      const isChecked = yield* OneInFlight
      const settings = yield* QueueSettings
      const { batches } = yield* InFlightSettings

      const batchesOf = (events: ReadonlyArray<QueuedEvent>) =>
        toBatches(events, { ...settings, partitionsOf: publisher.partitionsOf })

      const fetchUnsent = (parts: ReadonlyArray<LanePart>, without?: ReadonlySet<bigint>) =>
        Effect.map(
          queue.fetch(parts, without),
          Array.map((part) =>
            part.events.length === 0 ? part : { ...part, events: part.events.filter(({ seq }) => !without?.has(seq)) }
          )
        )

      const fetch = Effect.fnUntraced(function* (parts: ReadonlyArray<LanePart>, without?: ReadonlySet<bigint>) {
        const fetched = yield* fetchUnsent(parts, without)
        const found = fetched.flatMap(({ events }) => events)
        const cut = new Set(fetched.filter(({ isCut }) => isCut).map(({ lane }) => lane))
        if (found.length === 0) return { batches: [], cut }
        yield* faults.at("dispatcher.after-fetch")
        const held = found.filter((event) => event.held === true)
        if (held.length === 0) return { batches: batchesOf(found), cut }
        const free: Array<QueuedEvent> = []
        for (const { events, isCut, lane } of fetched) {
          const ofHeld = events.filter((event) => event.held === true)
          const others = events.filter((event) => event.held !== true)
          const parked = ofHeld.length === 0 ? 0 : yield* holds.park(lane, ofHeld)
          // No row could be parked now: the lane is not fetched again before the next poll.
          if (ofHeld.length > 0 && parked === 0 && others.length === 0) cut.delete(lane)
          const part = parts.find((one) => one.lane === lane)!
          // A held aggregate may have many batches in the queue. The lane's other events don't wait until all of them are parked.
          const [again] =
            ofHeld.length > 0 && isCut ? yield* fetchUnsent([{ ...part, withoutAggregates: ofHeld }], without) : []
          free.push(...(again?.events.filter((event) => event.held !== true) ?? others))
        }
        return { batches: batchesOf(free), cut }
      })

      /** The broker gave no answer: the events stay in the queue. */
      const unanswered = (topic: string) => (error: BrokerUnavailable | TopicUnavailable) =>
        Effect.as(Effect.logDebug(`a batch for ${topic} got no answer: ${error.message}`), [])

      const place = ({ events, partition, partitions, topic }: Parcel): Effect.Effect<ReadonlyArray<Batch>> =>
        partition !== undefined && partitions !== undefined
          ? Effect.succeed([{ topic, partition, partitions, events }])
          : Effect.map(publisher.prepare(topic), (count) =>
              [...byPartition(events, count)].map(([number, part]) => ({
                topic,
                partition: number,
                partitions: count,
                events: part
              }))
            ).pipe(Effect.catch(unanswered(topic)))

      const send = Effect.fnUntraced(function* ({ events, ...place }: Batch, during: During) {
        const { topic } = place
        const moved = new Set<Lane>()
        const returned = new Set<Lane>()
        /** Aggregates with a refused event: their later events in the batch are not sent. */
        const aside = new Set<string>()

        /** Sends events of the batch, in halves if they are refused. Returns the last piece's acknowledgement unmarked. */
        const sendInOrder = (
          planned: ReadonlyArray<QueuedEvent>
        ): Effect.Effect<ReadonlyArray<Acknowledged>, BrokerUnavailable | TopicUnavailable> => {
          let last: Lane | undefined
          let isOurs = false
          const piece = planned.filter((event) => {
            // Asked once for each lane's run.
            if (event.lane !== last) isOurs = during.isOurs((last = event.lane))
            return isOurs && (aside.size === 0 || !aside.has(aggregateKey(event)))
          })
          if (!Array.isReadonlyArrayNonEmpty(piece)) return Effect.succeed([])
          return publisher.publish({ ...place, events: piece }).pipe(
            Effect.tap(() => faults.at("dispatcher.after-publish")),
            Effect.map((receipt) => {
              const runs = toRuns(topic, piece, receipt)
              for (const { lane } of runs) moved.add(lane)
              return runs
            }),
            Effect.catchTag("MessageRejected", (rejected) =>
              piece.length === 1 ? hold(piece[0], rejected) : sendHalves(piece)
            )
          )
        }

        /** Sends the left half first, and marks it before the right half is sent. */
        const sendHalves = (events: ReadonlyArray<QueuedEvent>) =>
          Effect.gen(function* () {
            const [left, right] = halves(events)
            const acknowledged = yield* sendInOrder(left)
            if (acknowledged.length > 0) yield* during.mark(acknowledged)
            return yield* sendInOrder(right)
          })

        const hold = (event: QueuedEvent, rejected: MessageRejected) =>
          Effect.gen(function* () {
            aside.add(aggregateKey(event))
            // Behind an unmarked event of its aggregate it would not be held (Parking.ts).
            yield* during.mark([])
            const outcome = yield* holds.hold(event.lane, event, rejected)
            moved.add(event.lane)
            if (outcome === "skipped") returned.add(event.lane)
            if (outcome !== "gone") yield* faults.at("dispatcher.after-hold")
            return []
          })

        const acknowledged = yield* Effect.catch(sendInOrder(events), unanswered(topic))
        return { acknowledged, moved, returned }
      })

      const mark = Effect.fnUntraced(function* (acknowledged: ReadonlyArray<Acknowledged>) {
        if (acknowledged.length === 0) return
        yield* queue.mark(acknowledged)
        yield* faults.at("dispatcher.after-mark")
      })

      const retry = Effect.fnUntraced(function* (head: HeldEvent) {
        const { lane, topic } = head
        if (!(yield* holds.isDue(head))) return
        const known = publisher.partitionsOf(topic)
        const attempt = Effect.flatMap(
          known === undefined ? publisher.prepare(topic) : Effect.succeed(known),
          (partitions) =>
            publisher.publish({ topic, partition: partitionOf(lane, partitions), partitions, events: [head] })
        )
        yield* Effect.matchEffect(attempt, {
          onSuccess: Effect.fnUntraced(function* (receipt) {
            yield* faults.at("dispatcher.after-publish")
            if (yield* holds.published(head, receipt)) yield* faults.at("dispatcher.after-release")
          }),
          onFailure: Effect.fnUntraced(function* (error) {
            // The broker gave no answer about the event: no attempt is counted, and it stays due.
            if (error._tag !== "MessageRejected") return
            yield* holds.rejected(head, error)
          })
        })
      })

      const inFlight: Array<boolean> = []
      const enter = (lanes: ReadonlyArray<Lane>) =>
        Effect.sync(() => {
          const taken = lanes.find((lane) => isChecked && inFlight[lane] === true)
          if (taken !== undefined) throw new Error(`lane ${taken} has a batch in flight already`)
          for (const lane of lanes) inFlight[lane] = true
        })
      const leave = (lane: Lane) => void (inFlight[lane] = false)
      const alone = <A>(lanes: ReadonlyArray<Lane>, effect: Effect.Effect<A>): Effect.Effect<A> =>
        Effect.acquireUseRelease(
          enter(lanes),
          () => effect,
          () => Effect.sync(() => lanes.forEach(leave))
        )

      const round = Effect.fnUntraced(function* (lanes: ReadonlyArray<Lane>) {
        const { batches: parcels, cut } = yield* fetch(deal(lanes, { ...settings, deep: new Set(), batches, load: 0 }))
        const acknowledged: Array<Acknowledged> = []
        const stuck = new Set(parcels.flatMap(({ events }) => events.map(({ lane }) => lane)))
        let hasReturned = false
        for (const parcel of parcels) {
          for (const batch of yield* place(parcel)) {
            const sent = yield* send(batch, { isOurs: () => true, mark })
            acknowledged.push(...sent.acknowledged)
            hasReturned ||= sent.returned.size > 0
            for (const lane of sent.moved) stuck.delete(lane)
          }
        }
        yield* mark(acknowledged)
        return hasReturned || [...cut].some((lane) => !stuck.has(lane)) ? ("more" as const) : ("idle" as const)
      })

      const heads = (lanes: ReadonlyArray<Lane>) => holds.due(lanes.map((lane) => ({ lane })))

      return Dispatcher.of({
        fetch,
        place,
        send,
        mark,
        heads,
        partitionOf: ({ lane, topic }) => {
          const partitions = publisher.partitionsOf(topic)
          return partitions === undefined ? undefined : partitionOf(lane, partitions)
        },
        retry,
        enter,
        leave,
        drainOnce: (lanes) => alone(lanes, round(lanes)),
        retryHeld: (lanes) =>
          alone(
            lanes,
            Effect.flatMap(heads(lanes), (due) => Effect.forEach(due, retry, { discard: true }))
          )
      })
    })
  )
}
