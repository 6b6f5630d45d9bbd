-- The embedded broker: a durable log in Postgres with the part of Kafka's contract that the service needs.

-- A topic, its partition count and its limit for a record.
CREATE TABLE broker_topics (
  -- Kafka's rule for names, so that a topic can move to Kafka.
  topic             text    PRIMARY KEY CHECK (topic ~ '^[A-Za-z0-9._-]{1,249}$'),
  partitions        integer NOT NULL CHECK (partitions > 0),
  -- The default of Kafka's message.max.bytes.
  max_message_bytes integer NOT NULL DEFAULT 1048588 CHECK (max_message_bytes > 0)
);

-- The next offset of each partition. An append updates this row first, which locks it until the commit. So offset order is commit
-- order: after a reader has seen an offset, no smaller one appears.
CREATE TABLE broker_partitions (
  topic       text    NOT NULL REFERENCES broker_topics,
  partition   integer NOT NULL CHECK (partition >= 0),
  next_offset bigint  NOT NULL DEFAULT 0 CHECK (next_offset >= 0),
  PRIMARY KEY (topic, partition)
) WITH (fillfactor = 50);

-- The records. They are appended under the lock of their partition's row, and never changed.
CREATE TABLE broker_log (
  topic          text        NOT NULL,
  partition      integer     NOT NULL,
  record_offset  bigint      NOT NULL,
  record_key     text        NOT NULL,
  record_value   bytea       NOT NULL,
  record_headers json        NOT NULL,
  -- One time for all records of a batch.
  appended_at    timestamptz NOT NULL,
  PRIMARY KEY (topic, partition, record_offset)
);

-- The committed offset of each consumer group in each partition. `generation` is a fencing token: it rises with every new owner, and
-- a commit with an older one changes nothing. So an owner that was frozen and wakes up can't move the group back.
CREATE TABLE broker_offsets (
  consumer_group text    NOT NULL CHECK (consumer_group <> ''),
  topic          text    NOT NULL,
  partition      integer NOT NULL,
  next_offset    bigint  NOT NULL CHECK (next_offset >= 0),
  generation     bigint  NOT NULL,
  PRIMARY KEY (consumer_group, topic, partition)
) WITH (fillfactor = 50);
