-- Events of the topic that no order here has, and none ever will: a person has decided so by `paid-once roll-forward` (docs/restore.md). Other
-- readers of the topic know them. They are no part of the archive: that has one event for each version of an order.
CREATE TABLE left_out_events (
  event_id          uuid        PRIMARY KEY,
  event_type        text        NOT NULL CHECK (event_type <> ''),
  order_id          uuid        NOT NULL,
  order_version     integer     NOT NULL CHECK (order_version > 0),
  broker_partition  integer     NOT NULL CHECK (broker_partition >= 0),
  broker_offset     bigint      NOT NULL CHECK (broker_offset >= 0),
  -- `collision`: the order has another event of that version, or of one before. `gap`: the topic has lost an event before it.
  why               text        NOT NULL CHECK (why IN ('collision', 'gap')),
  left_out_at       timestamptz NOT NULL
);
