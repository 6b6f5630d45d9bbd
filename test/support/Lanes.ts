/** One lane of the queue, for tests that run its statements directly. */
import { Effect } from "effect"
import type { Lane } from "../../src/outbox/Lane.ts"
import type { Aggregate, QueuedEvent, QueueService, Receipt } from "../../src/outbox/Queue.ts"

/** The request for a batch of the lane, without these topics and aggregates. */
export const partOf = (
  lane: Lane,
  withoutTopics: ReadonlyArray<string> = [],
  withoutAggregates: ReadonlyArray<Aggregate> = []
) => ({ lane, events: 1_000, bytes: 900_000, withoutTopics, withoutAggregates })

/** The events of one fetched batch of the lane. */
export const fetch = (queue: QueueService, lane: Lane, withoutTopics: ReadonlyArray<string> = []) =>
  Effect.map(queue.fetch([partOf(lane, withoutTopics)]), (fetched) => fetched.flatMap(({ events }) => events))

/** Marks events of the lane and of one topic. */
export const mark = (queue: QueueService, lane: Lane, events: ReadonlyArray<QueuedEvent>, receipt: Receipt) =>
  events.length === 0 ? Effect.void : queue.mark([{ lane, topic: events[0]!.topic, events, receipt }])
