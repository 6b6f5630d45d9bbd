-- Events that a consumer could not apply, and the events behind them.
--
-- A hold belongs to an aggregate's id and not to its type as well: the id is the record's key, and all that is known of a record that
-- can't be decoded. So two types of aggregates that share an id on one topic wait together. A record without a key is an aggregate
-- of its own.

-- A hold stands for an aggregate of one consumer: while the row exists, that consumer applies no event of the aggregate from the
-- topic. The state of a hold:
--   `retrying`  The head's handler failed and runs again at next_attempt_at. With 0 attempts it has not run yet.
--   `dead`      The head is a dead letter, and the aggregate waits for an operator.
--   `gap`       An event before the head is missing: the aggregate waits for that event, or for an operator.
CREATE TABLE inbox_holds (
  consumer_name   text        NOT NULL CHECK (consumer_name <> ''),
  aggregate_id    text        NOT NULL CHECK (aggregate_id <> ''),
  topic           text        NOT NULL,
  -- The head: an event's id, or topic:partition:offset of a record that can't be decoded.
  event_id        text        NOT NULL,
  status          text        NOT NULL CHECK (status IN ('retrying', 'dead', 'gap')),
  -- Failed attempts that are the head's own fault. An outage of the database or of a dependency is not counted.
  attempts        integer     NOT NULL CHECK (attempts >= 0),
  next_attempt_at timestamptz CHECK ((next_attempt_at IS NULL) = (status <> 'retrying')),
  last_error      text,
  -- The last failures: {attempt, at, error}.
  history         jsonb       NOT NULL DEFAULT '[]',
  held_at         timestamptz NOT NULL,
  PRIMARY KEY (consumer_name, aggregate_id)
);
CREATE INDEX inbox_holds_due ON inbox_holds (consumer_name, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX inbox_holds_gaps ON inbox_holds (consumer_name, held_at) WHERE status = 'gap';
CREATE INDEX inbox_holds_event ON inbox_holds (event_id);

-- The events that wait: the head, unless it is a dead letter, and all events after it, as they were delivered. A parked event has no
-- row in processed_events. The foreign key keeps the rule that parked events have a hold.
CREATE TABLE inbox_parked (
  consumer_name     text    NOT NULL,
  aggregate_id      text    NOT NULL,
  -- The version; of a record that can't be decoded, the one after the version that was known of the aggregate when it was delivered.
  position          integer NOT NULL CHECK (position > 0),
  event_id          text    NOT NULL CHECK (event_id <> ''),
  -- Null, all three: the record can't be decoded.
  event_type        text,
  aggregate_type    text,
  aggregate_version integer,
  topic             text    NOT NULL,
  broker_partition  integer NOT NULL,
  broker_offset     bigint  NOT NULL,
  record_key        text,
  record_value      bytea,
  record_headers    json    NOT NULL,
  parked_at         timestamptz NOT NULL,
  PRIMARY KEY (consumer_name, event_id),
  FOREIGN KEY (consumer_name, aggregate_id) REFERENCES inbox_holds
);
CREATE INDEX inbox_parked_turn ON inbox_parked (consumer_name, aggregate_id, position, broker_offset);
CREATE INDEX inbox_parked_event ON inbox_parked (event_id);

-- Events that a consumer does not try any more: dead (failed as often as the limit allows, or can't be decoded) or discarded (by an
-- operator).
CREATE TABLE inbox_dead_letters (
  LIKE inbox_parked INCLUDING CONSTRAINTS,
  status     text        NOT NULL CHECK (status IN ('dead', 'discarded')),
  attempts   integer     NOT NULL CHECK (attempts >= 0),
  last_error text,
  history    jsonb       NOT NULL,
  ended_at   timestamptz NOT NULL,
  PRIMARY KEY (consumer_name, event_id)
);
CREATE INDEX inbox_dead_letters_status ON inbox_dead_letters (status, consumer_name, ended_at, event_id);
CREATE INDEX inbox_dead_letters_event ON inbox_dead_letters (event_id);
