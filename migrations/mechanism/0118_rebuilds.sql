-- Projections that are being made anew from the archive (src/operations/rebuild). A row exists from the start of a rebuild until the end of its
-- cleaning. A row whose process is gone is of a rebuild that was cut off: the next one takes its place.

-- `rebuild_id` is a fencing token: each transaction of a rebuild locks the row, and does nothing once another rebuild has taken it.
CREATE TABLE rebuilds (
  consumer_name text        PRIMARY KEY CHECK (consumer_name <> ''),
  rebuild_id    uuid        NOT NULL,
  begun_at      timestamptz NOT NULL,
  actor         text        NOT NULL CHECK (actor <> ''),
  -- The events that are in the new table, and those that the consumer has applied, as far as the rebuild has looked.
  done          bigint      NOT NULL DEFAULT 0 CHECK (done >= 0),
  total         bigint      NOT NULL DEFAULT 0 CHECK (total >= 0)
);

-- How far the new table is, by aggregate, as consumer_cursors tells it of the table that is read. Every slice writes consumer_cursors, so a rebuild's
-- versions are kept apart. They are deleted when it ends.
CREATE TABLE rebuild_cursors (
  consumer_name  text    NOT NULL CHECK (consumer_name <> ''),
  aggregate_id   text    NOT NULL,
  aggregate_type text    NOT NULL,
  version        integer NOT NULL CHECK (version > 0),
  PRIMARY KEY (consumer_name, aggregate_id, aggregate_type)
);
