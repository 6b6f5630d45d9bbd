-- The memory of the sandbox gateway. It plays another company's database: the service never reads this schema.

-- A charge. It has an id of its own, because the gateway forgets keys after a time: the same key then charges again.
CREATE TABLE sandbox_gateway.charges (
  id              uuid        PRIMARY KEY,
  idempotency_key text        NOT NULL,
  amount_minor    bigint      NOT NULL CHECK (amount_minor > 0),
  currency        text        NOT NULL,
  payment_method  text        NOT NULL,
  status          text        NOT NULL CHECK (status IN ('captured', 'declined')),
  decline_reason  text        CHECK ((decline_reason IS NOT NULL) = (status = 'declined')),
  charged_at      timestamptz NOT NULL
);
CREATE INDEX charges_by_time ON sandbox_gateway.charges (charged_at);

-- A refund of a captured charge.
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

-- An idempotency key, and the charge or refund that it stands for. A row that is older than the retention counts as forgotten.
CREATE TABLE sandbox_gateway.keys (
  kind       text        NOT NULL CHECK (kind IN ('charge', 'refund')),
  key        text        NOT NULL,
  made_id    uuid        NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (kind, key)
);
