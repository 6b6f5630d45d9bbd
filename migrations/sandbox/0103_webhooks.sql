-- A webhook that is still to be delivered. A claim moves next_attempt_at forward before it sends, so that another sender takes over
-- from one that died.
CREATE TABLE sandbox_gateway.webhooks (
  id              uuid        PRIMARY KEY,
  body            text        NOT NULL,
  deliveries_left integer     NOT NULL CHECK (deliveries_left >= 0),
  attempts        integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  created_at      timestamptz NOT NULL,
  next_attempt_at timestamptz NOT NULL
);
CREATE INDEX webhooks_due ON sandbox_gateway.webhooks (next_attempt_at) WHERE deliveries_left > 0;
