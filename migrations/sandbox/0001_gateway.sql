-- The sandbox gateway's own memory: another company's database, as it were. The service never reads it.
CREATE TABLE sandbox_gateway.charges (
  idempotency_key text        PRIMARY KEY,
  amount_minor    bigint      NOT NULL,
  currency        text        NOT NULL,
  payment_method  text        NOT NULL,
  status          text        NOT NULL CHECK (status IN ('captured', 'declined')),
  decline_reason  text,
  charged_at      timestamptz NOT NULL
);
