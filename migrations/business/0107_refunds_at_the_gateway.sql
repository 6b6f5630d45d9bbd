-- A captured payment may be refunded, or disputed, at the gateway. So a payment can be `manual` after its capture without an intent to
-- refund. This rule only allows more than the one before: every row fulfils it, and the tables are not read.
--   `captured`  → refunding, refunded (at the gateway), manual (disputed, or refunded in part).
ALTER TABLE payments DROP CONSTRAINT payments_refund_begun;
ALTER TABLE payments ADD CONSTRAINT payments_refund_begun CHECK (
  CASE WHEN status IN ('refunding', 'refunded') THEN refund_begun_at IS NOT NULL
       WHEN status = 'manual' AND captured_minor > 0 THEN true
       ELSE refund_begun_at IS NULL END) NOT VALID;
