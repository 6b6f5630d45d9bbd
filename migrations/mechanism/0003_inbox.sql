-- What each consumer has applied. The row commits together with the effect, so the pair happens once or not at all.
-- Partitioned as the archive is: a day is dropped whole once no topic can deliver it again.
CREATE TABLE processed_events (
  consumer_name text        NOT NULL CHECK (consumer_name <> ''),
  event_id      uuid        NOT NULL,
  processed_at  timestamptz NOT NULL,
  PRIMARY KEY (consumer_name, event_id)
) PARTITION BY RANGE (event_id);
CREATE TABLE processed_events_default PARTITION OF processed_events DEFAULT;
DO $$ BEGIN PERFORM ensure_daily_partitions('processed_events', 3); END $$;
