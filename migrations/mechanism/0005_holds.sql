-- Events that the broker refused, and what waits behind them. DESIGN: only the refused event's aggregate waits; all others flow.
--
-- A hold stands for its aggregate: while its row is there, nobody sends an event of the aggregate from the queue. Its head is the
-- refused event. All that the aggregate has unpublished is in outbox_parked, or still on its way there from the queue.
CREATE TABLE outbox_holds (
  aggregate_type  text        NOT NULL,
  aggregate_id    text        NOT NULL,
  lane            smallint    NOT NULL CHECK (lane BETWEEN 0 AND 63),
  topic           text        NOT NULL,
  event_id        uuid        NOT NULL,
  seq             bigint      NOT NULL,
  -- Sends of the head, by itself, that the broker refused. An outage is no refusal and counts nothing.
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

-- What waits: the head itself (unless it is dead) and everything behind it, with the lane and seq that it has in the queue.
-- The foreign key is the rule "parked rows have a hold", kept by Postgres: a hold can't go while something is parked behind it.
CREATE TABLE outbox_parked (
  LIKE outbox_events INCLUDING CONSTRAINTS,
  PRIMARY KEY (lane, seq),
  FOREIGN KEY (aggregate_type, aggregate_id) REFERENCES outbox_holds
);
CREATE INDEX outbox_parked_aggregate ON outbox_parked (aggregate_type, aggregate_id, seq);
CREATE INDEX outbox_parked_event ON outbox_parked (event_id);

-- Events that nobody sends any more: refused to the limit (dead), or given up by an operator (discarded).
CREATE TABLE outbox_dead_letters (
  LIKE outbox_events INCLUDING CONSTRAINTS,
  status     text        NOT NULL CHECK (status IN ('dead', 'discarded')),
  attempts   integer     NOT NULL,
  last_error text,
  history    jsonb       NOT NULL,
  ended_at   timestamptz NOT NULL,
  PRIMARY KEY (event_id)
);
CREATE INDEX outbox_dead_letters_status ON outbox_dead_letters (status, ended_at, event_id);
-- Lanes begin below what may come back (LaneFloors.ts).
CREATE INDEX outbox_dead_letters_lane ON outbox_dead_letters (lane, seq) WHERE status = 'dead';
CREATE INDEX outbox_dead_letters_aggregate ON outbox_dead_letters (aggregate_id);

-- Who did what to the mechanism by hand, and why; and what it did by itself where a policy allows to skip an event.
CREATE TABLE operator_audit (
  audit_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz NOT NULL,
  actor      text        NOT NULL CHECK (actor <> ''),
  action     text        NOT NULL CHECK (action <> ''),
  reason     text        NOT NULL CHECK (reason <> ''),
  -- What it was done to, for example ('outbox event', its id).
  subject    text        NOT NULL,
  subject_id text        NOT NULL,
  before     jsonb       NOT NULL,
  after      jsonb       NOT NULL
);
CREATE INDEX operator_audit_subject ON operator_audit (subject, subject_id);

-- Appends to a bounded list: the last `keep` entries stay.
CREATE FUNCTION append_bounded(list jsonb, entry jsonb, keep integer) RETURNS jsonb
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  AS $$
    SELECT coalesce(jsonb_agg(element ORDER BY position), '[]')
    FROM (
      SELECT element, position FROM jsonb_array_elements(list || jsonb_build_array(entry)) WITH ORDINALITY AS e(element, position)
      ORDER BY position DESC LIMIT keep
    ) AS kept
  $$;

-- Where every event is. A row that is still in the queue while its aggregate is held waits like those that were moved already.
CREATE OR REPLACE VIEW outbox_status AS
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
