/**
 * Past events: the delivery state of one aggregate's events, and pages of published events, for a replay (replay/Replay.ts).
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { StoredEvent } from "../brokers/Envelope.ts"
import { laneOf } from "../outbox/Lane.ts"
import { skewInterval } from "../platform/Ids.ts"
import * as Rows from "../platform/Rows.ts"

/** The delivery states of an event; the names are those of `outbox_status`. */
export const DeliveryState = Schema.Literals(["queued", "retrying", "parked", "published", "dead", "discarded"])
export type DeliveryState = typeof DeliveryState.Type

/** A past event. `partition`, `offset` and `publishedAt` are null until it is published. */
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

/** A published event as its writer stored it, with the partition and the offset that it was published at. */
export const ReplayedEvent = Schema.Struct({
  eventId: Schema.String,
  topic: Schema.String,
  eventType: Schema.String,
  schemaVersion: Schema.Int,
  aggregateType: Schema.String,
  aggregateId: Schema.String,
  aggregateVersion: Schema.Int,
  occurredAt: Schema.String,
  traceId: Schema.String,
  spanId: Schema.String,
  data: Schema.String,
  partition: Schema.Int,
  offset: Schema.BigInt
} satisfies Readonly<Record<keyof StoredEvent | "partition" | "offset", Schema.Top>>)
export type ReplayedEvent = typeof ReplayedEvent.Type

/** The events of a replay: those of a topic, of one aggregate and of one type if these are named, that occurred in `[from, to)`. */
export interface ReplayRange {
  readonly topic: string
  readonly aggregateId?: string
  readonly eventType?: string
  readonly from?: Date
  readonly to?: Date
}

/** The end of a page of a replay. Pass it back unchanged. */
export interface ReplayCursor {
  readonly aggregateId: string
  readonly aggregateVersion: number
  readonly eventId: string
}

/** A page of a replay. `next` is where the next page begins; the last page is empty and has no `next`. */
export interface ReplayPage {
  readonly events: ReadonlyArray<ReplayedEvent>
  readonly next: ReplayCursor | undefined
}

/** The versions of a page of an aggregate's events: forty kilobytes of text, and more than nearly every aggregate has. */
export const timelinePage = 100

/** A page ends after this many events, or at this many bytes of data: an event can take nearly a megabyte. */
const maxPageEvents = 1_000
const maxPageBytes = 4_000_000

const pastEvents = Rows.all(PastEvent)
const replayedEvents = Rows.all(ReplayedEvent)

export class History extends Context.Service<
  History,
  {
    /**
     * The aggregate's events with the {@link timelinePage} versions after `after` (0), in version order, as one statement saw them. Those that
     * the archive has dropped are missing.
     */
    readonly of: (aggregateId: string, after?: number) => Effect.Effect<ReadonlyArray<PastEvent>>
    /**
     * A page of the range's published events behind `after`: at most `limit` events (1,000) and some megabytes of data.
     *
     * Events come aggregate by aggregate, each aggregate's in version order. Neither time nor id is the order in which an aggregate
     * changed. Events that retention has dropped are missing, and those that were published with the archive off. Each page is a statement of its
     * own, so an event that is published meanwhile may be missed: give a `to` in the past.
     */
    readonly replay: (range: ReplayRange, after?: ReplayCursor, limit?: number) => Effect.Effect<ReplayPage>
  }
>()("paid-once/operations/History") {
  static readonly layer: Layer.Layer<History, never, SqlClient.SqlClient> = Layer.effect(
    History,
    Effect.map(SqlClient.SqlClient, (sql) =>
      History.of({
        of: Effect.fn("History.of")(function* (aggregateId, after = 0) {
          // The lane is the first column of the queue's only index. Archived rows have no lane.
          return yield* pastEvents(sql`
            SELECT event_id::text AS "eventId", aggregate_version AS version, event_type AS type,
                   to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
                   json_build_object(
                     'state', status, 'partition', broker_partition, 'offset', broker_offset::text,
                     'publishedAt', to_char(published_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) AS delivery
            FROM outbox_status
            WHERE aggregate_id = ${aggregateId} AND (lane = ${laneOf(aggregateId)}::int2 OR lane IS NULL)
              AND aggregate_version > ${after}::int4 AND aggregate_version <= ${after + timelinePage}::int4
            ORDER BY aggregate_version`)
        }, Effect.orDie),

        replay: Effect.fn("History.replay")(function* (range, after, limit = maxPageEvents) {
          const events = yield* replayedEvents(sql`
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
                  // The bounds on the ids keep Postgres from looking at days outside of the range. No id is from before 1970.
                  ...(range.from === undefined
                    ? []
                    : [
                        sql`occurred_at >= ${range.from}::timestamptz`,
                        sql`event_id >= uuid_v7_floor_at(greatest(${range.from}::timestamptz - ${skewInterval}::interval, 'epoch'))`
                      ]),
                  ...(range.to === undefined
                    ? []
                    : [
                        sql`occurred_at < ${range.to}::timestamptz`,
                        sql`event_id < uuid_v7_floor_at(greatest(${range.to}::timestamptz + ${skewInterval}::interval, 'epoch'))`
                      ]),
                  ...(range.aggregateId === undefined ? [] : [sql`aggregate_id = ${range.aggregateId}`]),
                  ...(range.eventType === undefined ? [] : [sql`event_type = ${range.eventType}`]),
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
            ORDER BY aggregate_id, aggregate_version, event_id`)
          const last = events.at(-1)
          return {
            events,
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
