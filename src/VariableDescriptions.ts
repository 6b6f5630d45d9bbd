/** What each variable is for. Made from the docstrings of `Config.ts` by `npm run reference`; a test holds it. */
export const variableDescriptions: Readonly<Record<string, string>> = {
  DATA_DIRECTORY: "The directory of the embedded Postgres and the process's id file.",
  DATABASE_URL: "Postgres 15 or newer. Unset: an embedded Postgres under `.data/`. Secret. Allowed: a postgres:// URL.",
  DATABASE_OWNER_URL:
    "The role that owns the schema. It migrates, and grants to the role of `DATABASE_URL` what the service needs. Unset: the role of `DATABASE_URL` does both. Secret. Allowed: a postgres:// URL.",
  KAFKA_BROKERS: "Apache Kafka 4.x. Unset: the embedded broker in Postgres. Allowed: `host:port`, comma separated.",
  KAFKA_PREFIX:
    "The prefix of topic and group names: several installations can share a cluster. Allowed: 1 to 100 letters, digits, dots, dashes or underscores.",
  KAFKA_CREATE_TOPICS:
    "Whether topics that are missing are made at the start, with eight partitions. Allowed: `on`, `off`.",
  KAFKA_REPLICATION: "Copies of each partition of a topic that is made at the start. Allowed: 1 … 32.",
  KAFKA_SSL: "Encrypts all connections to Kafka, and checks the brokers' certificates and names. Allowed: `on`, `off`.",
  KAFKA_SSL_CA:
    "The authorities that may vouch for a broker. Unset: those that Node trusts. Allowed: path of a PEM file.",
  KAFKA_SSL_CERT:
    "The certificate of this service, where the brokers demand one, with its chain. Allowed: path of a PEM file.",
  KAFKA_SSL_KEY: "The key of `KAFKA_SSL_CERT`, without a passphrase. Allowed: path of a PEM file.",
  KAFKA_SASL_MECHANISM:
    "How the user of the service is proved. Unset: no user, or the one of `KAFKA_SSL_CERT`. Allowed: `plain`, `scram-sha-256`, `scram-sha-512`.",
  KAFKA_SASL_USERNAME: "The user of the service at the brokers. Allowed: 1 to 200 printable characters.",
  KAFKA_SASL_PASSWORD: "The password of `KAFKA_SASL_USERNAME`. Secret. Allowed: 1 to 1,000 printable characters.",
  HOST: "The default admits this machine only. Any other host needs API_KEYS. Allowed: a host name or an address.",
  API_KEYS:
    "The programs that may call, what they may do (`customer`, `viewer` or `operator`), and a hash of each one's key. Unset: everybody may do everything, on this machine. Secret. Allowed: `name:scope:sha256`, comma separated, as `paid-once api-key` prints them.",
  ADMIN_TOKEN:
    "The token of the operators, for the console and everything under `/admin`; `openssl rand -base64 24` draws one. API keys of scope `operator` or `viewer` work there, too. Unset, and without a key of scope `operator`: a start on loopback prints a link that signs in once. Secret. Allowed: 16 to 200 ASCII characters without spaces.",
  PUBLIC_HOSTS:
    "The hosts that clients call the service by, besides loopback's names, HOST and its address. One without a port stands for all ports. Allowed: hosts, with or without a port, comma separated.",
  RATE_LIMIT:
    "The requests of each API key, and of each address that sends no valid one. Unset: `off` on loopback, else 600/1m: two to three times the requests of a shop with a hundred thousand orders a day. Allowed: `off`, or requests in a time: `600/1m`.",
  PORT: "0 picks a free one. Unset: 3000 with the role `http`, and none without it, so that several processes on a machine do not collide. Allowed: 0 … 65535.",
  HTTP_MAX_REQUESTS:
    "Requests in work at once. Above it others are refused with 503. With API_KEYS a caller gets no more than it leaves free, and else 429. A request takes up to some megabytes while it is in work. Allowed: 1 … 100000.",
  FAULTS:
    "Lets faults be armed at named points while the service runs; a list arms them from the start. For tests and drills. Allowed: `on`, or `point=action[:times]` or `point=delay:times:millis`, comma separated.",
  DEMO_CONTROL_URL:
    "Set by `demo --stay`: the page Break it asks there for processes to be frozen, killed and started. Allowed: `http://127.0.0.1:PORT`.",
  LOG_LEVEL: "Less severe lines are not written. Allowed: `Trace`, `Debug`, `Info`, `Warn`, `Error`, `Fatal`, `None`.",
  LOG_JSON: "Each line of the log as JSON. Allowed: `on`, `off`.",
  OUTBOX_BATCH_SIZE: "Large enough that the round trip is small beside the batch. Allowed: 1 … 10000.",
  OUTBOX_BATCH_BYTES: "Below Kafka's default limit of 1,048,588 bytes for a batch. Allowed: 1000 … 100000000.",
  OUTBOX_MAX_EVENT_BYTES:
    "A larger event is refused when it is written, before its transaction commits. Allowed: 1000 … 100000000.",
  OUTBOX_POLL_MILLIS: "Finds events whose wake-up was lost. Allowed: 10 … 600000.",
  OUTBOX_NOTIFY:
    "Whether a commit wakes the dispatchers of other processes. Without it they find the event at their next poll. Allowed: `on`, `off`.",
  OUTBOX_SEND_TIMEOUT_MILLIS:
    "Far above a healthy ack, and shorter than the session timeout: a stuck send ends before its lane moves. Allowed: milliseconds.",
  OUTBOX_SESSION_TIMEOUT_MILLIS: "How long a frozen process keeps its lanes. Allowed: 1000 … 600000.",
  OUTBOX_ARCHIVE: "Whether published events are kept, for timelines, the search and replay. Allowed: `on`, `off`.",
  OUTBOX_MAX_ATTEMPTS:
    "Attempts of an event that the broker refuses, the first included. They take about half an hour at most: time to correct a limit. Allowed: 1 … 100.",
  OUTBOX_RETRY_BASE_MILLIS:
    "After attempt n, n from 1, the next one waits random(0, base · 2ⁿ). Allowed: milliseconds.",
  INBOX_MAX_ATTEMPTS:
    "Attempts of an event whose handler fails, the first included. They take about three and a half minutes at most: time for a dependency to recover. Allowed: 1 … 100.",
  INBOX_RETRY_BASE_MILLIS:
    "After failure n, n from 1, the next attempt waits random(0, base · 2ⁿ). Allowed: milliseconds.",
  CONSUMER_SLICE_SIZE: "Records of a partition that a consumer is given at once, at most. Allowed: 1 … 10000.",
  CONSUMER_SESSION_TIMEOUT_MILLIS: "How long a consumer that is frozen keeps its partitions. Allowed: 1000 … 600000.",
  OUTBOX_RETENTION_DAYS:
    "How long published events are kept for timelines and replay; 0 keeps them. Allowed: 0 … 36500.",
  INBOX_RETENTION_DAYS:
    "How long an event is recognised as a duplicate. A topic with seven days' retention and daily segments keeps a record for up to eight. Allowed: 0 … 36500.",
  TASK_LEASE_MILLIS:
    "A task whose worker has sent no heartbeat for this long is run again by another worker. Allowed: 100 … 86400000.",
  TASK_HEARTBEAT_MILLIS:
    "How often a worker renews its leases: several times in a lease, as a renewal may be late. Allowed: 10 … 86400000.",
  TASK_RETRY_DELAYS:
    "The waits between the runs of a failing task, which has one run more than waits: over two days in all. Allowed: durations, comma separated.",
  TASK_RETENTION_DAYS:
    "How long completed and cancelled tasks are kept, with their idempotency keys; 0 keeps them. Allowed: 0 … 36500.",
  GATEWAY_URL:
    "Unset: a sandbox gateway beside the service. Secret. Allowed: an `http://` or `https://` URL without a query; user and password in it are sent as Basic credentials.",
  GATEWAY_PORT: "The port of `paid-once gateway`. Allowed: 0 … 65535.",
  GATEWAY_TIMEOUT_MILLIS:
    "After it an answer of the gateway counts as unknown, and is looked up. Allowed: milliseconds.",
  GATEWAY_KEY_RETENTION:
    "How long the gateway remembers a key. The service repeats a request in the first half of it only; the sandbox forgets keys after it. Allowed: a duration: `30s`, `5m`, `24h`, `1d`.",
  GATEWAY_WEBHOOK_SECRET:
    "The secrets that sign the gateway's webhooks, the newest first. To replace one, add the new one in front, tell the gateway, and take the old one away once no report is signed with it. The sandbox signs with the first. Unset: drawn at the start, for the sandbox beside the service. Secret. Allowed: 16 to 200 characters without spaces and commas; up to three, comma separated.",
  GATEWAY_WEBHOOK_URL:
    "The receiver of the webhooks of `paid-once gateway`. Unset: none are sent. Secret. Allowed: an `http://` or `https://` URL; user and password in it are sent as Basic credentials.",
  PAYMENT_RECOVER_DELAYS:
    "When a payment without an outcome is looked up: within some nine hours, inside the first half of the key's retention. Allowed: durations, comma separated.",
  IDEMPOTENCY_RETENTION_DAYS:
    "How long an Idempotency-Key is kept once its order or payment is final; 0 keeps all. Allowed: 0 … 36500.",
  SMTP_URL:
    "The mail server, with user and password where it requires them. Unset: files under `DATA_DIRECTORY/mail`. Secret. Allowed: `smtp://` or `smtps://`, host and port.",
  MAIL_FROM: "The sender of mail. `.example` is reserved (RFC 2606). Allowed: a mail address.",
  MAIL_CUSTOMER_HOST: "The host of the customers' addresses, which are made of their ids. Allowed: a host name.",
  OTEL_EXPORTER_OTLP_ENDPOINT:
    "The collector of traces, over OTLP. Unset: no traces, and no span for an event. Secret. Allowed: an `http://` or `https://` URL without a query; user and password in it are sent as Basic credentials.",
  OTEL_EXPORTER_OTLP_HEADERS:
    "Headers for the collector, for example an API key. Secret. Allowed: `name=value`, comma separated.",
  OTEL_SERVICE_NAME: "The name of the service in its traces. Allowed: 1 to 200 characters.",
  SHUTDOWN_GRACE_MILLIS:
    "How long requests, slices and tasks under way may take together to end after SIGTERM (platform/Grace.ts). Allowed: milliseconds.",
  SHUTDOWN_HARD_MILLIS:
    "After this the process exits, whatever is still open. The next start recovers. Allowed: milliseconds."
}
