-- A key is remembered for a time, as real gateways do, and then forgotten: the same key charges anew. So a charge has an id of its
-- own, and the key points at the charge that it stands for.
ALTER TABLE sandbox_gateway.charges DROP CONSTRAINT charges_pkey;
ALTER TABLE sandbox_gateway.charges ADD COLUMN id uuid PRIMARY KEY DEFAULT gen_random_uuid();
CREATE INDEX charges_by_time ON sandbox_gateway.charges (charged_at);

CREATE TABLE sandbox_gateway.refunds (
  id              uuid        PRIMARY KEY,
  charge_id       uuid        NOT NULL REFERENCES sandbox_gateway.charges,
  idempotency_key text        NOT NULL,
  charge_key      text        NOT NULL,
  amount_minor    bigint      NOT NULL CHECK (amount_minor > 0),
  currency        text        NOT NULL,
  refunded_at     timestamptz NOT NULL
);
CREATE INDEX refunds_by_charge ON sandbox_gateway.refunds (charge_id);

CREATE TABLE sandbox_gateway.keys (
  kind       text        NOT NULL CHECK (kind IN ('charge', 'refund')),
  key        text        NOT NULL,
  -- The charge or the refund that was made with it.
  made_id    uuid        NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (kind, key)
);
INSERT INTO sandbox_gateway.keys SELECT 'charge', idempotency_key, id, charged_at FROM sandbox_gateway.charges;

-- How often a key was tried, for the payment methods that fail at first.
CREATE TABLE sandbox_gateway.tries (
  key   text    PRIMARY KEY,
  count integer NOT NULL
);

-- What is still to be reported. A claim moves next_attempt_at, so that a sender that dies is followed by another.
CREATE TABLE sandbox_gateway.webhooks (
  id              uuid        PRIMARY KEY,
  body            text        NOT NULL,
  deliveries_left integer     NOT NULL,
  attempts        integer     NOT NULL DEFAULT 0,
  created_at      timestamptz NOT NULL,
  next_attempt_at timestamptz NOT NULL
);
CREATE INDEX webhooks_due ON sandbox_gateway.webhooks (next_attempt_at) WHERE deliveries_left > 0;

-- The behaviour on command, if there is one.
CREATE TABLE sandbox_gateway.behaviour (
  the_one boolean PRIMARY KEY DEFAULT true CHECK (the_one),
  state   jsonb   NOT NULL
);
