-- The embedded broker: a durable log in Postgres, with as much of Kafka's contract as the service needs and no more.
CREATE TABLE broker_topics (
  -- Kafka's rule for names, so that a topic can move there.
  topic             text    PRIMARY KEY CHECK (topic ~ '^[A-Za-z0-9._-]{1,249}$'),
  partitions        integer NOT NULL CHECK (partitions > 0),
  -- The default of Kafka's message.max.bytes.
  max_message_bytes integer NOT NULL DEFAULT 1048588 CHECK (max_message_bytes > 0)
);

-- One row a partition. Appending updates it first, so its lock is held to the commit: offset order is commit order, and a
-- reader that has seen an offset will never see a smaller one appear.
CREATE TABLE broker_partitions (
  topic       text    NOT NULL REFERENCES broker_topics,
  partition   integer NOT NULL CHECK (partition >= 0),
  next_offset bigint  NOT NULL DEFAULT 0 CHECK (next_offset >= 0),
  PRIMARY KEY (topic, partition)
) WITH (fillfactor = 50);

CREATE TABLE broker_log (
  topic            text        NOT NULL,
  partition        integer     NOT NULL,
  record_offset    bigint      NOT NULL,
  record_key       text        NOT NULL,
  record_value     bytea       NOT NULL,
  record_headers   json        NOT NULL,
  -- The same for a whole batch, taken under its partition's lock.
  appended_at      timestamptz NOT NULL,
  PRIMARY KEY (topic, partition, record_offset)
);

-- A group's place in each partition. `generation` is a fencing token: it rises with every new owner, and a commit that carries
-- an older one changes nothing, so an owner that was frozen and woke up cannot move the group back.
CREATE TABLE broker_offsets (
  consumer_group text    NOT NULL CHECK (consumer_group <> ''),
  topic          text    NOT NULL,
  partition      integer NOT NULL,
  next_offset    bigint  NOT NULL CHECK (next_offset >= 0),
  generation     bigint  NOT NULL,
  PRIMARY KEY (consumer_group, topic, partition)
) WITH (fillfactor = 50);
