/** The doctor's checks of the way of events: lanes and partitions have owners that move, and no aggregate is held for long. */
import { Context, Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { laneCount } from "../../outbox/Lane.ts"
import { LaneOwnership } from "../../outbox/LaneOwnership.ts"
import * as Backoff from "../../platform/Backoff.ts"
import { lasting } from "../../platform/Lasting.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import * as SlotOwners from "../../platform/SlotOwners.ts"
import { PauseDecisions } from "../pauses/PauseDecisions.ts"
import { ConsumerLag, type Lag } from "../reports/ConsumerLag.ts"
import { type Check, type Finding, notChecked, told } from "./Check.ts"

/** An event is published within a second, and after a rebalance of lanes within ten. */
const oldSeconds = 60

/** What does not move is looked at again after this time: a send that hangs has ended, and a lane has had several turns. */
const againMillis = 4_000

export const FlowLimits = Context.Reference<{
  /** What stands still for so long hangs. A healthy loop moves sooner: after an outage it waits for {@link Backoff.restartCapMillis} at most. */
  readonly stillMillis: number
}>("paid-once/operations/doctor/FlowLimits", {
  defaultValue: () => ({ stillMillis: Backoff.restartCapMillis + 2 * againMillis })
})

/** A check that waits for {@link FlowLimits}, and asks a broker at each look. */
const boundMillis = 90_000

/** Those that stand still at each look, until none is left or the time of {@link FlowLimits} is over. `look` tells whether an item does. */
const standing = Effect.fnUntraced(function* <A, E, R>(
  items: ReadonlyArray<A>,
  look: Effect.Effect<(item: A) => boolean, E, R>
) {
  const { stillMillis } = yield* FlowLimits
  let left = items
  for (let millis = 0; left.length > 0 && millis < stillMillis; millis += againMillis) {
    yield* Effect.sleep(againMillis)
    left = left.filter(yield* look)
  }
  return left
})

const heads = Rows.all(
  Schema.Struct({ lane: Schema.Int, topic: Schema.String, seq: Schema.BigInt, seconds: Schema.Finite })
)

/** Events of a lane that are looked through for one that no hold keeps back. */
const headLimit = 500

/** The first event of each lane and topic that nothing keeps back but its dispatcher. */
const lanesHeads = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  heads(sql`
    SELECT DISTINCT ON (e.lane, e.topic) e.lane::int4 AS lane, e.topic, e.seq, extract(epoch FROM clock_now() - e.occurred_at)::float8 AS seconds
    FROM generate_series(0, ${laneCount - 1}::int4) AS number(lane),
         LATERAL (SELECT * FROM outbox_events AS q WHERE q.lane = number.lane::int2 ORDER BY q.seq LIMIT ${headLimit}) AS e
    WHERE NOT EXISTS (SELECT FROM outbox_holds AS h WHERE (h.aggregate_type, h.aggregate_id) = (e.aggregate_type, e.aggregate_id))
      AND NOT EXISTS (SELECT FROM operator_pauses AS p WHERE p.kind = 'topic' AND p.name = e.topic)
    ORDER BY e.lane, e.topic, e.seq`)
)

const noDispatcher = (problem: string): Finding => ({
  problem,
  fix: "Start a process with the role dispatcher",
  command: "PORT=0 npm run paid-once -- serve --roles dispatcher"
})

const lanes: Check<SqlClient.SqlClient> = {
  group: "outbox",
  name: "lanes-move",
  boundMillis,
  run: Effect.gen(function* () {
    const owners = yield* SlotOwners.of(LaneOwnership.group)
    const members = yield* SlotOwners.members(LaneOwnership.group)
    const old = yield* standing(
      (yield* lanesHeads).filter(({ seconds }) => seconds > oldSeconds),
      Effect.map(lanesHeads, (heads) => {
        const now = new Map(heads.map(({ lane, seq, topic }) => [`${lane} ${topic}`, seq]))
        return ({ lane, seq, topic }) => now.get(`${lane} ${topic}`) === seq
      })
    )
    const findings: Array<Finding> = []
    if (members.length === 0) findings.push(noDispatcher("no dispatcher runs: events are taken, and none is published"))
    // One cause stops many lanes of a process: they are one finding.
    for (const heads of Map.groupBy(old, ({ lane, topic }) => `${topic} ${owners.get(lane)}`).values()) {
      const [{ lane, topic } = heads[0]!, another] = heads
      const owner = owners.get(lane)
      const age = lasting(Math.max(...heads.map(({ seconds }) => seconds)))
      const waits =
        another === undefined
          ? `the oldest event of lane ${lane} has waited for ${topic} for ${age}`
          : `the oldest events of ${heads.length} lanes have waited for ${topic} for up to ${age}`
      const them = another === undefined ? "the lane" : "the lanes"
      findings.push(
        owner === undefined
          ? noDispatcher(`${waits}, and no process owns ${them}`)
          : {
              problem: `${waits}, and ${owner}, the owner of ${them}, does not move`,
              fix: "Mend what locks has found; look at the owner's log and at the broker. If the process hangs, end it: another one takes over",
              command: "npm run paid-once -- outbox status"
            }
      )
    }
    return told(
      `${owners.size} of ${laneCount} lanes are owned by ${countOf(members.length, "process", "processes")}`,
      [
        ...findings,
        ...(members.length > 0 && owners.size < laneCount
          ? [
              noDispatcher(
                `${laneCount - owners.size} of ${laneCount} lanes have no owner, although a dispatcher runs; a start or a stop takes some seconds`
              )
            ]
          : [])
      ]
    )
  })
}

/** A consumer's reader that has records to read. */
const readersIn = (lags: ReadonlyArray<Lag>) =>
  lags.flatMap(({ consumer, partitions, topic }) =>
    partitions
      .filter(({ lag, owner }) => lag > 0 && owner !== null)
      .map(({ committed, lag, owner, partition }) => ({
        consumer,
        lag,
        owner,
        partition,
        topic,
        /** The same at two looks, if the reader has not moved. */
        position: `${consumer} ${partition} ${topic} ${committed} ${owner}`
      }))
  )

/** The partitions that nobody reads. */
const unreadIn = ({ consumer, partitions, topic }: Lag): ReadonlyArray<Finding> => {
  const unread = partitions.filter(({ owner }) => owner === null)
  return unread.length === 0
    ? []
    : [
        {
          problem: `${unread.length} of ${countOf(partitions.length, "partition")} of ${topic} have no reader for ${consumer}`,
          fix: "Start a process with the role consumers",
          command: "PORT=0 npm run paid-once -- serve --roles consumers"
        }
      ]
}

export const consumers: Check<ConsumerLag | PauseDecisions> = {
  group: "consumers",
  name: "consumers-move",
  boundMillis,
  run: Effect.gen(function* () {
    const { all } = yield* ConsumerLag
    const pauses = yield* PauseDecisions.use((decisions) => decisions.all)
    const paused = new Set(pauses.filter(({ kind }) => kind === "consumer").map(({ name }) => name))
    const look = Effect.map(all, (lags) => lags.filter(({ consumer }) => !paused.has(consumer)))
    const before = yield* look
    const silent = before.find(({ unknown }) => unknown !== null)
    if (silent !== undefined) return notChecked(`the broker does not tell: ${silent.unknown}`)
    // A partition without a reader may be on its way from one process to another.
    const isCalm = before.every((one) => one.partitions.every(({ lag, owner }) => lag === 0 && owner !== null))
    if (!isCalm) yield* Effect.sleep(againMillis)
    const now = isCalm ? before : yield* look
    const positions = Effect.map(look, (lags) => {
      const all = new Set(readersIn(lags).map(({ position }) => position))
      return ({ position }: { readonly position: string }) => all.has(position)
    })
    const still = yield* standing(readersIn(before), positions)
    return told(now.map(({ consumer, lag }) => `${consumer} ${lag ?? "?"} behind`).join(", "), [
      ...now.flatMap(unreadIn),
      ...still.map(({ consumer, lag, owner, partition, topic }) => ({
        problem: `${consumer} is ${countOf(lag, "record")} behind in partition ${partition} of ${topic}, and ${owner} does not move`,
        fix: "Look at the reader's log; if the process hangs, end it: another one takes the partition over",
        command: "npm run paid-once -- consumers lag"
      }))
    ])
  })
}

const heldRow = Rows.one(Schema.Struct({ held: Schema.Int, late: Schema.Int, oldest: Schema.NullOr(Schema.Finite) }))

/** Holds are counted up to here. */
const holdLimit = 1_000

const holdsOf = (side: "outbox" | "inbox"): Check<SqlClient.SqlClient> => ({
  group: side === "outbox" ? "outbox" : "consumers",
  name: `${side}-holds`,
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { held, late, oldest } = yield* heldRow(sql`
      SELECT count(*)::int4 AS held, count(*) FILTER (WHERE next_attempt_at < clock_now() - ${oldSeconds} * interval '1 second')::int4 AS late,
             extract(epoch FROM clock_now() - min(held_at))::float8 AS oldest
      FROM (SELECT next_attempt_at, held_at FROM ${sql(`${side}_holds`)} WHERE next_attempt_at IS NOT NULL LIMIT ${holdLimit}) AS h`)
    const command = `npm run paid-once -- ${side} list --status retrying`
    return told(held === 0 ? "no aggregate is held" : `${countOf(held, "aggregate")} held`, [
      ...(oldest !== null && oldest > oldSeconds
        ? [
            {
              problem: `${countOf(held, "aggregate")} wait behind an event that is refused and tried again, the oldest for ${lasting(oldest)}`,
              fix: "Read the error of each, and mend its cause; what is not tried any more becomes a dead letter",
              command
            }
          ]
        : []),
      ...(late > 0
        ? [
            {
              problem: `${countOf(late, "retry", "retries")} of the ${side} are overdue by more than ${oldSeconds} s: nobody runs them`,
              fix: `Start a process with the role ${side === "outbox" ? "dispatcher" : "consumers"}, or resume what is paused`,
              command: `npm run paid-once -- status`
            }
          ]
        : [])
    ])
  })
})

export const checks: ReadonlyArray<Check<SqlClient.SqlClient | ConsumerLag | PauseDecisions>> = [
  lanes,
  holdsOf("outbox"),
  consumers,
  holdsOf("inbox")
]
