-- The limits of an event, as types. Postgres parses a table's CHECK constraints again for each statement, but a domain's once per
-- session; as CHECKs of outbox_events they were a quarter of the cost of an INSERT.
CREATE DOMAIN outbox_lane AS smallint CHECK (VALUE BETWEEN 0 AND 63);
-- The limit of a name keeps it within what an index entry can hold: a row that is published but can't be archived would be sent
-- again for ever (Envelope.ts).
CREATE DOMAIN outbox_name AS text
  CHECK (VALUE <> '')
  CONSTRAINT outbox_name_length CHECK (octet_length(VALUE) <= 1000 AND char_length(VALUE) <= 500);
CREATE DOMAIN outbox_schema_version AS smallint CHECK (VALUE > 0);
CREATE DOMAIN outbox_count AS integer CHECK (VALUE > 0);
-- The length alone: a regular expression for each event costs a tenth of its INSERT.
CREATE DOMAIN outbox_trace_id AS text CHECK (octet_length(VALUE) = 32);
CREATE DOMAIN outbox_span_id AS text CHECK (octet_length(VALUE) = 16);

-- The partition count of each topic, noted when the topic is first used and the same for every process from then on. A topic that
-- gets more partitions at the broker keeps its events in the first ones until an operator changes the row.
CREATE TABLE outbox_topics (
  topic      text        PRIMARY KEY CHECK (topic <> ''),
  -- A lane lies inside one partition only where the count divides the 64 lanes.
  partitions integer     NOT NULL CHECK (partitions > 0 AND 64 % partitions = 0),
  noted_at   timestamptz NOT NULL DEFAULT clock_now()
);

-- The queue: committed events that the broker has not yet acknowledged, and nothing else. Publishing deletes the row, so the table
-- and its one index stay small however long the history grows.
--
-- `seq` orders the events of one aggregate, for it is drawn under the aggregate's row lock. It orders nothing else: a later seq of
-- another aggregate may commit first, so no reader may remember the last seq it has seen.
CREATE TABLE outbox_events (
  lane              outbox_lane           NOT NULL,
  seq               bigint                GENERATED ALWAYS AS IDENTITY,
  event_id          uuid                  NOT NULL,
  topic             outbox_name           NOT NULL,
  event_type        outbox_name           NOT NULL,
  schema_version    outbox_schema_version NOT NULL,
  aggregate_type    outbox_name           NOT NULL,
  aggregate_id      outbox_name           NOT NULL,
  aggregate_version outbox_count          NOT NULL,
  occurred_at       timestamptz           NOT NULL,
  trace_id          outbox_trace_id       NOT NULL,
  span_id           outbox_span_id        NOT NULL,
  -- The size of the record at the broker: key, value, headers. A batch is cut by it without reading the data.
  record_bytes      outbox_count          NOT NULL,
  -- json, not jsonb: the bytes that the writer encoded are the bytes that are sent.
  data              json                  NOT NULL,
  PRIMARY KEY (lane, seq)
) WITH (
  -- Rows live for milliseconds. Vacuum by their number, not by a share of a table that is nearly always empty.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0, fillfactor = 90
);

-- The archive: each published event and its offset at the broker. The mark that deletes an event from the queue writes it here.
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
CREATE TABLE event_log_default PARTITION OF event_log DEFAULT;
DO $$ BEGIN
  PERFORM make_daily_partition('event_log', (clock_now() AT TIME ZONE 'UTC')::date + n, 0) FROM generate_series(-1, 3) AS n;
END $$;
