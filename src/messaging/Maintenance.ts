/**
 * Upkeep of the mechanism's tables: partitions made ahead of their day, and old records of the embedded broker dropped.
 *
 * Any number of processes may do it; each step is safe to repeat and short.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import * as Supervised from "../platform/Supervised.ts"
import * as EmbeddedBroker from "./broker/EmbeddedBroker.ts"

/** Days made ahead: upkeep that stands still over a long weekend is noticed before the default partition fills. */
const daysAhead = 4

/** Kafka's own default for a topic: seven days. */
const embeddedRetentionDays = 7

/** How often to look. A day has many of these; the first comes with the start. */
const everyMillis = 600_000

/** One round of upkeep. */
export const runOnce = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  yield* sql`SELECT ensure_daily_partitions(parent, ${daysAhead}::int4) FROM unnest(ARRAY['event_log', 'processed_events']) AS parent`
  yield* EmbeddedBroker.dropExpired(embeddedRetentionDays)
})

/** Runs upkeep for as long as the layer lives. */
export const layer: Layer.Layer<never, never, PgClient.PgClient | Supervised.Fibers> = Layer.effectDiscard(
  Supervised.forkLoop("maintenance", (stamp) =>
    Effect.andThen(
      runOnce,
      // The wait is longer than a silence that counts as stuck.
      stamp.pipe(
        Effect.andThen(Effect.sleep(Supervised.stuckAfterMillis / 2)),
        Effect.repeat({ times: Math.ceil(everyMillis / (Supervised.stuckAfterMillis / 2)) })
      )
    )
  )
)
