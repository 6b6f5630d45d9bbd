/**
 * Where each lane's events begin: a lower bound of `seq` for whoever reads a lane from its front.
 *
 * Published rows are deleted, but their index entries stay until no old snapshot can see them. Under a reader that is open for ten
 * minutes (a report, a dump) each look at a lane's front would step over ten minutes of dead entries.
 *
 * Why this is no id cursor. "Greater than the last one seen" skips whoever took a smaller seq and commits later. A floor is raised only
 * over numbers that can't come any more:
 *
 * 1. the sequence's value is read, and after it a transaction id is drawn. Whoever had a number up to that value has a smaller
 *    transaction id, for an event is inserted after a write or lock of its aggregate's row, which gave the transaction its id;
 * 2. once all smaller transaction ids have ended (a snapshot's xmin tells; readers have no id and don't count), the rows up to
 *    that value are there for everyone, or will never be;
 * 3. in that same snapshot each lane's first row is looked up, from its old floor on, in every table whose rows may stand in the queue
 *    again with the number that they had. Nothing below it can appear.
 *
 * A lane's backlog of topics that can't be sent to is in front of whatever else is in it, too, and each look for that would step over all of it. So
 * in step 3 the lane's first row *beside* such topics is looked up as well, and whoever leaves these topics out begins there. Rows of other topics can't
 * appear below it, for the same reason.
 *
 * Three nets. A new start or a failover of the server makes every floor void, in the statement that uses it. The crash of a single backend
 * makes the server recover *without* a new start: the numbers below a floor are on disk by then (`propose`), and as it ends all sessions,
 * ours with the lanes' locks too, a lane that is lost loses its floor. And now and then the third step looks from the very beginning: should a foreign hand insert an event
 * without a lock of anything before it, that row is late and not lost.
 */
import { Array, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { type Lane, laneCount } from "./Lane.ts"

/**
 * Every table that keeps a lane and a seq (test/outbox/LaneFloors.test.ts asks the schema), and which of its rows may stand in the
 * queue again: what is parked comes back, and a dead letter that is retried; what was discarded never does.
 */
export const places: ReadonlyArray<{ readonly table: string; readonly comesBack: string }> = [
  { table: "outbox_events", comesBack: "true" },
  { table: "outbox_parked", comesBack: "true" },
  { table: "outbox_dead_letters", comesBack: "e.status = 'dead'" }
]

/** Rounds between two that look at the whole lane: half a minute at a round a second, for a net that nobody of ours falls into. */
const roundsBetweenFullLooks = 30

/** A round that waits for a transaction to end is given up after so many, so that it can't wait for one of another server. */
const patienceRounds = 60

/** What a floor will be once every transaction below `xid` has ended. */
interface Candidate {
  readonly lastSeq: bigint
  readonly xid: string
  /** Rounds that it has waited for. */
  readonly waited: number
}

/** The floors of one process, all at the beginning. They are facts about the table, whoever owns the lane. */
export const make = (sql: SqlClient.SqlClient) => {
  const floors = new BigInt64Array(laneCount)
  const known = new Set<Lane>()
  /** By lane: where rows of other topics than these begin. */
  const beside = new Map<Lane, { readonly topics: ReadonlyArray<string>; readonly floor: bigint }>()
  /** The lane's floor for whoever leaves these topics out. */
  const of = (lane: Lane, leftOut: ReadonlyArray<string>): bigint => {
    const floor = floors[lane]!
    const higher = beside.get(lane)
    return higher !== undefined && higher.floor > floor && higher.topics.every((topic) => leftOut.includes(topic))
      ? higher.floor
      : floor
  }
  /** The server's start that the floors belong to. */
  let server = ""
  let candidate: Candidate | undefined
  let rounds = 0
  let full = true
  /** Whether rows died since the last round that was completed. */
  let dirty = false
  /** How often lanes were forgotten: what a statement found that was under way meanwhile is void. */
  let forgotten = 0

  const propose = Effect.gen(function* () {
    const before = forgotten
    const [last] = yield* sql<{ readonly seq: bigint; readonly server: string }>`
      SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS seq, pg_postmaster_start_time()::text AS server
      FROM outbox_events_seq_seq`
    // A statement of its own, for it must come after the one above. Its message makes the commit flush the log, and with it the sequence's
    // place: numbers up to there are not handed out again by a server that recovers from a crash.
    const [drawn] = yield* sql<{ readonly xid: string; readonly server: string }>`
      SELECT pg_current_xact_id()::text AS xid, pg_postmaster_start_time()::text AS server
      FROM (SELECT pg_logical_emit_message(true, 'outbox floors', '') OFFSET 0) AS durable`
    if (last === undefined || drawn === undefined || last.server !== drawn.server || forgotten !== before) return
    if (drawn.server !== server) {
      floors.fill(0n)
      beside.clear()
      known.clear()
      server = drawn.server
    }
    dirty = false
    candidate = { lastSeq: last.seq, xid: drawn.xid, waited: 0 }
  })

  /** Each lane's first row but for these topics, from `from` on; none at all where the candidate's time has not come. */
  const firstRows = (
    lanes: ReadonlyArray<Lane>,
    from: (lane: Lane) => bigint,
    leftOut: ReadonlyArray<string>,
    { xid }: Candidate
  ) => {
    const firstOf = ({ comesBack, table }: (typeof places)[number]) => sql`
      (SELECT e.seq FROM ${sql(table)} AS e
       WHERE e.lane = lane.lane AND e.seq >= lane.floor AND ${sql.literal(comesBack)}
         ${leftOut.length === 0 ? sql`` : sql`AND e.topic <> ALL (${[...leftOut]}::text[])`}
       ORDER BY e.lane, e.seq LIMIT 1)`
    return sql<{ readonly lane: Lane; readonly first: bigint | null }>`
      SELECT lane.lane, least(${sql.csv(places.map(firstOf))}) AS first
      FROM unnest(${[...lanes]}::int2[], ${lanes.map(from)}::int8[]) AS lane(lane, floor)
      WHERE pg_snapshot_xmin(pg_current_snapshot()) >= ${xid}::text::xid8
        AND pg_postmaster_start_time()::text = ${server}::text`
  }

  /** Where each lane's rows beside its topics begin, lanes with the same ones together. */
  const raiseBeside = Effect.fnUntraced(function* (
    lanes: ReadonlyArray<Lane>,
    topicsOf: (lane: Lane) => ReadonlyArray<string>,
    isFull: boolean,
    candidate: Candidate
  ) {
    const before = forgotten
    for (const lane of lanes) if (topicsOf(lane).length === 0) beside.delete(lane)
    const groups = Object.values(
      Array.groupBy(
        lanes.map((lane) => ({ lane, topics: topicsOf(lane) })).filter(({ topics }) => topics.length > 0),
        ({ topics }) => topics.join("\0")
      )
    )
    for (const group of groups) {
      const { topics } = group[0]
      const rows = yield* firstRows(
        group.map(({ lane }) => lane),
        (lane) => (isFull ? 0n : of(lane, topics)),
        topics,
        candidate
      )
      if (forgotten !== before) return
      for (const { first, lane } of rows) {
        const { lastSeq } = candidate
        beside.set(lane, { topics, floor: first === null || first > lastSeq ? lastSeq + 1n : first })
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
    const isFull = full
    const rows = yield* firstRows(lanes, (lane) => (isFull ? 0n : floors[lane]!), [], found)
    if (forgotten !== before) return
    if (rows.length === 0) {
      candidate = waited < patienceRounds ? { lastSeq, xid, waited: waited + 1 } : undefined
      dirty = true
      return
    }
    for (const { first, lane } of rows) {
      floors[lane] = first === null || first > lastSeq ? lastSeq + 1n : first
      known.add(lane)
    }
    candidate = undefined
    full = false
    yield* raiseBeside(lanes, topicsOf, isFull, found)
  })

  return {
    /** The lane's floor, for a statement that leaves these topics out. To be used where `server` is still the one. */
    of,
    /** Lanes that this process has lost begin at the beginning again; whatever was being prepared is void. */
    forget: (lanes: Iterable<Lane>) => {
      for (const lane of lanes) {
        floors[lane] = 0n
        beside.delete(lane)
        known.delete(lane)
        candidate = undefined
        dirty = true
        forgotten++
      }
    },
    /** Names the server that the floors belong to. */
    server: () => server,
    /** Rows of this process's lanes have died. */
    died: () => {
      dirty = true
    },
    /**
     * One round for `lanes`, of which `topicsOf` tells what can't be sent there: to be called about once a second. Asks nothing where nothing has died
     * since the last one, and all can be sent to.
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
