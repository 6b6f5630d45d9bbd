/** Notes at the dispatcher's start whether it archives events. Those that it does not archive are no differences afterwards. */
import { Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { QueueSettings } from "../outbox/Queue.ts"
import * as Retention from "../platform/Retention.ts"

export const layer: Layer.Layer<never, never, SqlClient.SqlClient> = Layer.effectDiscard(
  QueueSettings.use(({ archive }) => Retention.noteWriting("event_log", archive)).pipe(
    // Without the note a reconciliation may name events that were never archived. That keeps no event waiting.
    Effect.catch((error) => Effect.logWarning("retention: whether events are archived could not be noted", error))
  )
)
