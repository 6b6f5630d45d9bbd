-- What tasks write. A row goes together with its task, when cleanup deletes the task.

-- A mail that a task has begun to send. `sending` is committed before the first byte is sent, so a row that is still `sending` after
-- a crash shows that the outcome is unknown.
CREATE TABLE mail_deliveries (
  task_id         uuid        PRIMARY KEY REFERENCES outbox_tasks ON DELETE CASCADE,
  kind            text        NOT NULL CHECK (kind <> ''),
  recipient       text        NOT NULL CHECK (recipient <> ''),
  subject         text        NOT NULL,
  status          text        NOT NULL CHECK (status IN ('sending', 'sent', 'failed', 'uncertain', 'refused')),
  -- How often the mail was handed to the mail server, and how many of these attempts ended without an answer.
  sends           integer     NOT NULL DEFAULT 1 CHECK (sends > 0),
  uncertain_sends integer     NOT NULL DEFAULT 0 CHECK (uncertain_sends BETWEEN 0 AND sends),
  last_error      text,
  created_at      timestamptz NOT NULL,
  updated_at      timestamptz NOT NULL,
  sent_at         timestamptz,
  CHECK ((status = 'sent') = (sent_at IS NOT NULL))
);
CREATE INDEX mail_deliveries_unsettled ON mail_deliveries (status, updated_at) WHERE status <> 'sent';

-- The result of a `report` task.
CREATE TABLE generated_reports (
  task_id    uuid        PRIMARY KEY REFERENCES outbox_tasks ON DELETE CASCADE,
  from_day   date        NOT NULL,
  to_day     date        NOT NULL CHECK (to_day >= from_day),
  -- The moment at which all figures of the report are true.
  as_of      timestamptz NOT NULL,
  totals     jsonb       NOT NULL,
  csv        text        NOT NULL,
  created_at timestamptz NOT NULL
);
