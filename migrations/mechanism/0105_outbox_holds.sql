-- Events that the broker refused, and the events behind them. Only the refused event's aggregate waits; all others are published.

-- A hold stands for its aggregate: while the row exists, no dispatcher publishes an event of the aggregate from the queue. The head
-- of a hold is the refused event. Every other unpublished event of the aggregate is in outbox_parked, or still on its way there
-- from the queue.
CREATE TABLE outbox_holds (
  aggregate_type  text        NOT NULL,
  aggregate_id    text        NOT NULL,
  lane            outbox_lane NOT NULL,
  topic           text        NOT NULL,
  event_id        uuid        NOT NULL,
  seq             bigint      NOT NULL,
  -- Attempts to publish the head in a batch of its own that the broker refused. An outage is not counted.
  attempts        integer     NOT NULL CHECK (attempts >= 0),
  -- Null: the head is a dead letter, and the aggregate waits for an operator.
  next_attempt_at timestamptz,
  last_error      text,
  -- The last refusals: {attempt, at, error}.
  history         jsonb       NOT NULL DEFAULT '[]',
  held_at         timestamptz NOT NULL,
  PRIMARY KEY (aggregate_type, aggregate_id)
);
CREATE INDEX outbox_holds_lane ON outbox_holds (lane, next_attempt_at);
CREATE INDEX outbox_holds_event ON outbox_holds (event_id);

-- The events that wait: the head, unless it is a dead letter, and all events behind it, with the lane and seq they have in the queue.
-- The foreign key keeps the rule that parked events have a hold: a hold can't be deleted while events are parked behind it.
CREATE TABLE outbox_parked (
  LIKE outbox_events,
  PRIMARY KEY (lane, seq),
  FOREIGN KEY (aggregate_type, aggregate_id) REFERENCES outbox_holds
);
CREATE INDEX outbox_parked_aggregate ON outbox_parked (aggregate_type, aggregate_id, seq);
CREATE INDEX outbox_parked_event ON outbox_parked (event_id);

-- Events that are not tried any more: dead (refused as often as the limit allows) or discarded (by an operator).
CREATE TABLE outbox_dead_letters (
  LIKE outbox_events,
  status     text        NOT NULL CHECK (status IN ('dead', 'discarded')),
  attempts   integer     NOT NULL CHECK (attempts >= 0),
  last_error text,
  history    jsonb       NOT NULL,
  ended_at   timestamptz NOT NULL,
  PRIMARY KEY (event_id)
);
CREATE INDEX outbox_dead_letters_status ON outbox_dead_letters (status, ended_at, event_id);
-- For the low-water mark of a lane: a dead letter may return to the queue, so the mark stays below it (LowWaterMarks.ts).
CREATE INDEX outbox_dead_letters_lane ON outbox_dead_letters (lane, seq) WHERE status = 'dead';
CREATE INDEX outbox_dead_letters_aggregate ON outbox_dead_letters (aggregate_id);

-- Appends an entry to a JSON array and keeps its last `keep` entries. For the failure histories of holds and tasks.
CREATE FUNCTION append_bounded(list jsonb, entry jsonb, keep integer) RETURNS jsonb
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$
    SELECT coalesce(jsonb_agg(element ORDER BY position), '[]')
    FROM (
      SELECT element, position FROM jsonb_array_elements(list || jsonb_build_array(entry)) WITH ORDINALITY AS e(element, position)
      ORDER BY position DESC LIMIT keep
    ) AS kept
  $$;

-- The state of every event: queued, parked, retrying, dead, discarded or published. An event of a held aggregate that is still in
-- the queue counts as parked, like those that were moved already.
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
