/**
 * The search of events wherever they are: in the queue, behind a hold, among the dead letters, in the archive. Newest first, by their ids.
 *
 * A page is bounded, however large the archive is. Ids of events and aggregates have indexes. Any other filter reads events one by one, so it needs a
 * time from which on to look. A page looks at no more than {@link lookLimit} events, and its cursor goes on behind them.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { laneOf } from "../../outbox/Lane.ts"
import { skewInterval } from "../../platform/Ids.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Pages from "../../platform/Pages.ts"
import * as Rows from "../../platform/Rows.ts"
import { DeliveryState } from "../History.ts"
import { listLimit, type PageOptions, unionAll } from "./ReportSql.ts"

/** Which events; a field that is not set matches all. */
export interface Filter {
  readonly eventId?: string | undefined
  /** Events of one of these aggregates. */
  readonly aggregateIds?: ReadonlyArray<string> | undefined
  readonly traceId?: string | undefined
  readonly type?: string | undefined
  readonly topic?: string | undefined
  readonly status?: DeliveryState | undefined
  /** Only events that occurred in these last seconds. */
  readonly sinceSeconds?: number | undefined
  /** Only events that occurred before these last seconds. */
  readonly untilSeconds?: number | undefined
}

/** An event that was found. */
export const Found = Schema.Struct({
  eventId: Schema.String,
  status: DeliveryState,
  topic: Schema.String,
  eventType: Schema.String,
  aggregateType: Schema.String,
  aggregateId: Schema.String,
  aggregateVersion: Schema.Int,
  occurredAt: Schema.String,
  traceId: Schema.String,
  partition: Schema.NullOr(Schema.Int),
  offset: Schema.NullOr(Schema.String),
  publishedAt: Schema.NullOr(Schema.String)
})
export type Found = typeof Found.Type

/** A page, newest first. It may be empty and still have a next one: a page looks at a bounded number of events. */
export interface FoundPage {
  readonly items: ReadonlyArray<Found>
  readonly nextCursor: string | null
}

/** The search would read the whole archive. */
export class SearchTooWide extends Schema.TaggedError<SearchTooWide>()("SearchTooWide", {
  /** The filters that have no index. */
  filters: Schema.Array(Schema.String)
}) {
  override get message() {
    return `a search by ${this.filters.join(" and ")} reads the archive event by event: it needs a time from which on to look (since), or the id of an event or of its order`
  }
}

/** Events that a page looks at one by one: some tenths of a second. */
export const lookLimit = 50_000

const columns = `s.event_id AS key, s.event_id::text AS "eventId", s.status, s.topic, s.event_type AS "eventType",
  s.aggregate_type AS "aggregateType", s.aggregate_id AS "aggregateId", s.aggregate_version AS "aggregateVersion",
  ${isoTime("s.occurred_at")} AS "occurredAt", s.trace_id AS "traceId", s.broker_partition AS partition, s.broker_offset::text AS "offset",
  ${isoTime("s.published_at")} AS "publishedAt"`

const allFound = Rows.all(Found)
const firstId = Rows.first(Schema.Struct({ id: Schema.String }))

export class EventSearch extends Context.Service<
  EventSearch,
  { readonly search: (filter: Filter, page: PageOptions) => Effect.Effect<FoundPage, SearchTooWide> }
>()("paid-once/operations/reports/EventSearch") {
  static readonly layer: Layer.Layer<EventSearch, never, SqlClient.SqlClient> = Layer.effect(
    EventSearch,
    Effect.map(SqlClient.SqlClient, (sql) => {
      const secondsAgo = (seconds: number, slack: string) =>
        sql`(SELECT uuid_v7_floor_at(clock_now() - ${seconds}::float8 * interval '1 second' ${sql.literal(slack)} '${sql.literal(skewInterval)}'::interval))`

      /** The range of ids: it keeps Postgres from looking at other days. */
      const idsOf = (
        { sinceSeconds, untilSeconds }: Filter,
        { cursor }: PageOptions
      ): ReadonlyArray<Statement.Fragment> => [
        ...(cursor === undefined ? [] : [sql`s.event_id < ${cursor}::uuid`]),
        ...(sinceSeconds === undefined ? [] : [sql`s.event_id >= ${secondsAgo(sinceSeconds, "-")}`]),
        ...(untilSeconds === undefined ? [] : [sql`s.event_id < ${secondsAgo(untilSeconds, "+")}`])
      ]

      const conditionsOf = (filter: Filter): ReadonlyArray<Statement.Fragment> => {
        const { aggregateIds, eventId, sinceSeconds, status, topic, traceId, type, untilSeconds } = filter
        return [
          ...(eventId === undefined ? [] : [sql`s.event_id = ${eventId}::uuid`]),
          ...(aggregateIds === undefined ? [] : [sql`s.aggregate_id = ANY (${[...aggregateIds]}::text[])`]),
          ...(traceId === undefined ? [] : [sql`s.trace_id = ${traceId}`]),
          ...(type === undefined ? [] : [sql`s.event_type = ${type}`]),
          ...(topic === undefined ? [] : [sql`s.topic = ${topic}`]),
          ...(status === undefined ? [] : [sql`s.status = ${status}`]),
          ...(sinceSeconds === undefined
            ? []
            : [sql`s.occurred_at >= clock_now() - ${sinceSeconds}::float8 * interval '1 second'`]),
          ...(untilSeconds === undefined
            ? []
            : [sql`s.occurred_at < clock_now() - ${untilSeconds}::float8 * interval '1 second'`])
        ]
      }

      /** The last event that a page looks at one by one; undefined where the end of the range is nearer. */
      const lastLook = (filter: Filter, page: PageOptions) =>
        firstId(sql`
          SELECT s.event_id::text AS id FROM event_log AS s WHERE ${sql.and([sql`TRUE`, ...idsOf(filter, page)])}
          ORDER BY s.event_id DESC OFFSET ${lookLimit - 1} LIMIT 1`)

      const search = Effect.fn("EventSearch.search")(function* (filter: Filter, page: PageOptions) {
        const { aggregateIds, eventId, sinceSeconds, status } = filter
        const isIndexed = eventId !== undefined || aggregateIds !== undefined
        const archived = status === undefined || status === "published"
        const slow = isIndexed || !archived ? [] : unindexed.filter(({ field }) => filter[field] !== undefined)
        if (slow.length > 0 && sinceSeconds === undefined) {
          return yield* new SearchTooWide({ filters: slow.map(({ name }) => name) })
        }
        const limit = Math.min(page.limit, listLimit)
        const last = slow.length === 0 ? undefined : yield* Effect.orDie(lastLook(filter, page))
        const conditions = [
          ...idsOf(filter, page),
          ...conditionsOf(filter),
          ...(last === undefined ? [] : [sql`s.event_id >= ${last.id}::uuid`])
        ]
        // The lane is the first column of the queue's only index.
        const waiting = sql`
          SELECT ${sql.literal(columns)} FROM outbox_status AS s
          WHERE ${sql.and([
            sql`s.status <> 'published'`,
            ...conditions,
            ...(aggregateIds === undefined
              ? []
              : [sql`s.lane = ANY (${[...new Set(aggregateIds.map(laneOf))]}::int2[])`])
          ])}
          ORDER BY s.event_id DESC LIMIT ${limit + 1}`
        // OFFSET 0: the events of an aggregate are looked up, and then sorted. Else Postgres may read the archive backwards until it has enough.
        const past = sql`
          SELECT * FROM (
            SELECT ${sql.literal(columns)} FROM (SELECT *, 'published' AS status FROM event_log) AS s
            WHERE ${sql.and([sql`TRUE`, ...conditions])} ${sql.literal(isIndexed ? "OFFSET 0" : "ORDER BY s.event_id DESC")}
            ${isIndexed ? sql`` : sql`LIMIT ${limit + 1}`}
          ) AS found ORDER BY key DESC LIMIT ${limit + 1}`
        const parts = [...(status === "published" ? [] : [waiting]), ...(archived ? [past] : [])]
        const rows = yield* Effect.orDie(
          allFound(sql`
            SELECT * FROM (${unionAll(
              sql,
              parts.map((part) => sql`(${part})`),
              sql``
            )}) AS found
            ORDER BY key DESC LIMIT ${limit + 1}`)
        )
        const { items, nextCursor } = Pages.pageBy(rows, limit, ({ eventId }) => eventId)
        return { items, nextCursor: nextCursor ?? last?.id ?? null }
      })

      return EventSearch.of({ search })
    })
  )
}

/** Filters of the archive that have no index. Its status is one, and has none to look up. */
const unindexed = [
  { field: "traceId", name: "trace id" },
  { field: "type", name: "type" },
  { field: "topic", name: "topic" }
] as const
