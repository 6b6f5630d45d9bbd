-- Faults that an operator of a test system has armed (docs/operations.md, faults). Only processes that run with FAULTS=on look here. A strike takes
-- one of `times` before it does anything, so a process that crashed on a fault finds it used up when it comes back.
CREATE TABLE armed_faults (
  point        text        PRIMARY KEY CHECK (point <> ''),
  action       text        NOT NULL CHECK (action IN ('crash', 'fail', 'delay', 'duplicate', 'lose-ack')),
  -- Strikes that are left, over all processes.
  times        integer     NOT NULL CHECK (times > 0),
  delay_millis integer     NOT NULL CHECK (delay_millis >= 0),
  armed_at     timestamptz NOT NULL,
  actor        text        NOT NULL,
  reason       text        NOT NULL
);
