-- What follows from an order's events, and reports. Names and shapes of subscribers' tables are for everyone who reads them with SQL.

-- What is left of a sku. A sku that is not listed is unlimited. Stock comes in by hand: INSERT INTO inventory_stock (sku, available) …
CREATE TABLE inventory_stock (
  sku        text        PRIMARY KEY CHECK (sku <> ''),
  available  bigint      NOT NULL CHECK (available >= 0),
  updated_at timestamptz NOT NULL DEFAULT clock_now()
);

-- What an order asked for, and the decision: one row for each of its skus.
CREATE TABLE inventory_reservations (
  order_id   uuid        NOT NULL,
  sku        text        NOT NULL,
  quantity   bigint      NOT NULL CHECK (quantity > 0),
  status     text        NOT NULL CHECK (status IN ('reserved', 'out_of_stock', 'released')),
  -- Whether it was taken from inventory_stock: what was unlimited when it was reserved gives nothing back.
  counted    boolean     NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (order_id, sku),
  CHECK (counted OR status <> 'out_of_stock')
);
CREATE INDEX inventory_out_of_stock ON inventory_reservations (sku) WHERE status = 'out_of_stock';

-- Double entry: each movement is one row with the account that is debited and the one that is credited, so the sum over all accounts is
-- nothing whatever stands here. Rows are added, never changed: a refund is a movement of its own.
CREATE TABLE billing_ledger (
  event_id       uuid        PRIMARY KEY,
  order_id       uuid        NOT NULL,
  payment_id     uuid        NOT NULL,
  debit_account  text        NOT NULL CHECK (debit_account IN ('gateway', 'sales', 'refunds')),
  credit_account text        NOT NULL CHECK (credit_account IN ('gateway', 'sales', 'refunds')),
  amount_minor   bigint      NOT NULL CHECK (amount_minor > 0),
  currency       text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  occurred_at    timestamptz NOT NULL,
  recorded_at    timestamptz NOT NULL,
  CHECK (debit_account <> credit_account)
);
CREATE INDEX billing_ledger_by_order ON billing_ledger (order_id);

-- The books, account by account: debits less credits, by currency.
CREATE VIEW billing_balances AS
  SELECT account, currency, sum(amount_minor) AS balance_minor
  FROM (SELECT debit_account AS account, currency, amount_minor::numeric FROM billing_ledger
        UNION ALL
        SELECT credit_account, currency, -amount_minor::numeric FROM billing_ledger) AS entries
  GROUP BY account, currency;

-- Each mail that a task has begun to send. `sending` is committed before the first byte leaves: whoever finds it later knows that
-- nobody knows what came of it. A row goes with its task, when cleanup takes that away.
CREATE TABLE mail_deliveries (
  task_id         uuid        PRIMARY KEY REFERENCES outbox_tasks ON DELETE CASCADE,
  kind            text        NOT NULL CHECK (kind <> ''),
  recipient       text        NOT NULL CHECK (recipient <> ''),
  subject         text        NOT NULL,
  status          text        NOT NULL CHECK (status IN ('sending', 'sent', 'failed', 'uncertain', 'refused')),
  -- How many times it was handed to the mail server, and how many of these ended without an answer.
  sends           integer     NOT NULL DEFAULT 1 CHECK (sends > 0),
  uncertain_sends integer     NOT NULL DEFAULT 0 CHECK (uncertain_sends BETWEEN 0 AND sends),
  last_error      text,
  created_at      timestamptz NOT NULL,
  updated_at      timestamptz NOT NULL,
  sent_at         timestamptz,
  CHECK ((status = 'sent') = (sent_at IS NOT NULL))
);
CREATE INDEX mail_deliveries_unsettled ON mail_deliveries (status, updated_at) WHERE status <> 'sent';

-- The results of `report` tasks; each goes with its task.
CREATE TABLE generated_reports (
  task_id    uuid        PRIMARY KEY REFERENCES outbox_tasks ON DELETE CASCADE,
  from_day   date        NOT NULL,
  to_day     date        NOT NULL CHECK (to_day >= from_day),
  -- The one moment at which all of its figures were true.
  as_of      timestamptz NOT NULL,
  totals     jsonb       NOT NULL,
  csv        text        NOT NULL,
  created_at timestamptz NOT NULL
);

-- When money moved, for reports: stamped by the database, so that whoever moves a payment on, in whatever version, stamps it.
ALTER TABLE payments ADD COLUMN captured_at timestamptz, ADD COLUMN refunded_at timestamptz;
UPDATE payments SET captured_at = updated_at WHERE captured_minor > 0;
UPDATE payments SET refunded_at = updated_at WHERE refunded_minor > 0;
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
-- BRIN, for it costs a payment next to nothing: what was captured on one day lies together.
CREATE INDEX payments_by_capture ON payments USING brin (captured_at) WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX payments_by_refund ON payments USING brin (refunded_at) WITH (pages_per_range = 32, autosummarize = on);
