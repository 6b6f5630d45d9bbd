-- What became of an event's earlier attempts, kept when it succeeds in the end. Null where no attempt failed: nearly always.

-- The broker's refusals before it took the event: {attempt, at, error}.
ALTER TABLE event_log ADD COLUMN history jsonb;

-- The failures of the consumer's handler before it applied the event: {attempt, at, error}.
ALTER TABLE processed_events ADD COLUMN history jsonb;

-- The same view with four columns more at its end, for one event in full. They cost nothing where they are not asked for.
CREATE OR REPLACE VIEW outbox_status AS
  SELECT e.event_id, CASE WHEN h.event_id IS NULL THEN 'queued' ELSE 'parked' END AS status, e.topic, e.event_type, e.schema_version,
         e.aggregate_type, e.aggregate_id, e.aggregate_version, e.occurred_at, e.lane,
         NULL::integer AS broker_partition, NULL::bigint AS broker_offset, NULL::timestamptz AS published_at,
         0 AS attempts, NULL::timestamptz AS next_attempt_at, NULL::text AS last_error,
         e.trace_id, e.span_id, e.data, NULL::jsonb AS history
    FROM outbox_events AS e LEFT JOIN outbox_holds AS h USING (aggregate_type, aggregate_id)
  UNION ALL
  SELECT p.event_id, CASE WHEN p.seq = h.seq THEN 'retrying' ELSE 'parked' END, p.topic, p.event_type, p.schema_version,
         p.aggregate_type, p.aggregate_id, p.aggregate_version, p.occurred_at, p.lane,
         NULL, NULL, NULL,
         CASE WHEN p.seq = h.seq THEN h.attempts ELSE 0 END, CASE WHEN p.seq = h.seq THEN h.next_attempt_at END,
         CASE WHEN p.seq = h.seq THEN h.last_error END,
         p.trace_id, p.span_id, p.data, CASE WHEN p.seq = h.seq THEN h.history END
    FROM outbox_parked AS p JOIN outbox_holds AS h USING (aggregate_type, aggregate_id)
  UNION ALL
  SELECT event_id, status, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
         occurred_at, lane, NULL, NULL, NULL, attempts, NULL, last_error,
         trace_id, span_id, data, history
    FROM outbox_dead_letters
  UNION ALL
  SELECT event_id, 'published', topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
         occurred_at, NULL, broker_partition, broker_offset, published_at, NULL, NULL, NULL,
         trace_id, span_id, data, history
    FROM event_log;
