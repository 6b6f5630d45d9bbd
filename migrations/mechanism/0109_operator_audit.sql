-- Every change that an operator made to an event by hand, with the actor and the reason. The dispatcher and the consumers write here,
-- too, where a topic's policy lets them skip an event. Rows are added in the transaction of the change, and never changed.
CREATE TABLE operator_audit (
  audit_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz NOT NULL,
  actor      text        NOT NULL CHECK (actor <> ''),
  action     text        NOT NULL CHECK (action <> ''),
  reason     text        NOT NULL CHECK (reason <> ''),
  -- The changed object, for example ('outbox event', its id).
  subject    text        NOT NULL,
  subject_id text        NOT NULL,
  before     jsonb       NOT NULL,
  after      jsonb       NOT NULL
);
CREATE INDEX operator_audit_subject ON operator_audit (subject, subject_id);
