-- Over how many of a topic's partitions its lanes are spread: noted when it is first found fit, and the same for every process from then on.
-- A topic that gets more partitions keeps its events in the first ones until an operator changes the row (README, "More partitions").
CREATE TABLE outbox_topics (
  topic      text        PRIMARY KEY CHECK (topic <> ''),
  -- A lane lies inside one partition only where the count divides the 64 lanes.
  partitions integer     NOT NULL CHECK (partitions > 0 AND 64 % partitions = 0),
  noted_at   timestamptz NOT NULL DEFAULT clock_now()
);
