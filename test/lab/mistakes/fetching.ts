/** For the mistakes that fetch in another way: what a fetch of several lanes returns, of what is found in each. */
import { Effect } from "effect"
import type { SqlError } from "effect/sql"
import type { Lane } from "../../../src/outbox/Lane.ts"
import type { QueuedEvent, QueueService } from "../../../src/outbox/Queue.ts"

/** Fetches lane by lane. That there may be more is found out by another look. */
export const eachLane =
  (fetch: (lane: Lane) => Effect.Effect<ReadonlyArray<QueuedEvent>, SqlError.SqlError>): QueueService["fetch"] =>
  (parts) =>
    Effect.forEach(parts, ({ lane }) =>
      Effect.map(fetch(lane), (events) => ({ lane, events, isCut: events.length > 0 }))
    ).pipe(Effect.orDie)

/** Changes what a fetch has found. */
export const changed =
  (
    queue: QueueService,
    change: (events: ReadonlyArray<QueuedEvent>) => ReadonlyArray<QueuedEvent>
  ): QueueService["fetch"] =>
  (parts) =>
    Effect.map(queue.fetch(parts), (fetched) => fetched.map((ofLane) => ({ ...ofLane, events: change(ofLane.events) })))
