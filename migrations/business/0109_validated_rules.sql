-- The rules of 0106 to 0108 hold for older rows, too: each allows more than the one that it replaced. To say so, Postgres reads both tables
-- once, and they are written meanwhile.
--
-- An upgrade that applies 0107 or 0108 in the same go holds their lock until this file is done, and payments wait. If the table is large,
-- upgrade to a release with 0108 first.
ALTER TABLE idempotency_keys VALIDATE CONSTRAINT idempotency_keys_response_status_check;
ALTER TABLE payments VALIDATE CONSTRAINT payments_refund_begun;
ALTER TABLE payments VALIDATE CONSTRAINT payments_decline_reason;
