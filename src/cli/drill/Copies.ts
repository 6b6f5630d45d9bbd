/** How often the topic has an event, and how often consumers have applied it. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { ordersTopic } from "../../domain/Events.ts"
import * as Rows from "../../platform/Rows.ts"

const counts = Rows.one(
  Schema.Struct({
    records: Schema.Int,
    offsets: Schema.NullOr(Schema.String),
    /** Consumers that have read the last record, and all that is before it. */
    readers: Schema.Int,
    /** Consumers that have applied the event. */
    marks: Schema.Int
  })
)

/** The records of an event in the topic. `key` is its order. */
export const copiesOf = (key: string, eventId: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    counts(sql`
      WITH copies AS (
        SELECT partition, record_offset FROM broker_log
        WHERE topic = ${ordersTopic} AND record_key = ${key} AND record_headers ->> 'event-id' = ${eventId})
      SELECT (SELECT count(*) FROM copies)::int4 AS records,
             (SELECT string_agg(record_offset::text, ' and ' ORDER BY record_offset) FROM copies) AS offsets,
             (SELECT count(*) FROM broker_offsets WHERE topic = ${ordersTopic} AND partition = (SELECT max(partition) FROM copies)
                AND next_offset > (SELECT max(record_offset) FROM copies))::int4 AS readers,
             (SELECT count(*) FROM processed_events WHERE event_id = ${eventId}::uuid)::int4 AS marks`)
  )
