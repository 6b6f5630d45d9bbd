-- The idempotency key of a request, per method and path. A row without a response belongs to a request that is under way, or that
-- died half-way and is resumed by the next one with its key.
CREATE TABLE idempotency_keys (
  method          text        NOT NULL,
  path            text        NOT NULL,
  idempotency_key text        NOT NULL CHECK (length(idempotency_key) BETWEEN 1 AND 255),
  -- SHA-256 of the decoded body in canonical form: bodies are compared by value, not by spelling.
  body_hash       bytea       NOT NULL CHECK (length(body_hash) = 32),
  -- The id of the order that was placed, or of the payment that was begun.
  subject_id      uuid        NOT NULL,
  response_status smallint    CHECK (response_status IN (200, 201, 402)),
  response_body   text,
  created_at      timestamptz NOT NULL,
  PRIMARY KEY (method, path, idempotency_key),
  CHECK ((response_status IS NULL) = (response_body IS NULL))
);
CREATE INDEX idempotency_keys_by_subject ON idempotency_keys (subject_id);
-- For retention, which deletes the oldest keys.
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
