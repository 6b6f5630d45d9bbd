-- The gateway may report a capture of a payment that it had declined. The order may be paid by another payment meanwhile, so that capture
-- never pays it: the money goes back. Such a payment keeps its decline_reason, and is no open payment of its order.
--   `declined`  → refunding (captured after all), manual (captured with another amount).
--
-- If the table is large, make both indexes by hand before the upgrade, with CONCURRENTLY.
ALTER TABLE payments DROP CONSTRAINT payments_check1;
-- This rule only allows more than the one before: every row fulfils it, and the table is not read.
ALTER TABLE payments ADD CONSTRAINT payments_decline_reason CHECK (
  CASE WHEN status = 'declined' THEN decline_reason IS NOT NULL
       WHEN status IN ('charging', 'captured') THEN decline_reason IS NULL
       ELSE true END) NOT VALID;

CREATE UNIQUE INDEX IF NOT EXISTS payments_one_open_or_captured ON payments (order_id)
  WHERE status IN ('charging', 'captured', 'manual', 'refunding') AND decline_reason IS NULL;
DROP INDEX payments_one_open;
ALTER INDEX payments_one_open_or_captured RENAME TO payments_one_open;
-- For the lists of orders that are `paying` or `refunding`: a payment leaves it with its outcome.
CREATE INDEX IF NOT EXISTS payments_under_way ON payments (order_id)
  WHERE status IN ('charging', 'refunding', 'manual') AND decline_reason IS NULL;
