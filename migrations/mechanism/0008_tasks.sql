-- Durable work beside business data: a task commits with the change that asks for it, and then runs until it is done, dead or cancelled.
-- Finished tasks stay in the table; every statement that looks for work has a partial index that knows nothing of them.
CREATE TABLE outbox_tasks (
  task_id          uuid        PRIMARY KEY,
  seq              bigint      GENERATED ALWAYS AS IDENTITY,
  task_type        text        NOT NULL CHECK (task_type ~ '^[A-Za-z0-9._-]{1,100}$'),
  -- pending: never run, or given back · processing: leased · failed: will be run again · completed, dead, cancelled: finished
  state            text        NOT NULL CHECK (state IN ('pending', 'processing', 'completed', 'failed', 'dead', 'cancelled')),
  -- json, not jsonb: it is read back as it was written.
  payload          json        NOT NULL,
  -- The larger the sooner. Few levels: the claim looks into each of them.
  priority         smallint    NOT NULL CHECK (priority BETWEEN -5 AND 5),
  -- At most one task of a key runs at a time, in order of seq.
  ordering_key     text        CHECK (ordering_key <> ''),
  idempotency_key  text        CHECK (idempotency_key <> ''),
  enqueued_at      timestamptz NOT NULL,
  execute_at       timestamptz NOT NULL,
  -- Runs that were begun, the present one included; one that a clean stop gave back is taken off again.
  attempts         integer     NOT NULL CHECK (attempts >= 0),
  -- Rises with each claim. Whoever finishes shows the one it was given: a late worker holds an old one, and changes nothing.
  token            integer     NOT NULL,
  lease_until      timestamptz,
  -- The process that has it, for an operator's eyes.
  leased_by        text,
  cancel_requested boolean     NOT NULL DEFAULT false,
  last_error       text,
  -- The last failures: {attempt, at, error}.
  history          jsonb       NOT NULL DEFAULT '[]',
  finished_at      timestamptz,
  -- The request that asked for it.
  trace_id         text,
  span_id          text,
  CONSTRAINT outbox_tasks_lease CHECK ((state = 'processing') = (lease_until IS NOT NULL) AND (state <> 'processing' OR attempts > 0)),
  CONSTRAINT outbox_tasks_finished CHECK ((state IN ('completed', 'dead', 'cancelled')) = (finished_at IS NOT NULL))
);

-- What waits, as the claim takes it: of a type, by priority, what was due first, then in order.
CREATE INDEX outbox_tasks_due ON outbox_tasks (task_type, priority, execute_at, seq) WHERE state IN ('pending', 'failed');
-- What runs, for the sweep.
CREATE INDEX outbox_tasks_leases ON outbox_tasks (lease_until) WHERE state = 'processing';
-- The line behind each ordering key, and the rule that one of it runs, kept by Postgres.
CREATE INDEX outbox_tasks_line ON outbox_tasks (ordering_key, seq) WHERE ordering_key IS NOT NULL AND state IN ('pending', 'failed', 'processing');
CREATE UNIQUE INDEX outbox_tasks_one_running ON outbox_tasks (ordering_key) WHERE ordering_key IS NOT NULL AND state = 'processing';
CREATE UNIQUE INDEX outbox_tasks_idempotency ON outbox_tasks (task_type, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- What cleanup takes away, and what waits for an operator.
CREATE INDEX outbox_tasks_done ON outbox_tasks (finished_at) WHERE state IN ('completed', 'cancelled');
CREATE INDEX outbox_tasks_dead ON outbox_tasks (task_type, finished_at) WHERE state = 'dead';

-- Each task leaves two dead rows behind: vacuum by their number rather than by a share of a table that is mostly history.
ALTER TABLE outbox_tasks SET (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0, fillfactor = 80
);
