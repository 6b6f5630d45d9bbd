/** Which versions operators let consumers go on without, as the audit has it. */
import { Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { isoTime } from "../platform/IsoTime.ts"
import * as Rows from "../platform/Rows.ts"

/** A version that an operator let a consumer go on without. */
export const Skip = Schema.Struct({
  consumer: Schema.String,
  eventId: Schema.String,
  at: Schema.String,
  actor: Schema.String,
  reason: Schema.String
})
export type Skip = typeof Skip.Type

const allSkips = Rows.all(Skip)

/** The skips of these events. Each is recorded with the event that the consumer went on with, so it is found if that one is among `events`. */
export const of = (
  sql: SqlClient.SqlClient,
  consumers: ReadonlyArray<string>,
  events: ReadonlyArray<{ readonly eventId: string; readonly version: number }>
) => {
  const ids = events.map(({ eventId }) => eventId)
  return allSkips(sql`
    SELECT split_part(a.subject_id, ' ', 1) AS consumer, e.id AS "eventId", ${sql.literal(isoTime("a.at"))} AS at, a.actor, a.reason
    FROM unnest(${ids}::text[], ${events.map(({ version }) => version)}::int4[]) AS e(id, version)
    JOIN operator_audit AS a ON (a.before ->> 'version')::int4 < e.version AND (a.after ->> 'version')::int4 >= e.version
    WHERE a.subject = 'inbox event' AND a.action = 'skip'
      AND a.subject_id = ANY (ARRAY(
        SELECT consumer || ' ' || id FROM unnest(${[...consumers]}::text[]) AS consumer, unnest(${ids}::text[]) AS id))
    ORDER BY a.audit_id`)
}
