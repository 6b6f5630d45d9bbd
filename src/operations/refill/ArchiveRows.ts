/** Events of a topic as rows of the archive. */
import { Effect, Schedule } from "effect"
import { Transaction } from "../../platform/Transaction.ts"
import * as DailyPartitions from "../DailyPartitions.ts"
import type { TopicEvent } from "./Standings.ts"

/** Upkeep, or another refill, makes a partition in some milliseconds. */
const untilFree = Schedule.spaced("100 millis").pipe(Schedule.upTo({ times: 100 }))

/** Makes the partitions of the events' days. A busy step is tried again; its days would go to the default partition otherwise. */
export const makeDays = (events: ReadonlyArray<TopicEvent>) =>
  Effect.repeat(
    DailyPartitions.makePast(
      "event_log",
      events.map(({ eventId }) => eventId)
    ),
    { until: (steps) => steps.every(({ outcome }) => outcome !== "busy"), schedule: untilFree }
  )

/** Adds the events to the archive, as their dispatcher would have. Returns how many were not there. */
export const insert = Effect.fnUntraced(function* (events: ReadonlyArray<TopicEvent>) {
  const { sql } = yield* Transaction
  const rows = yield* sql`
    INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
                           trace_id, span_id, data, broker_partition, broker_offset, published_at)
    SELECT r.id, r.topic, r.event_type, r.schema_version, r.type, r.aggregate, r.version, r.occurred_at, r.trace, r.span, r.data::json,
           r.partition, r.record_offset,
           -- A producer's clock may be wrong. An event is published after it has occurred, and not in the future.
           least(greatest(to_timestamp(r.millis / 1000), r.occurred_at), clock_now())
    FROM unnest(${events.map(({ eventId }) => eventId)}::uuid[], ${events.map(({ topic }) => topic)}::text[],
                ${events.map(({ eventType }) => eventType)}::text[], ${events.map(({ schemaVersion }) => schemaVersion)}::int2[],
                ${events.map(({ aggregateType }) => aggregateType)}::text[], ${events.map(({ aggregateId }) => aggregateId)}::text[],
                ${events.map(({ aggregateVersion }) => aggregateVersion)}::int4[],
                ${events.map(({ occurredAt }) => occurredAt)}::text[]::timestamptz[],
                ${events.map(({ traceId }) => traceId)}::text[], ${events.map(({ spanId }) => spanId)}::text[],
                ${events.map(({ data }) => data)}::text[], ${events.map(({ partition }) => partition)}::int4[],
                ${events.map(({ offset }) => offset)}::int8[], ${events.map(({ timestampMillis }) => timestampMillis)}::float8[])
           AS r(id, topic, event_type, schema_version, type, aggregate, version, occurred_at, trace, span, data, partition, record_offset, millis)
    ON CONFLICT DO NOTHING
    RETURNING 1 AS one`
  return rows.length
})
