-- Durable work beside business data: a task commits together with the change that asks for it. The states:
--   `pending`     It has never run, or a clean stop gave it back.
--   `processing`  It is leased to a worker. Only then lease_until is set.
--   `failed`      Its last attempt failed, and another one follows at execute_at.
--   `completed`, `dead`, `cancelled`  It is finished. Only then finished_at is set.
-- Finished tasks stay in the table until cleanup. Every statement that looks for work has a partial index without them.
CREATE TABLE outbox_tasks (
  task_id          uuid        PRIMARY KEY,
  seq              bigint      GENERATED ALWAYS AS IDENTITY,
  task_type        text        NOT NULL CHECK (task_type ~ '^[A-Za-z0-9._-]{1,100}$'),
  state            text        NOT NULL CHECK (state IN ('pending', 'processing', 'completed', 'failed', 'dead', 'cancelled')),
  -- json, not jsonb: it is read back as it was written.
  payload          json        NOT NULL,
  -- The larger the sooner. Few levels, because the claim searches each of them.
  priority         smallint    NOT NULL CHECK (priority BETWEEN -5 AND 5),
  -- Tasks of one key run one at a time, in order of seq.
  ordering_key     text        CHECK (ordering_key <> ''),
  idempotency_key  text        CHECK (idempotency_key <> ''),
  enqueued_at      timestamptz NOT NULL,
  execute_at       timestamptz NOT NULL,
  -- Attempts that were begun, including the current one. An attempt that a clean stop gave back is not counted.
  attempts         integer     NOT NULL CHECK (attempts >= 0),
  -- A fencing token: it rises with each claim, and finishing a task requires the current one. A late worker changes nothing.
  token            integer     NOT NULL,
  lease_until      timestamptz,
  -- The process that holds the lease, for operators.
  leased_by        text,
  cancel_requested boolean     NOT NULL DEFAULT false,
  last_error       text,
  -- The last failures: {attempt, at, error}.
  history          jsonb       NOT NULL DEFAULT '[]',
  finished_at      timestamptz,
  -- The trace of the request that enqueued the task.
  trace_id         text,
  span_id          text,
  CONSTRAINT outbox_tasks_lease CHECK ((state = 'processing') = (lease_until IS NOT NULL) AND (state <> 'processing' OR attempts > 0)),
  CONSTRAINT outbox_tasks_finished CHECK ((state IN ('completed', 'dead', 'cancelled')) = (finished_at IS NOT NULL))
) WITH (
  -- Each task leaves two dead rows. Vacuum by their number rather than by a share of a table that is mostly history.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0, fillfactor = 80
);

-- Due tasks in the order of the claim: of a type, by priority, then by due time, then by seq.
CREATE INDEX outbox_tasks_due ON outbox_tasks (task_type, priority, execute_at, seq) WHERE state IN ('pending', 'failed');
-- Leases, for the sweep of expired ones.
CREATE INDEX outbox_tasks_leases ON outbox_tasks (lease_until) WHERE state = 'processing';
-- The tasks of each ordering key, and the rule that one of them runs.
CREATE INDEX outbox_tasks_line ON outbox_tasks (ordering_key, seq) WHERE ordering_key IS NOT NULL AND state IN ('pending', 'failed', 'processing');
CREATE UNIQUE INDEX outbox_tasks_one_running ON outbox_tasks (ordering_key) WHERE ordering_key IS NOT NULL AND state = 'processing';
-- The rule that one enqueued task exists per idempotency key of a type.
CREATE UNIQUE INDEX outbox_tasks_idempotency ON outbox_tasks (task_type, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- Finished tasks for cleanup, and dead ones for operators.
CREATE INDEX outbox_tasks_done ON outbox_tasks (finished_at) WHERE state IN ('completed', 'cancelled');
CREATE INDEX outbox_tasks_dead ON outbox_tasks (task_type, finished_at) WHERE state = 'dead';
