/**
 * Remembers, for each topic, the smallest batch that was refused as too large. A batch of at least that size is refused here and divided without
 * being sent. So a backlog does not send each batch whole, in halves and in quarters until one fits.
 *
 * A topic's limit applies to the whole batch. It may be far below ours, by mistake or on purpose, and may be raised at any time, so a refusal is
 * remembered only for a while.
 *
 * Decorates the {@link Publisher}. Without it the broker refuses each batch of a backlog as often as it takes to divide it.
 */
import { Clock, Effect, Layer } from "effect"
import { MessageRejected } from "../brokers/Broker.ts"
import { Publisher } from "../outbox/Publisher.ts"
import type { QueuedEvent } from "../outbox/Queue.ts"
import * as Monotonic from "../platform/Monotonic.ts"

/** A raised limit is noticed after this time. Until then batches are smaller than necessary; nothing else changes. */
const believedMillis = 10_000

const bytesOf = (events: ReadonlyArray<QueuedEvent>): number =>
  events.reduce((sum, { recordBytes }) => sum + recordBytes, 0)

export const layer: Layer.Layer<Publisher, never, Publisher> = Layer.effect(
  Publisher,
  Effect.gen(function* () {
    const publisher = yield* Publisher
    const clock = yield* Clock.Clock
    /** The least that was refused, by topic. */
    const limits = new Map<string, { readonly bytes: number; readonly untilMillis: number }>()
    const now = () => Monotonic.millisUnsafe(clock)
    const limitOf = (topic: string) => {
      const limit = limits.get(topic)
      if (limit !== undefined && limit.untilMillis <= now()) limits.delete(topic)
      return limits.get(topic)?.bytes ?? Number.POSITIVE_INFINITY
    }

    return Publisher.of({
      ...publisher,
      publish: (batch) =>
        Effect.suspend(() => {
          const { events, partition, topic } = batch
          // One event alone is always tried.
          if (limits.size > 0 && events.length > 1 && bytesOf(events) >= limitOf(topic)) {
            const reason = "as much was refused as too large a moment ago"
            return Effect.fail(new MessageRejected({ topic, partition, reason, isTooLarge: true }))
          }
          return Effect.tapError(publisher.publish(batch), (error) =>
            Effect.sync(() => {
              if (error._tag !== "MessageRejected" || error.isTooLarge !== true || events.length === 1) return
              const bytes = Math.min(bytesOf(events), limitOf(topic))
              limits.set(topic, { bytes, untilMillis: now() + believedMillis })
            })
          )
        })
    })
  })
)
