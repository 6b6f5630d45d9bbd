-- A key belongs to its caller: two programs with API keys may choose the same one. Keys from before belong to the caller without a name.
-- Until it is upgraded, an older process writes and finds keys of that caller: set API_KEYS once all are upgraded.
--
-- The table is small: keys are kept for days. Should it be large, run this file's first two statements by hand before the upgrade, and
-- make the index with CONCURRENTLY.
ALTER TABLE idempotency_keys
  ADD COLUMN IF NOT EXISTS caller text NOT NULL DEFAULT 'anonymous',
  -- The payment that the answer leads to: its Location. The key is kept while that payment is open.
  ADD COLUMN IF NOT EXISTS payment_id uuid;

CREATE UNIQUE INDEX IF NOT EXISTS idempotency_keys_by_caller
  ON idempotency_keys (caller, method, path, idempotency_key);

-- Neither scans the table: the index is there, and what is stored satisfies the wider list.
ALTER TABLE idempotency_keys
  DROP CONSTRAINT idempotency_keys_pkey,
  ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY USING INDEX idempotency_keys_by_caller,
  DROP CONSTRAINT idempotency_keys_response_status_check,
  ADD CONSTRAINT idempotency_keys_response_status_check CHECK (response_status IN (200, 201, 202, 402)) NOT VALID;
