-- The state machine of a payment (src/domain/Payment.ts), as far as one row can tell:
-- charging → captured → refunding → refunded, charging → declined; manual, where the gateway has not told an outcome in time, of the
-- charge (nothing captured for all that is known) or of the refund.
DO $$
  DECLARE
    name text;
  BEGIN
    -- The rules over several columns were given no names.
    FOR name IN SELECT conname FROM pg_constraint
      WHERE conrelid = 'payments'::regclass AND contype = 'c'
        AND (pg_get_constraintdef(oid) ~ 'captured_minor > 0' OR pg_get_constraintdef(oid) ~ 'refunded_minor')
    LOOP
      EXECUTE format('ALTER TABLE payments DROP CONSTRAINT %I', name);
    END LOOP;
  END
$$;
ALTER TABLE payments
  -- When the gateway's silence was first noticed: from then on the payment's key answers 202 until the outcome is final.
  ADD COLUMN unknown_since timestamptz,
  -- The intent to refund: how long the gateway knows the refund's key counts from here.
  ADD COLUMN refund_begun_at timestamptz,
  ADD CONSTRAINT payments_captured CHECK (
    CASE WHEN status IN ('captured', 'refunding', 'refunded') THEN captured_minor > 0
         WHEN status IN ('charging', 'declined') THEN captured_minor = 0
         ELSE status = 'manual' END),
  ADD CONSTRAINT payments_refunded CHECK (
    refunded_minor = CASE WHEN status = 'refunded' THEN captured_minor ELSE 0 END),
  ADD CONSTRAINT payments_refund_begun CHECK (
    (refund_begun_at IS NOT NULL) = (status IN ('refunding', 'refunded') OR status = 'manual' AND captured_minor > 0));

-- What the alarm counts: a handful at the worst of times.
CREATE INDEX payments_manual ON payments (id) WHERE status = 'manual';

-- Retention looks at the oldest keys.
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
