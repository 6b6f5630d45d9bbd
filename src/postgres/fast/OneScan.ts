/**
 * Fetches many lanes by one scan of their index, while little waits in them.
 *
 * The queue's fetch is a small query for each lane, with the bounds of its own part. A look at all lanes runs 64 of them, and most find nothing. Here
 * one scan reads all the lanes. If it has come to their end, it has found what the fetch would find, in one snapshot as that one. Otherwise it is
 * dropped, and the lanes are fetched.
 *
 * Decorates the {@link Queue}, below the low-water marks: they keep the scan short where a reader blocks vacuum.
 */
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { eventColumns, isHeld, isSameServer } from "../../outbox/EventRows.ts"
import { laneCount } from "../../outbox/Lane.ts"
import { dividedByLane, type Fetched, type LanePart, Queue, type QueuedEvent } from "../../outbox/Queue.ts"
import { TurnConnection } from "../../outbox/TurnConnection.ts"

/** From so many lanes on: with fewer there is less to save than a scan in vain costs. docs/performance-log.md has the figures. */
const leastLanes = 8

/** As many events as a fetch may bring however large they are: one of each lane. */
const mostEvents = laneCount

/** After a scan in vain so many fetches go lane by lane: more waits than one scan can bring, and as a rule the next one would be in vain, too. */
const fetchesBetween = 20

const leavesOut = ({ withoutAggregates = [], withoutTopics = [] }: LanePart) =>
  withoutAggregates.length > 0 || withoutTopics.length > 0

type Start = NonNullable<LanePart["from"]>

/** Where the scan of all the lanes begins: at the least of their low-water marks. */
const startOf = (parts: ReadonlyArray<LanePart>): Start | undefined => {
  let least: Start | undefined
  for (const { from } of parts) {
    if (from === undefined) return undefined
    if (least === undefined || from.seq < least.seq) least = from
  }
  return least
}

/** Whether the queue's fetch would have returned all of the lane's events. */
const fits = ({ events }: Fetched, part: LanePart) => {
  let bytes = 0
  for (const { recordBytes } of events) bytes += recordBytes
  return events.length <= part.events && (bytes <= part.bytes || events.length <= 1)
}

export const layer: Layer.Layer<Queue, never, Queue | SqlClient.SqlClient> = Layer.effect(
  Queue,
  Effect.gen(function* () {
    const queue = yield* Queue
    const sql = yield* SqlClient.SqlClient
    const columns = sql.literal(eventColumns("e"))
    let resting = 0

    const scan = Effect.fnUntraced(function* (parts: ReadonlyArray<LanePart>, { seq, server }: Start) {
      const lanes = parts.map(({ lane }) => lane)
      // oxlint-disable-next-line paid-once/decoded-rows -- as the queue's own fetch
      return yield* ((yield* TurnConnection) ?? sql)<QueuedEvent>`
        SELECT ${columns}, ${isHeld(sql, parts)} AS held
        FROM outbox_events AS e
        WHERE e.lane = ANY (${lanes}::int2[]) AND e.seq >= CASE WHEN ${isSameServer(sql, server)} THEN ${seq}::int8 ELSE 0 END
        ORDER BY e.lane, e.seq LIMIT ${mostEvents + 1}`
    }, Effect.orDie)

    return Queue.of({
      ...queue,
      fetch: Effect.fnUntraced(function* (parts) {
        const start = parts.length < leastLanes || parts.some(leavesOut) ? undefined : startOf(parts)
        if (start === undefined || resting > 0) {
          resting = Math.max(0, resting - 1)
          return yield* queue.fetch(parts)
        }
        const rows = yield* scan(parts, start)
        if (rows.length <= mostEvents) {
          const found = dividedByLane(parts, rows)
          if (found.every((ofLane, index) => fits(ofLane, parts[index]!))) return found
        }
        resting = fetchesBetween
        return yield* queue.fetch(parts)
      })
    })
  })
)
