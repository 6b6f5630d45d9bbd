-- The tables of the orders topic's subscribers.

-- Inventory: the stock of a sku. A sku that is not listed is unlimited. Stock comes in by hand: INSERT INTO inventory_stock (sku,
-- available) …
CREATE TABLE inventory_stock (
  sku        text        PRIMARY KEY CHECK (sku <> ''),
  available  bigint      NOT NULL CHECK (available >= 0),
  updated_at timestamptz NOT NULL DEFAULT clock_now()
);

-- Inventory: what an order asked for and the decision, a row for each of its skus. reserved → released, or out_of_stock.
CREATE TABLE inventory_reservations (
  order_id   uuid        NOT NULL,
  sku        text        NOT NULL,
  quantity   bigint      NOT NULL CHECK (quantity > 0),
  status     text        NOT NULL CHECK (status IN ('reserved', 'out_of_stock', 'released')),
  -- Whether the quantity was taken from inventory_stock. A sku that was unlimited when it was reserved gives nothing back.
  counted    boolean     NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (order_id, sku),
  CHECK (counted OR status <> 'out_of_stock')
);
CREATE INDEX inventory_out_of_stock ON inventory_reservations (sku) WHERE status = 'out_of_stock';

-- Billing: the ledger, double entry. A row is one movement with the account that is debited and the account that is credited, so the
-- sum over all accounts is always zero. Rows are added and never changed: a refund is a movement of its own.
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

-- Billing: the balance of each account and currency, debits less credits.
CREATE VIEW billing_balances AS
  SELECT account, currency, sum(amount_minor) AS balance_minor
  FROM (SELECT debit_account AS account, currency, amount_minor::numeric FROM billing_ledger
        UNION ALL
        SELECT credit_account, currency, -amount_minor::numeric FROM billing_ledger) AS entries
  GROUP BY account, currency;

-- Analytics: revenue by the UTC day on which the event occurred. numeric, because a sum of many totals may exceed a bigint.
CREATE TABLE revenue_daily (
  day          date          NOT NULL,
  currency     text          NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  amount_minor numeric(38,0) NOT NULL,
  PRIMARY KEY (day, currency)
);
