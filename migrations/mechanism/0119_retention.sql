-- How long the service keeps what is finished, and what it may have forgotten already (src/platform/Retention.ts). A command that asks whether a row
-- was ever there reads it here. The variables of its own shell may be other ones than the service's.
CREATE TABLE retention (
  table_name       text        PRIMARY KEY CHECK (table_name <> ''),
  -- By the variables of the process of the service that noted them last; 0 keeps for ever. NULL: none has noted them yet.
  kept_days        integer     CHECK (kept_days >= 0),
  noted_by         text        CHECK (noted_by <> ''),
  noted_at         timestamptz,
  -- The horizon: a row whose own time is not before it is still there. It is moved before rows are deleted, and only forward.
  forgotten_before timestamptz NOT NULL DEFAULT '-infinity',
  CONSTRAINT retention_noted CHECK ((kept_days IS NULL) = (noted_by IS NULL) AND (kept_days IS NULL) = (noted_at IS NULL))
);

-- Without a row nothing was deleted. A database that was used before this release may have lost rows, by days that nobody noted. So everything before this
-- moment may be gone. That also covers what processes of the former release delete during the upgrade: their rows are days old.
INSERT INTO retention (table_name, forgotten_before)
SELECT name, clock_now() FROM unnest('{event_log,processed_events,outbox_tasks}'::text[]) AS name
-- Each service notes its topics at its start. Cursors stay for ever.
WHERE EXISTS (SELECT FROM outbox_topics) OR EXISTS (SELECT FROM consumer_cursors) OR EXISTS (SELECT FROM event_log)
   OR EXISTS (SELECT FROM outbox_tasks);
