/**
 * The statements of a small turn: one scan of many lanes, and one DELETE.
 *
 * The queue's fetch puts its text together each time, and is a small query for each lane, with the bounds of its own part. A look at all lanes runs 64
 * such queries, and most find nothing. Here one scan reads all the lanes. If it has come to their end, it has found what the fetch would find.
 * Otherwise it is dropped, and the lanes are fetched. Events that wait for their mark are passed over, and don't come once more with each turn until
 * then. The queue's mark is a DELETE for each run of a lane. Here one DELETE takes all rows.
 *
 * Both read a range of numbers in each lane, and it is the same range for all. A lane far behind would make the others step over their dead rows. The
 * queue's own statement fetches such a lane beside the scan, or all if they are few, and a mark of far numbers is left to the queue.
 *
 * Decorates the {@link Queue} itself, below all that counts or leaves out. Without it a turn of three events takes Postgres 1.5 times as long.
 */
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { eventColumns, serverStartText } from "../../outbox/EventRows.ts"
import { type Lane, laneCount } from "../../outbox/Lane.ts"
import { markEnd } from "../../outbox/MarkStatements.ts"
import {
  type Acknowledged,
  byPart,
  type Fetched,
  isIdTaken,
  type LanePart,
  Queue,
  type QueuedEvent,
  QueueSettings
} from "../../outbox/Queue.ts"
import { TurnConnection } from "../../outbox/TurnConnection.ts"

/** A scan of fewer lanes is not worth a second statement for a lane that is far behind, and looks up the holds of each. */
const fewLanes = 8

/** Two of each lane. At 5,000 events a second a fetch finds twenty, and eighty at most. */
const mostEvents = 2 * laneCount

/** With larger records the scan is in vain: without a bound it might bring 128 of the largest. So it brings two megabytes at most. */
const mostRecordBytes = 16_384

/**
 * How far the numbers of a statement may lie apart. Low-water marks are raised together, to the same number: a lane is behind only while an event of it
 * has waited for a second, or one may come back. The dead rows between are stepped over in each turn, so they have to be few.
 */
const mostApart = 500n

/** After a scan in vain so many fetches go lane by lane: more waits than one scan can bring, and as a rule the next one would be in vain, too. */
const fetchesBetween = 20

const leavesOut = ({ withoutAggregates = [], withoutTopics = [] }: LanePart) =>
  withoutAggregates.length > 0 || withoutTopics.length > 0

/** Parts with a low-water mark. */
type Marked = LanePart & { readonly from: NonNullable<LanePart["from"]> }

const isMarked = (part: LanePart): part is Marked => part.from !== undefined

/** Lanes about as far as the farthest one, which one scan can read from the least of their low-water marks on. */
const nearOnes = (parts: ReadonlyArray<LanePart>): ReadonlyArray<Marked> => {
  if (!parts.every(isMarked) || parts.some(leavesOut)) return []
  const farthest = parts.reduce((most, { from }) => (from.seq > most ? from.seq : most), 0n)
  const isNear = ({ from }: Marked) => farthest - from.seq <= mostApart
  if (parts.every(isNear)) return parts
  const near = parts.filter(isNear)
  return near.length >= fewLanes ? near : []
}

/** Whether the part takes all of these events. */
const fits = ({ events }: Fetched, part: LanePart) => {
  let bytes = 0
  for (const { recordBytes } of events) bytes += recordBytes
  return events.length <= part.events && (bytes <= part.bytes || events.length <= 1)
}

/** The lanes with runs of several topics. The queue's mark locks their rows in another order than the small one, and the two would deadlock. */
const mixedLanes = (runs: ReadonlyArray<Acknowledged>): ReadonlySet<Lane> => {
  const topicOf = new Map(runs.map(({ lane, topic }) => [lane, topic]))
  return new Set(runs.filter(({ lane, topic }) => topicOf.get(lane) !== topic).map(({ lane }) => lane))
}

/** The acknowledged events of a small mark in order of `seq`; `undefined` if the mark is not small. */
const rowsOf = (runs: ReadonlyArray<Acknowledged>) => {
  const count = runs.reduce((sum, { events }) => sum + events.length, 0)
  if (count === 0 || count > mostEvents) return undefined
  const rows = runs
    .flatMap(({ events, lane, receipt: { ageMillis, baseOffset, partition } }) => {
      const age = ageMillis?.() ?? 0
      return events.map(({ seq }, index) => ({ lane, seq, partition, offset: baseOffset + BigInt(index), age }))
    })
    .toSorted((one, other) => (one.seq < other.seq ? -1 : 1))
  return rows.at(-1)!.seq - rows[0]!.seq > mostApart ? undefined : rows
}

/** The first rows of these lanes. Its text is kept, as the mark's. */
const scanText = (ofTheLanes: string) => `
  SELECT ${eventColumns("e", `CASE WHEN e.record_bytes <= ${mostRecordBytes} THEN e.data::text END`)},
         (e.aggregate_type, e.aggregate_id) IN (
           SELECT aggregate_type, aggregate_id FROM outbox_holds WHERE ${ofTheLanes}
         ) AS held
  FROM outbox_events AS e
  WHERE e.lane = ANY ($1::int2[]) AND e.seq >= CASE WHEN ${serverStartText} = $2::text THEN $3::int8 ELSE 0 END
    AND e.seq <> ALL ($5::int8[])
  ORDER BY e.lane, e.seq LIMIT $4::int4`

const fewText = scanText("lane = ANY ($1::int2[])")
/** A range costs less than so many probes. Holds of lanes between match no row. */
const manyText = scanText("lane BETWEEN $6::int2 AND $7::int2")

/** Deletes the rows of these lanes that have these numbers. A number's index among them is that of its lane, partition, offset and age. */
const publishedText = (archive: boolean) => `
  WITH published AS (
    DELETE FROM outbox_events
    WHERE lane = ANY ($1::int2[]) AND seq BETWEEN ($2::int8[])[1] AND ($2::int8[])[cardinality($2::int8[])]
      AND seq = ($2::int8[])[width_bucket(seq, $2::int8[])] AND lane = ($3::int2[])[width_bucket(seq, $2::int8[])]
    RETURNING ${archive ? offsets : "1"}
  )`

const offsets = `*, ($4::int4[])[width_bucket(seq, $2::int8[])] AS broker_partition,
  ($5::int8[])[width_bucket(seq, $2::int8[])] AS broker_offset, ($6::int4[])[width_bucket(seq, $2::int8[])] AS age_millis`

export const layer: Layer.Layer<Queue, never, Queue | SqlClient.SqlClient> = Layer.effect(
  Queue,
  Effect.gen(function* () {
    const queue = yield* Queue
    const { archive } = yield* QueueSettings
    const sql = yield* SqlClient.SqlClient
    const client = Effect.map(TurnConnection, (connection) => connection ?? sql)
    const markText = `${publishedText(archive)}${archive ? markEnd.archived : markEnd.deleted}`
    let resting = 0

    /** All that waits in the lanes; `undefined` if it is more, or larger, than one scan brings, or more than the parts take. */
    const scan = Effect.fnUntraced(function* (parts: ReadonlyArray<Marked>, without: ReadonlySet<bigint>) {
      const lanes = parts.map(({ lane }) => lane)
      const { seq, server } = parts.reduce((least, { from }) => (from.seq < least.seq ? from : least), parts[0]!.from)
      // As text: of an array the driver asks each number for its type, and Postgres casts each.
      const listOf = (numbers: ReadonlyArray<unknown>) => `{${numbers.join(",")}}`
      // Each row is compared with each of these numbers, so they are few.
      const leftOut = listOf([...without].slice(0, mostEvents))
      const values = [listOf(lanes), server, seq, mostEvents + 1, leftOut]
      const areFew = lanes.length < fewLanes
      // oxlint-disable-next-line paid-once/decoded-rows -- as the queue's own fetch
      const rows = yield* (yield* client).unsafe<QueuedEvent>(
        areFew ? fewText : manyText,
        areFew ? values : [...values, Math.min(...lanes), Math.max(...lanes)]
      )
      if (rows.length > mostEvents || rows.some(({ data }) => data === null)) return undefined
      const found = byPart(parts, rows)
      return found.every((ofLane, index) => fits(ofLane, parts[index]!)) ? found : undefined
    }, Effect.orDie)

    return Queue.of({
      ...queue,
      fetch: Effect.fnUntraced(function* (parts, without = new Set()) {
        const near = resting > 0 ? [] : nearOnes(parts)
        resting = Math.max(0, resting - 1)
        if (near.length === 0) return yield* queue.fetch(parts, without)
        // A scan that fails rests, too.
        resting = fetchesBetween
        const far = near.length === parts.length ? [] : parts.filter((part) => !near.some((one) => one === part))
        // As a rule no lane is far, and the scan needs no fiber of its own.
        const [scanned, ofFar] = yield* far.length === 0
          ? Effect.map(scan(near, without), (found) => [found, []] as const)
          : Effect.all([scan(near, without), queue.fetch(far, without)], { concurrency: 2 })
        if (scanned !== undefined) resting = 0
        const ofNear = scanned ?? (yield* queue.fetch(near, without))
        if (far.length === 0) return ofNear
        const ofLane = new Map([...ofNear, ...ofFar].map((one) => [one.lane, one]))
        return parts.map(({ lane }) => ofLane.get(lane)!)
      }),
      mark: Effect.fnUntraced(function* (all) {
        const mixed = mixedLanes(all)
        const runs = mixed.size === 0 ? all : all.filter(({ lane }) => !mixed.has(lane))
        const rows = rowsOf(runs)
        if (rows === undefined) return yield* queue.mark(all)
        if (mixed.size > 0) yield* queue.mark(all.filter(({ lane }) => mixed.has(lane)))
        const lanes = [...new Set(runs.map(({ lane }) => lane))]
        const column = (name: keyof (typeof rows)[number]) => rows.map((row) => row[name])
        const values = [lanes, column("seq"), column("lane"), column("partition"), column("offset"), column("age")]
        yield* (yield* client).unsafe(markText, values).pipe(
          // The queue names the id.
          Effect.catchIf(isIdTaken, () => queue.mark(runs)),
          Effect.orDie
        )
      })
    })
  })
)
