-- The queue of the simplest relay, with the columns of the service's own and a vacuum that suits a queue.
CREATE TABLE peer_outbox (
  id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_id          uuid        NOT NULL DEFAULT gen_random_uuid(),
  topic             text        NOT NULL,
  event_type        text        NOT NULL,
  schema_version    smallint    NOT NULL,
  aggregate_type    text        NOT NULL,
  aggregate_id      text        NOT NULL,
  aggregate_version integer     NOT NULL,
  occurred_at       timestamptz NOT NULL DEFAULT now(),
  trace_id          text        NOT NULL,
  span_id           text        NOT NULL,
  data              json        NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The archive: one index, by which an event is found. An identity is cheaper to index than a random id.
CREATE TABLE peer_archive (LIKE peer_outbox, published_at timestamptz NOT NULL, PRIMARY KEY (id));
