/**
 * What topics have refused as too large together. A topic's limit counts the whole batch and may be far below ours, by mistake or on purpose, and it
 * may be raised again at any time. So a refusal is believed for a while: what is as large is divided before it is sent, and a backlog
 * does not go to the broker whole, half and quarter before it gets through.
 */
import { Array, Effect } from "effect"
import type { QueuedEvent } from "../outbox/OutboxQueue.ts"
import * as Monotonic from "../platform/Monotonic.ts"

/** A limit that was raised is found out after this; until then batches are smaller than they could be, and nothing else. */
const believedMillis = 10_000

/** Of an event's record, beside its data: names, ids and times. Sizes are compared here, and need not be right. */
const aroundData = 400

const bytesOf = (events: ReadonlyArray<QueuedEvent>): number =>
  events.reduce((sum, { data }) => sum + data.length + aroundData, 0)

export interface SizeLimits {
  /** The topic has refused these, for they are too large together. */
  readonly refused: (topic: string, events: Array.NonEmptyReadonlyArray<QueuedEvent>) => Effect.Effect<void>
  /** Whether as much as these was refused lately. One event alone is always to be tried. */
  readonly isOver: (topic: string, events: Array.NonEmptyReadonlyArray<QueuedEvent>) => Effect.Effect<boolean>
}

export const make = (): SizeLimits => {
  /** The least that was refused, by topic. */
  const limits = new Map<string, { readonly bytes: number; readonly untilMillis: number }>()
  const limitOf = (topic: string) =>
    Effect.map(Monotonic.millis, (now) => {
      const limit = limits.get(topic)
      if (limit !== undefined && limit.untilMillis <= now) limits.delete(topic)
      return limits.get(topic)?.bytes ?? Number.POSITIVE_INFINITY
    })
  return {
    refused: Effect.fnUntraced(function* (topic, events) {
      const bytes = Math.min(bytesOf(events), yield* limitOf(topic))
      limits.set(topic, { bytes, untilMillis: (yield* Monotonic.millis) + believedMillis })
    }),
    isOver: (topic, events) =>
      Effect.suspend(() =>
        limits.size === 0 || events.length === 1
          ? Effect.succeed(false)
          : Effect.map(limitOf(topic), (limit) => bytesOf(events) >= limit)
      )
  }
}
