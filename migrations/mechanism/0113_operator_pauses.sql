-- What an operator has paused, until he resumes it: a topic (nothing is sent to it), a consumer (it reads nothing), a type of task (none is
-- begun). Nothing is lost meanwhile: events wait in the queue or in the topic, and tasks in their table.
CREATE TABLE operator_pauses (
  kind      text        NOT NULL CHECK (kind IN ('topic', 'consumer', 'task type')),
  name      text        NOT NULL CHECK (name <> ''),
  paused_at timestamptz NOT NULL,
  actor     text        NOT NULL,
  reason    text        NOT NULL,
  PRIMARY KEY (kind, name)
);
