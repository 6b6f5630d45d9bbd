-- How far each consumer is with each aggregate, and what it could not apply.
--
-- What waits is told apart by the aggregate's id alone, for that is the record's key, and all that is known of a record that can't be
-- read; one without a key belongs to an aggregate of its own. Two types of aggregate that share an id on a topic wait together.

-- The version that a consumer has applied last. It knows no time window: a duplicate that comes a year later is behind it.
CREATE TABLE consumer_cursors (
  consumer_name  text    NOT NULL CHECK (consumer_name <> ''),
  aggregate_id   text    NOT NULL CHECK (aggregate_id <> ''),
  aggregate_type text    NOT NULL CHECK (aggregate_type <> ''),
  version        integer NOT NULL CHECK (version > 0),
  PRIMARY KEY (consumer_name, aggregate_id, aggregate_type)
  -- Room for the next version on the same page: its index does not grow with the events.
) WITH (fillfactor = 70);

-- What was applied before there were cursors, as far as the archive still has it.
INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version)
  SELECT p.consumer_name, e.aggregate_id, e.aggregate_type, max(e.aggregate_version)
  FROM processed_events AS p JOIN event_log AS e USING (event_id)
  GROUP BY p.consumer_name, e.aggregate_id, e.aggregate_type;

-- A hold stands for an aggregate of one consumer: while its row is there, that consumer applies no event of the aggregate from the topic.
--
--   retrying  the head's handler failed, and is tried again at next_attempt_at; or the head's turn has come (attempts 0)
--   dead      the head is a dead letter: an operator decides
--   gap       the head came before an event that it has to follow: it waits for that one, or for an operator
CREATE TABLE inbox_holds (
  consumer_name   text        NOT NULL CHECK (consumer_name <> ''),
  aggregate_id    text        NOT NULL CHECK (aggregate_id <> ''),
  topic           text        NOT NULL,
  -- The head: an event's id, or topic:partition:offset of a record that can't be read.
  event_id        text        NOT NULL,
  status          text        NOT NULL CHECK (status IN ('retrying', 'dead', 'gap')),
  -- Failures of the head for which it is to blame. A database or a dependency that is away counts nothing.
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

-- What waits: the head itself (unless it is dead) and all that came after it, as it came. A parked event has no row in processed_events.
-- The foreign key is the rule "parked events have a hold", kept by Postgres.
CREATE TABLE inbox_parked (
  consumer_name     text        NOT NULL,
  aggregate_id      text        NOT NULL,
  -- Its turn: the version, or, for a record that can't be read, the one after what was known of the aggregate when it came.
  position          integer     NOT NULL CHECK (position > 0),
  event_id          text        NOT NULL CHECK (event_id <> ''),
  -- Null: the record can't be read.
  event_type        text,
  aggregate_type    text,
  aggregate_version integer,
  topic             text        NOT NULL,
  broker_partition  integer     NOT NULL,
  broker_offset     bigint      NOT NULL,
  record_key        text,
  record_value      bytea,
  record_headers    json        NOT NULL,
  parked_at         timestamptz NOT NULL,
  PRIMARY KEY (consumer_name, event_id),
  FOREIGN KEY (consumer_name, aggregate_id) REFERENCES inbox_holds
);
CREATE INDEX inbox_parked_turn ON inbox_parked (consumer_name, aggregate_id, position, broker_offset);
CREATE INDEX inbox_parked_event ON inbox_parked (event_id);

-- Events that a consumer does not try any more: failed to the limit or unreadable (dead), or given up by an operator (discarded).
CREATE TABLE inbox_dead_letters (
  LIKE inbox_parked INCLUDING CONSTRAINTS,
  status     text        NOT NULL CHECK (status IN ('dead', 'discarded')),
  attempts   integer     NOT NULL,
  last_error text,
  history    jsonb       NOT NULL,
  ended_at   timestamptz NOT NULL,
  PRIMARY KEY (consumer_name, event_id)
);
CREATE INDEX inbox_dead_letters_status ON inbox_dead_letters (status, consumer_name, ended_at, event_id);
CREATE INDEX inbox_dead_letters_event ON inbox_dead_letters (event_id);
