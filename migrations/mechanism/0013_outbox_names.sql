-- A name longer than this no consumer reads, and the indexes of the archive and the cursors may not hold it (Envelope.ts): its row could be published
-- and never marked, and would be sent again and again with all that is in its batch.
--
-- Rows that are there already are left alone, and so are they when they move: what is parked or dead has the same types from now on, and what
-- has a domain's type is not held against it again when it becomes a column of that domain.
DROP VIEW outbox_status;
ALTER TABLE outbox_parked
  ALTER topic TYPE outbox_name, ALTER event_type TYPE outbox_name, ALTER aggregate_type TYPE outbox_name, ALTER aggregate_id TYPE outbox_name;
ALTER TABLE outbox_dead_letters
  ALTER topic TYPE outbox_name, ALTER event_type TYPE outbox_name, ALTER aggregate_type TYPE outbox_name, ALTER aggregate_id TYPE outbox_name;
ALTER DOMAIN outbox_name ADD CONSTRAINT outbox_name_length CHECK (octet_length(VALUE) <= 1000 AND char_length(VALUE) <= 500) NOT VALID;

-- Where every event is (0005_holds.sql).
CREATE VIEW outbox_status AS
  SELECT e.event_id, CASE WHEN h.event_id IS NULL THEN 'queued' ELSE 'parked' END AS status, e.topic, e.event_type, e.schema_version,
         e.aggregate_type, e.aggregate_id, e.aggregate_version, e.occurred_at, e.lane,
         NULL::integer AS broker_partition, NULL::bigint AS broker_offset, NULL::timestamptz AS published_at,
         0 AS attempts, NULL::timestamptz AS next_attempt_at, NULL::text AS last_error
    FROM outbox_events AS e LEFT JOIN outbox_holds AS h USING (aggregate_type, aggregate_id)
  UNION ALL
  SELECT p.event_id, CASE WHEN p.seq = h.seq THEN 'retrying' ELSE 'parked' END, p.topic, p.event_type, p.schema_version,
         p.aggregate_type, p.aggregate_id, p.aggregate_version, p.occurred_at, p.lane,
         NULL, NULL, NULL,
         CASE WHEN p.seq = h.seq THEN h.attempts ELSE 0 END, CASE WHEN p.seq = h.seq THEN h.next_attempt_at END,
         CASE WHEN p.seq = h.seq THEN h.last_error END
    FROM outbox_parked AS p JOIN outbox_holds AS h USING (aggregate_type, aggregate_id)
  UNION ALL
  SELECT event_id, status, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
         occurred_at, lane, NULL, NULL, NULL, attempts, NULL, last_error
    FROM outbox_dead_letters
  UNION ALL
  SELECT event_id, 'published', topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
         occurred_at, NULL, broker_partition, broker_offset, published_at, NULL, NULL, NULL
    FROM event_log;
