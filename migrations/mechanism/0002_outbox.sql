-- The queue: events that are committed and not yet acknowledged by the broker, and nothing else. Publishing deletes the row,
-- so the table and its one index stay small however long the history grows.
--
-- `seq` orders an aggregate's events (it is taken under the aggregate's row lock), and no more than that: across aggregates a
-- later seq may commit first, so nothing here may remember "the last seq seen".
CREATE TABLE outbox_events (
  lane              smallint    NOT NULL CHECK (lane BETWEEN 0 AND 63),
  seq               bigint      GENERATED ALWAYS AS IDENTITY,
  event_id          uuid        NOT NULL,
  topic             text        NOT NULL CHECK (topic <> ''),
  event_type        text        NOT NULL CHECK (event_type <> ''),
  schema_version    smallint    NOT NULL CHECK (schema_version > 0),
  aggregate_type    text        NOT NULL CHECK (aggregate_type <> ''),
  aggregate_id      text        NOT NULL CHECK (aggregate_id <> ''),
  aggregate_version integer     NOT NULL CHECK (aggregate_version > 0),
  occurred_at       timestamptz NOT NULL,
  trace_id          text        NOT NULL CHECK (trace_id ~ '^[0-9a-f]{32}$'),
  span_id           text        NOT NULL CHECK (span_id ~ '^[0-9a-f]{16}$'),
  -- The record's size at the broker: key, value, headers. A batch is cut by it without looking at the data.
  record_bytes      integer     NOT NULL CHECK (record_bytes > 0),
  -- json, not jsonb: what the writer encoded is what is sent, byte for byte.
  data              json        NOT NULL,
  PRIMARY KEY (lane, seq)
);

-- Rows live for milliseconds: vacuum early and often, by count and not by a share of a table that is nearly always empty.
ALTER TABLE outbox_events SET (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0, fillfactor = 90
);

-- The archive: what was published, and where it landed. Partitioned by the day in the UUIDv7, so that a day is dropped whole.
CREATE TABLE event_log (
  event_id          uuid        NOT NULL,
  topic             text        NOT NULL,
  event_type        text        NOT NULL,
  schema_version    smallint    NOT NULL,
  aggregate_type    text        NOT NULL,
  aggregate_id      text        NOT NULL,
  aggregate_version integer     NOT NULL,
  occurred_at       timestamptz NOT NULL,
  trace_id          text        NOT NULL,
  span_id           text        NOT NULL,
  data              json        NOT NULL,
  broker_partition  integer     NOT NULL,
  broker_offset     bigint      NOT NULL,
  published_at      timestamptz NOT NULL,
  PRIMARY KEY (event_id)
) PARTITION BY RANGE (event_id);
CREATE INDEX event_log_aggregate ON event_log (aggregate_id, aggregate_version);
-- The net under the daily partitions: where upkeep has not run for long, publishing still goes on.
CREATE TABLE event_log_default PARTITION OF event_log DEFAULT;
DO $$ BEGIN PERFORM ensure_daily_partitions('event_log', 3); END $$;

-- Where every event is. Later steps add the states of events that the broker refused.
CREATE VIEW outbox_status AS
  SELECT event_id, 'queued'::text AS status, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
         occurred_at, lane, NULL::integer AS broker_partition, NULL::bigint AS broker_offset, NULL::timestamptz AS published_at
    FROM outbox_events
  UNION ALL
  SELECT event_id, 'published'::text, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
         occurred_at, NULL::smallint, broker_partition, broker_offset, published_at
    FROM event_log;
