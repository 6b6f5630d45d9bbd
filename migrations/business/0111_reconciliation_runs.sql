-- The results of reconciliations, the newest of which operators and the alert look at. Each run deletes those that are older than a quarter.
CREATE TABLE reconciliation_runs (
  run_id      uuid        PRIMARY KEY,
  started_at  timestamptz NOT NULL,
  finished_at timestamptz NOT NULL,
  -- The operator who asked for it, or the nightly round.
  actor       text        NOT NULL CHECK (actor <> ''),
  -- Differences that are left, repaired ones not counted.
  differences integer     NOT NULL CHECK (differences >= 0),
  -- Counts by rule, and some of the differences.
  report      json        NOT NULL
);
CREATE INDEX reconciliation_runs_by_end ON reconciliation_runs (finished_at);
