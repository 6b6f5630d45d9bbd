/**
 * The events of the past: where those of one aggregate are, still in the queue or published and where; and what was published, to be
 * read again, for a projection that is built anew.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { StoredEvent } from "../brokers/Envelope.ts"
import { laneOf } from "../outbox/Lane.ts"
import { skewInterval } from "../platform/Ids.ts"

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

/** A published event as its writer stored it, and where it went. */
export interface ReplayedEvent extends StoredEvent {
  readonly partition: number
  readonly offset: bigint
}

/** What is to be read again: a topic's events, all that the archive holds or those that occurred in `[from, to)`, of all aggregates or one. */
export interface ReplayRange {
  readonly topic: string
  readonly aggregateId?: string
  readonly from?: Date
  readonly to?: Date
}

/** A place in a replay; give it back as it came. */
export interface ReplayCursor {
  readonly aggregateId: string
  readonly aggregateVersion: number
  readonly eventId: string
}

/** Part of a replay. `next` is where the next page begins; an empty page, which has none, is the end. */
export interface ReplayPage {
  readonly events: ReadonlyArray<ReplayedEvent>
  readonly next: ReplayCursor | undefined
}

/** The most events of a page, and the bytes of data at which it ends: an event may be near a megabyte. */
const maxPageEvents = 1_000
const maxPageBytes = 4_000_000

const decodeEvents = Schema.decodeUnknownEffect(Schema.Array(PastEvent))

export class History extends Context.Service<
  History,
  {
    /** The aggregate's events that are queued or archived, in version order, as one statement saw them. */
    readonly of: (aggregateId: string) => Effect.Effect<ReadonlyArray<PastEvent>>
    /**
     * The published events of the range that stand behind `after`, at most `limit` (1,000) and some megabytes of them.
     *
     * Each aggregate's events come in version order, one aggregate after the other: never by time or by id, neither of which is the
     * order in which an aggregate changed. What retention has dropped is missing, and so is all that was published with the archive
     * off. Pages are read one by one: what is published behind the reader's back is found by a later replay, so give a `to` that is
     * past.
     */
    readonly replay: (range: ReplayRange, after?: ReplayCursor, limit?: number) => Effect.Effect<ReplayPage>
  }
>()("paid-once/operations/History") {
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
        }, Effect.orDie),

        replay: Effect.fn("History.replay")(function* (range, after, limit = maxPageEvents) {
          const rows = yield* sql<ReplayedEvent>`
            SELECT event_id::text AS "eventId", topic, event_type AS "eventType", schema_version AS "schemaVersion",
                   aggregate_type AS "aggregateType", aggregate_id AS "aggregateId", aggregate_version AS "aggregateVersion",
                   to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
                   trace_id AS "traceId", span_id AS "spanId", data::text AS data,
                   broker_partition AS partition, broker_offset AS "offset"
            FROM (
              SELECT *, sum(octet_length(data::text)) OVER (ORDER BY aggregate_id, aggregate_version, event_id)
                        - octet_length(data::text) AS bytes_before
              FROM (
                SELECT * FROM event_log
                WHERE ${sql.and([
                  sql`topic = ${range.topic}`,
                  // The bounds on the ids keep Postgres from looking at days outside of the range.
                  ...(range.from === undefined
                    ? []
                    : [
                        sql`occurred_at >= ${range.from}::timestamptz`,
                        sql`event_id >= uuid_v7_floor_at(${range.from}::timestamptz - ${skewInterval}::interval)`
                      ]),
                  ...(range.to === undefined
                    ? []
                    : [
                        sql`occurred_at < ${range.to}::timestamptz`,
                        sql`event_id < uuid_v7_floor_at(${range.to}::timestamptz + ${skewInterval}::interval)`
                      ]),
                  ...(range.aggregateId === undefined ? [] : [sql`aggregate_id = ${range.aggregateId}`]),
                  ...(after === undefined
                    ? []
                    : [
                        sql`(aggregate_id, aggregate_version, event_id)
                            > (${after.aggregateId}::text, ${after.aggregateVersion}::int4, ${after.eventId}::uuid)`
                      ])
                ])}
                ORDER BY aggregate_id, aggregate_version, event_id
                LIMIT ${Math.max(1, Math.min(limit, maxPageEvents))}
              ) AS next
            ) AS measured
            WHERE bytes_before < ${maxPageBytes}
            ORDER BY aggregate_id, aggregate_version, event_id`
          const last = rows.at(-1)
          return {
            events: rows,
            next: last && {
              aggregateId: last.aggregateId,
              aggregateVersion: last.aggregateVersion,
              eventId: last.eventId
            }
          }
        }, Effect.orDie)
      })
    )
  )
}
