-- Versions that a consumer's cursor has passed because an operator had given them up at the outbox. Written with the cursor's move.
--
-- A rebuild leaves these out, and no others. The event itself does not tell: one that was given up may have reached the topic by a send whose
-- answer was lost. The consumer has applied it then, and its mark in processed_events is gone after the retention.
CREATE TABLE consumer_gaps (
  consumer_name  text    NOT NULL CHECK (consumer_name <> ''),
  aggregate_id   text    NOT NULL,
  aggregate_type text    NOT NULL,
  -- The versions behind the first, up to and with the second.
  after_version  integer NOT NULL CHECK (after_version >= 0),
  until_version  integer NOT NULL CHECK (until_version > after_version),
  PRIMARY KEY (consumer_name, aggregate_id, aggregate_type, after_version)
);

-- Gaps from before this table: an event without a mark was passed, as far as the marks are kept.
INSERT INTO consumer_gaps
SELECT c.consumer_name, c.aggregate_id, c.aggregate_type, d.aggregate_version - 1, d.aggregate_version
FROM outbox_dead_letters AS d JOIN consumer_cursors AS c USING (aggregate_id, aggregate_type)
WHERE d.status = 'discarded' AND c.version >= d.aggregate_version
  AND NOT EXISTS (SELECT FROM processed_events AS m WHERE m.consumer_name = c.consumer_name AND m.event_id = d.event_id)
ON CONFLICT DO NOTHING;
