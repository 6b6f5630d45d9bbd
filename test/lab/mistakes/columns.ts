/** The columns of a queued event, for the mistakes that change the fetch. */
export const columns = `lane, seq, event_id::text AS "eventId", topic, event_type AS "eventType", schema_version AS "schemaVersion",
  aggregate_type AS "aggregateType", aggregate_id AS "aggregateId", aggregate_version AS "aggregateVersion",
  to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
  trace_id AS "traceId", span_id AS "spanId", record_bytes AS "recordBytes", data::text AS data`
