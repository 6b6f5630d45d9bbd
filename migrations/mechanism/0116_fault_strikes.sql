-- Strikes of armed faults, for the person who watches. A log would tell them too, but only of a process that lives on. A strike is recorded by the
-- statement that takes it from armed_faults, so a process that crashes on it has recorded it. Only the newest rows are kept.
CREATE TABLE fault_strikes (
  strike_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  point        text        NOT NULL,
  action       text        NOT NULL,
  delay_millis integer     NOT NULL,
  at           timestamptz NOT NULL,
  -- As pid@host.
  process      text        NOT NULL
);
