/**
 * Low-water marks: for each lane a lower bound of `seq`, below which no event can appear.
 *
 * Published rows are deleted, but their index entries stay until no old snapshot can see them. If a report or a dump keeps a snapshot open for ten
 * minutes, each query at a lane's front would step over ten minutes of dead entries.
 *
 * A low-water mark is not an id cursor. "Greater than the last one seen" skips a transaction that took a smaller number and commits later. A mark is
 * raised only over numbers that can't appear any more.
 *
 * 1. The sequence's value is read, and after it a transaction id is drawn. A transaction with a number up to that value has a smaller id, since it
 *    wrote or locked its aggregate's row before it inserted its event.
 * 2. Once all transactions with smaller ids have ended, their rows are visible to everyone, or will never exist. A snapshot's xmin tells this.
 * 3. The same snapshot gives the first row of each lane, from its old mark on. It is taken over every table whose rows may return to the queue with
 *    their old numbers. Nothing below it can appear.
 *
 * A second mark stands behind the backlog of paused topics. Without it each query for other topics would step over all of that backlog. Step 3 also
 * finds the lane's first row of the other topics; the same argument holds for them.
 *
 * Three safety nets:
 *
 * - A restart or a failover of the server voids every mark, in the very statement that uses it.
 * - The crash of a backend makes the server recover without a restart. The numbers below a mark are on disk by then (`propose`). The recovery ends
 *   all sessions, so this process loses its lanes and their marks.
 * - Every {@link roundsBetweenFullLooks} rounds step 3 reads the whole lane. So an event that was inserted without any lock is late, and not lost.
 *   Below a second mark it is late until the topic's pause has ended.
 */
import { Array, Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { serverStartText } from "../../outbox/EventRows.ts"
import { Lane, laneCount } from "../../outbox/Lane.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Rows from "../../platform/Rows.ts"

const lastNumber = Rows.one(Schema.Struct({ seq: Schema.BigInt, server: Schema.String }))
const drawnId = Rows.one(Schema.Struct({ xid: Schema.String, server: Schema.String }))
const firstOfLanes = Rows.all(Schema.Struct({ lane: Lane, first: Schema.NullOr(Schema.BigInt) }))
const piecesOfLanes = Rows.all(
  Schema.Struct({ lane: Lane, first: Schema.NullOr(Schema.BigInt), last: Schema.NullOr(Schema.BigInt) })
)

const queueTable = "outbox_events"

/**
 * Every table that has a lane and a seq (test/postgres/fast/LowWaterMarks.test.ts asks the schema). `comesBack` says which of its rows may return to
 * the queue: parked rows, and dead letters that may be retried, but never discarded ones.
 */
export const places: ReadonlyArray<{ readonly table: string; readonly comesBack: string }> = [
  { table: queueTable, comesBack: "true" },
  { table: "outbox_parked", comesBack: "true" },
  { table: "outbox_dead_letters", comesBack: "e.status = 'dead'" }
]

/** Rounds between two that read the whole lane: half a minute at a round per second. Our own writers never need this net. */
const roundsBetweenFullLooks = 30

/** Rows of each lane that one statement steps over for the second mark: some tenths of a second for all lanes, if it reads them from disk. */
const pieceRows = 1_000

/** A round stops stepping over rows after this time, and the next one continues. A large backlog must not block the marks or a connection. */
const secondMarksMillis = 500

/** A proposal is dropped after this many rounds of waiting, so that it never waits for a transaction of another server. */
const patienceRounds = 60

/** The proposed low-water mark. It is valid once every transaction below `xid` has ended. */
interface Candidate {
  readonly lastSeq: bigint
  readonly xid: string
  /** Rounds that it has waited. */
  readonly waited: number
}

/** The marks of one process, initially 0. A mark is a fact about the table, whoever owns the lane. */
export const make = (sql: SqlClient.SqlClient) => {
  const marks = Array.makeBy(laneCount, () => 0n)
  const known = new Set<Lane>()
  /** For each lane, the `seq` at which rows of other topics than `topics` begin. */
  const secondMarks = new Map<Lane, { readonly topics: ReadonlyArray<string>; readonly mark: bigint }>()
  /** The lane's low-water mark for a statement that leaves these topics out. */
  const of = (lane: Lane, leftOut: ReadonlyArray<string>): bigint => {
    const mark = marks[lane]!
    const higher = secondMarks.get(lane)
    return higher !== undefined && higher.mark > mark && higher.topics.every((topic) => leftOut.includes(topic))
      ? higher.mark
      : mark
  }
  /** The start time of the server that the marks belong to. */
  let server = ""
  let candidate: Candidate | undefined
  let rounds = 0
  let full = true
  /** Whether rows were deleted since the last completed round. */
  let dirty = false
  /** How often lanes were forgotten. A statement's result is void if this changed while it ran. */
  let forgotten = 0

  const propose = Effect.gen(function* () {
    const before = forgotten
    const last = yield* lastNumber(sql`
      SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS seq, pg_postmaster_start_time()::text AS server
      FROM outbox_events_seq_seq`)
    // A separate statement, since it must follow the one above. Its message makes the commit flush the log with the sequence's value. So a server
    // that recovers from a crash does not assign those numbers again.
    const drawn = yield* drawnId(sql`
      SELECT pg_current_xact_id()::text AS xid, pg_postmaster_start_time()::text AS server
      FROM (SELECT pg_logical_emit_message(true, 'outbox low-water marks', '') OFFSET 0) AS durable`)
    if (last.server !== drawn.server || forgotten !== before) return
    if (drawn.server !== server) {
      marks.fill(0n)
      secondMarks.clear()
      known.clear()
      server = drawn.server
    }
    dirty = false
    candidate = { lastSeq: last.seq, xid: drawn.xid, waited: 0 }
  })

  /** In the snapshot of the query: every transaction below `xid` has ended, and the server has not restarted. */
  const isTime = ({ xid }: Candidate) => sql`
    pg_snapshot_xmin(pg_current_snapshot()) >= ${xid}::text::xid8
    AND ${sql.literal(serverStartText)} = ${server}::text`
  const firstOf = ({ comesBack, table }: (typeof places)[number], leftOut: ReadonlyArray<string>) => sql`
    (SELECT e.seq FROM ${sql(table)} AS e
     WHERE e.lane = lane.lane AND e.seq >= lane.mark AND ${sql.literal(comesBack)}
       ${leftOut.length === 0 ? sql`` : sql`AND e.topic <> ALL (${[...leftOut]}::text[])`}
     ORDER BY e.lane, e.seq LIMIT 1)`

  /**
   * Reads a piece of each lane's queue, from the lane's second mark on. `first` is the first row of other topics, and may come from any table. `last`
   * is the last row of the piece, if there may be more rows.
   */
  const pieces = (lanes: ReadonlyArray<Lane>, topics: ReadonlyArray<string>, candidate: Candidate) =>
    piecesOfLanes(sql`
      SELECT lane.lane,
             least(${sql.csv([sql`piece.first`, ...places.filter(({ table }) => table !== queueTable).map((place) => firstOf(place, topics))])}) AS first,
             CASE WHEN piece.count = ${pieceRows}::int8 THEN piece.last END AS last
      FROM unnest(${[...lanes]}::int2[], ${lanes.map((lane) => of(lane, topics))}::int8[]) AS lane(lane, mark)
      CROSS JOIN LATERAL (
        SELECT min(seq) FILTER (WHERE topic <> ALL (${[...topics]}::text[])) AS first, max(seq) AS last, count(*) AS count
        FROM (SELECT e.seq, e.topic FROM outbox_events AS e
              WHERE e.lane = lane.lane AND e.seq >= lane.mark ORDER BY e.lane, e.seq LIMIT ${pieceRows}::int8) AS rows
      ) AS piece
      WHERE ${isTime(candidate)}`)

  /** Raises the second marks, as far as one round comes. Lanes with the same left-out topics share a statement. */
  const raiseSecondMarks = Effect.fnUntraced(function* (
    lanes: ReadonlyArray<Lane>,
    topicsOf: (lane: Lane) => ReadonlyArray<string>,
    candidate: Candidate
  ) {
    const before = forgotten
    const began = yield* Monotonic.millis
    for (const lane of lanes) if (topicsOf(lane).length === 0) secondMarks.delete(lane)
    const groups = Object.values(
      Array.groupBy(
        lanes.map((lane) => ({ lane, topics: topicsOf(lane) })).filter(({ topics }) => topics.length > 0),
        ({ topics }) => topics.join("\0")
      )
    )
    const end = candidate.lastSeq + 1n
    for (const group of groups) {
      const { topics } = group[0]
      let left: ReadonlyArray<Lane> = group.map(({ lane }) => lane)
      while (left.length > 0) {
        if ((yield* Monotonic.millis) - began > secondMarksMillis) return
        const rows = yield* pieces(left, topics, candidate)
        if (forgotten !== before) return
        for (const { first, lane, last } of rows) {
          const bounds = [end, ...(first === null ? [] : [first]), ...(last === null ? [] : [last + 1n])]
          secondMarks.set(lane, { topics, mark: bounds.reduce((one, other) => (other < one ? other : one)) })
        }
        left = rows
          .filter(({ first, last }) => first === null && last !== null && last + 1n < end)
          .map(({ lane }) => lane)
      }
    }
  })

  const raise = Effect.fnUntraced(function* (
    lanes: ReadonlyArray<Lane>,
    topicsOf: (lane: Lane) => ReadonlyArray<string>,
    found: Candidate
  ) {
    const { lastSeq, waited, xid } = found
    const before = forgotten
    const rows = yield* firstOfLanes(sql`
      SELECT lane.lane, least(${sql.csv(places.map((place) => firstOf(place, [])))}) AS first
      FROM unnest(${[...lanes]}::int2[], ${lanes.map((lane) => (full ? 0n : marks[lane]!))}::int8[]) AS lane(lane, mark)
      WHERE ${isTime(found)}`)
    if (forgotten !== before) return
    if (rows.length === 0) {
      candidate = waited < patienceRounds ? { lastSeq, xid, waited: waited + 1 } : undefined
      dirty = true
      return
    }
    for (const { first, lane } of rows) {
      marks[lane] = first === null || first > lastSeq ? lastSeq + 1n : first
      known.add(lane)
    }
    candidate = undefined
    full = false
    yield* raiseSecondMarks(lanes, topicsOf, found)
  })

  return {
    /** The lane's low-water mark for a statement that leaves these topics out. Valid while `server` is unchanged. */
    of,
    /** Resets the marks of lanes that this process has lost, and drops the current proposal. */
    forget: (lanes: Iterable<Lane>) => {
      for (const lane of lanes) {
        marks[lane] = 0n
        secondMarks.delete(lane)
        known.delete(lane)
        candidate = undefined
        dirty = true
        forgotten++
      }
    },
    /** The start time of the server that the marks belong to. */
    server: () => server,
    /** Rows of this process's lanes were deleted. */
    died: () => {
      dirty = true
    },
    /**
     * Runs one round for `lanes`, about once a second. `topicsOf` gives a lane's topics that can't be sent to. Without deletions and such topics it
     * sends no query.
     */
    raise: (lanes: ReadonlyArray<Lane>, topicsOf: (lane: Lane) => ReadonlyArray<string>) =>
      Effect.suspend(() => {
        if (++rounds % roundsBetweenFullLooks === 0) full = true
        if (lanes.length === 0) return Effect.void
        if (candidate !== undefined) return raise(lanes, topicsOf, candidate)
        return dirty || full || lanes.some((lane) => !known.has(lane) || topicsOf(lane).length > 0)
          ? propose
          : Effect.void
      })
  }
}
