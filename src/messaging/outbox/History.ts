/** Where the events of one aggregate are: still in the queue, or published and where. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { laneOf } from "./Lane.ts"

/** The states of an event on its way. */
export const DeliveryState = Schema.Literals(["queued", "retrying", "parked", "published", "dead", "discarded"])
export type DeliveryState = typeof DeliveryState.Type

/** An event of the past. `partition`, `offset` and `publishedAt` are there once it is published. */
export const PastEvent = Schema.Struct({
  eventId: Schema.String,
  version: Schema.Int,
  type: Schema.String,
  occurredAt: Schema.String,
  delivery: Schema.Struct({
    state: DeliveryState,
    partition: Schema.NullOr(Schema.Int),
    offset: Schema.NullOr(Schema.String),
    publishedAt: Schema.NullOr(Schema.String)
  })
})
export type PastEvent = typeof PastEvent.Type

const decodeEvents = Schema.decodeUnknownEffect(Schema.Array(PastEvent))

export class History extends Context.Service<
  History,
  {
    /** The aggregate's events that are queued or archived, in version order, as one statement saw them. */
    readonly of: (aggregateId: string) => Effect.Effect<ReadonlyArray<PastEvent>>
  }
>()("paid-once/messaging/outbox/History") {
  static readonly layer: Layer.Layer<History, never, SqlClient.SqlClient> = Layer.effect(
    History,
    Effect.map(SqlClient.SqlClient, (sql) =>
      History.of({
        of: Effect.fn("History.of")(function* (aggregateId) {
          // The lane leads the queue's only index; archived rows carry none.
          const rows = yield* sql`
            SELECT event_id::text AS "eventId", aggregate_version AS version, event_type AS type,
                   to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
                   json_build_object(
                     'state', status, 'partition', broker_partition, 'offset', broker_offset::text,
                     'publishedAt', to_char(published_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) AS delivery
            FROM outbox_status
            WHERE aggregate_id = ${aggregateId} AND (lane = ${laneOf(aggregateId)}::int2 OR lane IS NULL)
            ORDER BY aggregate_version`
          return yield* decodeEvents(rows)
        }, Effect.orDie)
      })
    )
  )
}
