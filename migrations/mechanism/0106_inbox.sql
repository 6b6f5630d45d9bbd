-- The events that each consumer has applied. The row commits in the transaction of the event's effect, so the effect happens once.
-- A day's partition is dropped when no topic can deliver its events again.
CREATE TABLE processed_events (
  consumer_name text        NOT NULL CHECK (consumer_name <> ''),
  event_id      uuid        NOT NULL,
  processed_at  timestamptz NOT NULL,
  PRIMARY KEY (consumer_name, event_id)
) PARTITION BY RANGE (event_id);
CREATE TABLE processed_events_default PARTITION OF processed_events DEFAULT;
DO $$ BEGIN
  PERFORM make_daily_partition('processed_events', (clock_now() AT TIME ZONE 'UTC')::date + n, 0) FROM generate_series(-1, 3) AS n;
END $$;

-- The version of each aggregate that a consumer has applied last. It has no time window: a duplicate that arrives a year later is
-- still recognised by its version.
CREATE TABLE consumer_cursors (
  consumer_name  text    NOT NULL CHECK (consumer_name <> ''),
  aggregate_id   text    NOT NULL CHECK (aggregate_id <> ''),
  aggregate_type text    NOT NULL CHECK (aggregate_type <> ''),
  version        integer NOT NULL CHECK (version > 0),
  PRIMARY KEY (consumer_name, aggregate_id, aggregate_type)
  -- Free space for the next version on the same page: the index does not grow with the number of events.
) WITH (fillfactor = 70);
