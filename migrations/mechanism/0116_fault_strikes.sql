-- What armed faults have done, for the person who watches: without it a strike is a line in the log of a process that may have ended on it. A strike
-- is recorded in the statement that takes it from armed_faults, so a process that crashes on it has recorded it. Only the newest rows are kept.
CREATE TABLE fault_strikes (
  strike_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  point        text        NOT NULL,
  action       text        NOT NULL,
  delay_millis integer     NOT NULL,
  at           timestamptz NOT NULL,
  -- As pid@host.
  process      text        NOT NULL
);
