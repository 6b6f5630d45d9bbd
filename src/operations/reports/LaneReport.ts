/** The operator's view of the lanes: which process owns each, and what waits in it. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { allLanes, laneCount, partitionOf } from "../../outbox/Lane.ts"
import { LaneOwnership } from "../../outbox/LaneOwnership.ts"
import * as Rows from "../../platform/Rows.ts"
import * as SlotOwners from "../../platform/SlotOwners.ts"
import { countLimit } from "./ReportSql.ts"

/** A lane, as far as it carries one topic. */
export const LaneView = Schema.Struct({
  topic: Schema.String,
  lane: Schema.Int,
  /** The partition that the lane's events go to; null before the topic is first used. */
  partition: Schema.NullOr(Schema.Int),
  /** The process that owns the lane; null while nobody does. */
  owner: Schema.NullOr(Schema.String),
  /** Events in the queue that no hold keeps back, counted up to {@link readyLimit}. */
  ready: Schema.Int,
  /** Age of the oldest of them; null where there is none. */
  oldestReadySeconds: Schema.NullOr(Schema.Number),
  /** Events that were refused or wait behind one that was. */
  parked: Schema.Int,
  /** Events that wait for an operator. */
  dead: Schema.Int,
  /** Whether an operator has paused the topic. */
  isPaused: Schema.Boolean
}).annotate({ identifier: "Lane" })
export type LaneView = typeof LaneView.Type

/** A person sees that a lane is far behind. Counting all of a backlog in 64 lanes would cost more than it tells. */
export const readyLimit = 500

const Waiting = Schema.Struct({
  topic: Schema.String,
  lane: Schema.Int,
  ready: Schema.Int,
  oldestReadySeconds: Schema.NullOr(Schema.Number),
  parked: Schema.Int,
  dead: Schema.Int
})
const allWaiting = Rows.all(Waiting)
const Topic = Schema.Struct({ topic: Schema.String, partitions: Schema.NullOr(Schema.Int), isPaused: Schema.Boolean })
const allTopics = Rows.all(Topic)

const nothing = { ready: 0, oldestReadySeconds: null, parked: 0, dead: 0 }

export class LaneReport extends Context.Service<
  LaneReport,
  {
    /** Each lane of each topic, by topic and lane. */
    readonly lanes: Effect.Effect<ReadonlyArray<LaneView>>
  }
>()("paid-once/operations/reports/LaneReport") {
  /** `topics` are shown also before their first event. */
  static readonly layer = (topics: ReadonlyArray<string>): Layer.Layer<LaneReport, never, SqlClient.SqlClient> =>
    Layer.effect(
      LaneReport,
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient

        const waiting = allWaiting(sql`
          WITH found AS (
            SELECT e.topic, e.lane, 1 AS ready, 0 AS parked, 0 AS dead, e.occurred_at
            FROM generate_series(0, ${laneCount - 1}::int4) AS number(lane),
                 LATERAL (SELECT * FROM outbox_events AS q WHERE q.lane = number.lane::int2 ORDER BY q.seq LIMIT ${readyLimit}) AS e
            WHERE NOT EXISTS (SELECT FROM outbox_holds AS h WHERE (h.aggregate_type, h.aggregate_id) = (e.aggregate_type, e.aggregate_id))
            UNION ALL (SELECT topic, lane, 0, 1, 0, NULL FROM outbox_parked LIMIT ${countLimit})
            UNION ALL (SELECT topic, lane, 0, 0, 1, NULL FROM outbox_dead_letters WHERE status = 'dead' LIMIT ${countLimit}))
          SELECT topic, lane::int4 AS lane, sum(ready)::int4 AS ready, sum(parked)::int4 AS parked, sum(dead)::int4 AS dead,
                 extract(epoch FROM clock_now() - min(occurred_at))::float8 AS "oldestReadySeconds"
          FROM found GROUP BY topic, lane`)

        const known = allTopics(sql`
          SELECT topic, t.partitions, p.name IS NOT NULL AS "isPaused"
          FROM (SELECT unnest(${[...topics]}::text[]) UNION SELECT topic FROM outbox_topics) AS known(topic)
          LEFT JOIN outbox_topics AS t USING (topic)
          LEFT JOIN operator_pauses AS p ON p.kind = 'topic' AND p.name = topic
          ORDER BY topic`)

        const lanes = Effect.gen(function* () {
          const owners = yield* SlotOwners.of(LaneOwnership.group)
          const found = new Map((yield* waiting).map((one) => [`${one.topic}\0${one.lane}`, one]))
          return (yield* known).flatMap(({ isPaused, partitions, topic }) =>
            allLanes.map((lane): LaneView => ({
              ...nothing,
              ...found.get(`${topic}\0${lane}`),
              topic,
              lane,
              partition: partitions === null ? null : partitionOf(lane, partitions),
              owner: owners.get(lane) ?? null,
              isPaused
            }))
          )
        }).pipe(Effect.orDie, Effect.provideService(SqlClient.SqlClient, sql), Effect.withSpan("LaneReport.lanes"))
        return LaneReport.of({ lanes })
      })
    )
}
