/** Helpers for the mistakes that change the fetch. */
import { Effect } from "effect"
import type { SqlError } from "effect/sql"
import type { Lane } from "../../../src/outbox/Lane.ts"
import type { QueuedEvent, QueueService } from "../../../src/outbox/Queue.ts"

/** Fetches lane by lane. A lane with events counts as cut, so it is fetched again until it is empty. */
export const eachLane =
  (fetch: (lane: Lane) => Effect.Effect<ReadonlyArray<QueuedEvent>, SqlError.SqlError>): QueueService["fetch"] =>
  (parts) =>
    Effect.forEach(parts, ({ lane }) =>
      Effect.map(fetch(lane), (events) => ({ lane, events, isCut: events.length > 0 }))
    ).pipe(Effect.orDie)

/** Changes the events that a fetch returns. */
export const changed =
  (
    queue: QueueService,
    change: (events: ReadonlyArray<QueuedEvent>) => ReadonlyArray<QueuedEvent>
  ): QueueService["fetch"] =>
  (parts) =>
    Effect.map(queue.fetch(parts), (fetched) => fetched.map((ofLane) => ({ ...ofLane, events: change(ofLane.events) })))
