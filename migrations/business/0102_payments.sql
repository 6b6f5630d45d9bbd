-- A payment of an order. The state machine (src/domain/Payment.ts), as far as one row shows it:
--   `charging`  → captured, declined, refunding (its order was cancelled), manual (the gateway reported no outcome in time).
--   `captured`  → refunding.
--   `refunding` → refunded, manual.
--   `manual`    → captured, declined, refunding, refunded: the outcome that the gateway reports later.
CREATE TABLE payments (
  id              uuid        PRIMARY KEY,
  order_id        uuid        NOT NULL REFERENCES orders,
  status          text        NOT NULL CHECK (status IN ('charging', 'captured', 'declined', 'manual', 'refunding', 'refunded')),
  payment_method  text        NOT NULL CHECK (payment_method <> ''),
  amount_minor    bigint      NOT NULL CHECK (amount_minor > 0),
  currency        text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  captured_minor  bigint      NOT NULL DEFAULT 0 CHECK (captured_minor IN (0, amount_minor)),
  refunded_minor  bigint      NOT NULL DEFAULT 0,
  decline_reason  text        CHECK ((decline_reason IS NOT NULL) = (status = 'declined')),
  -- How long one attempt to settle the payment is alone. It only saves work: a second attempt is harmless by the gateway's
  -- idempotency key, which is this payment's id, and by the guarded update of the outcome.
  leased_until    timestamptz NOT NULL,
  created_at      timestamptz NOT NULL,
  updated_at      timestamptz NOT NULL,
  -- When the outcome was first found unknown. From then on requests with the payment's key answer 202 until the outcome is final.
  unknown_since   timestamptz,
  -- The intent to refund. The gateway's retention of the refund's key counts from here.
  refund_begun_at timestamptz,
  -- When money moved, for reports. The trigger below sets both.
  captured_at     timestamptz,
  refunded_at     timestamptz,
  CONSTRAINT payments_captured CHECK (
    CASE WHEN status IN ('captured', 'refunding', 'refunded') THEN captured_minor > 0
         WHEN status IN ('charging', 'declined') THEN captured_minor = 0
         ELSE status = 'manual' END),
  CONSTRAINT payments_refunded CHECK (
    refunded_minor = CASE WHEN status = 'refunded' THEN captured_minor ELSE 0 END),
  CONSTRAINT payments_refund_begun CHECK (
    (refund_begun_at IS NOT NULL) = (status IN ('refunding', 'refunded') OR status = 'manual' AND captured_minor > 0))
);
-- The rule that an order has one open or successful payment. A declined payment is closed, and so is a refunded one.
CREATE UNIQUE INDEX payments_one_open ON payments (order_id) WHERE status IN ('charging', 'captured', 'manual', 'refunding');
CREATE INDEX payments_by_order ON payments (order_id);
-- For the alarm on payments that wait for an operator.
CREATE INDEX payments_manual ON payments (id) WHERE status = 'manual';
-- For reports by day. BRIN costs a payment next to nothing, and the payments of one day lie together.
CREATE INDEX payments_by_capture ON payments USING brin (captured_at) WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX payments_by_refund ON payments USING brin (refunded_at) WITH (pages_per_range = 32, autosummarize = on);

-- Stamps the times at which money moved. In the database, so that no statement can forget it.
CREATE FUNCTION stamp_payment() RETURNS trigger
  LANGUAGE plpgsql
  AS $$
    BEGIN
      IF NEW.captured_minor > 0 THEN NEW.captured_at := coalesce(NEW.captured_at, clock_now()); END IF;
      IF NEW.refunded_minor > 0 THEN NEW.refunded_at := coalesce(NEW.refunded_at, clock_now()); END IF;
      RETURN NEW;
    END
  $$;
CREATE TRIGGER payments_stamped_new BEFORE INSERT ON payments
  FOR EACH ROW WHEN (NEW.captured_minor > 0) EXECUTE FUNCTION stamp_payment();
CREATE TRIGGER payments_stamped BEFORE UPDATE ON payments
  FOR EACH ROW WHEN (NEW.captured_minor > OLD.captured_minor OR NEW.refunded_minor > OLD.refunded_minor)
  EXECUTE FUNCTION stamp_payment();
