-- An order changes only together with its events (Orders.save: one statement). The states that stand here are the ones that
-- an event announces; "paying" and "refunding" are what readers see while a payment of the order is under way.
CREATE TABLE orders (
  id                 uuid        PRIMARY KEY,
  customer_id        text        NOT NULL CHECK (customer_id <> ''),
  currency           text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  status             text        NOT NULL CHECK (status IN ('pending', 'paid', 'cancelled', 'refunded')),
  version            integer     NOT NULL CHECK (version > 0),
  total_amount_minor bigint      NOT NULL CHECK (total_amount_minor BETWEEN 1 AND 9007199254740991),
  created_at         timestamptz NOT NULL,
  updated_at         timestamptz NOT NULL
);

CREATE TABLE order_lines (
  order_id          uuid    NOT NULL REFERENCES orders,
  position          integer NOT NULL CHECK (position BETWEEN 0 AND 999),
  sku               text    NOT NULL CHECK (sku <> ''),
  quantity          integer NOT NULL CHECK (quantity BETWEEN 1 AND 1000000),
  unit_amount_minor bigint  NOT NULL CHECK (unit_amount_minor BETWEEN 1 AND 100000000000),
  PRIMARY KEY (order_id, position)
);
CREATE INDEX orders_by_status ON orders (status, id);

CREATE TABLE payments (
  id             uuid        PRIMARY KEY,
  order_id       uuid        NOT NULL REFERENCES orders,
  status         text        NOT NULL CHECK (status IN ('charging', 'captured', 'declined', 'manual', 'refunding', 'refunded')),
  payment_method text        NOT NULL CHECK (payment_method <> ''),
  amount_minor   bigint      NOT NULL CHECK (amount_minor > 0),
  currency       text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  captured_minor bigint      NOT NULL DEFAULT 0 CHECK (captured_minor IN (0, amount_minor)),
  refunded_minor bigint      NOT NULL DEFAULT 0 CHECK (refunded_minor BETWEEN 0 AND captured_minor),
  decline_reason text        CHECK ((decline_reason IS NOT NULL) = (status = 'declined')),
  -- Until when one attempt to settle this payment may count on being alone. Politeness only: what makes a second attempt
  -- harmless is the gateway's idempotency key (this payment's id) and the guarded update of the outcome.
  leased_until   timestamptz NOT NULL,
  created_at     timestamptz NOT NULL,
  updated_at     timestamptz NOT NULL,
  CHECK ((status IN ('captured', 'refunding', 'refunded')) = (captured_minor > 0))
);
-- One open or successful payment an order. A declined one is closed, and so is a refunded one.
CREATE UNIQUE INDEX payments_one_open ON payments (order_id) WHERE status IN ('charging', 'captured', 'manual', 'refunding');
CREATE INDEX payments_by_order ON payments (order_id);

-- Idempotency keys belong to method and path. A row without a response is a request that is under way or died half-way.
CREATE TABLE idempotency_keys (
  method          text        NOT NULL,
  path            text        NOT NULL,
  idempotency_key text        NOT NULL CHECK (length(idempotency_key) BETWEEN 1 AND 255),
  -- SHA-256 of the decoded body in canonical form: "same body" is about the value, not about spaces.
  body_hash       bytea       NOT NULL CHECK (length(body_hash) = 32),
  -- What the request made: the order that was placed, or the payment that was begun.
  subject_id      uuid        NOT NULL,
  response_status smallint    CHECK (response_status IN (200, 201, 402)),
  response_body   text,
  created_at      timestamptz NOT NULL,
  PRIMARY KEY (method, path, idempotency_key),
  CHECK ((response_status IS NULL) = (response_body IS NULL))
);
CREATE INDEX idempotency_keys_by_subject ON idempotency_keys (subject_id);
