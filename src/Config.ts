/**
 * Every environment variable: its name, its default, what is allowed, and why the default is what it is.
 *
 * All wrong values are reported at once, each in one line that names the variable, the value and what is allowed.
 */
import { Config, Effect, Redacted, Result, Schema } from "effect"
import * as Path from "node:path"
import { EmailAddress } from "./application/mail/MailTransport.ts"
import {
  adminToken,
  brokers,
  duration,
  durations,
  faults,
  headers,
  httpAddress,
  httpBase,
  integer,
  mailAddress,
  mailHost,
  millis,
  onOff,
  ownPort,
  oneOf,
  postgresUrl,
  publicHosts,
  rateLimit,
  secrets,
  smtpUrl,
  text,
  variable,
  type Parsed
} from "./Variable.ts"
import { type Authority, isLoopback } from "./http/access/AllowedHosts.ts"
import * as ApiKeys from "./http/access/ApiKeys.ts"
import type { Setting } from "./http/admin/SettingsInForce.ts"
import type { ApiKey } from "./http/access/ApiKeys.ts"
import type { RateLimit } from "./http/access/RateLimits.ts"
import type { Mechanism } from "./brokers/kafkajs/KafkaAccess.ts"
import { variableDescriptions } from "./VariableDescriptions.ts"
import * as KafkaVariables from "./KafkaVariables.ts"
import { certificateFile, keyFile } from "./KafkaVariables.ts"
import * as Backoff from "./platform/Backoff.ts"
import type { HttpTarget } from "./platform/HttpTarget.ts"

/** The start is refused: one line for each wrong variable. */
export class InvalidConfig extends Schema.TaggedError<InvalidConfig>()("InvalidConfig", {
  problems: Schema.Array(Schema.String)
}) {
  override get message() {
    return this.problems.join("\n")
  }
}

/** The checkout. */
const root = Path.resolve(import.meta.dirname, "..")

/** The default port of a process with the role `http`. */
export const defaultPort = 3_000

const variables = {
  /** The directory of the embedded Postgres and the process's id file. */
  dataDirectory: variable("DATA_DIRECTORY", (value) => Result.succeed(Path.resolve(value)), Path.join(root, ".data")),
  /** Postgres 15 or newer. Unset: an embedded Postgres under `.data/`. */
  databaseUrl: variable<Redacted.Redacted | undefined>("DATABASE_URL", postgresUrl, undefined, { secret: true }),
  /**
   * The role that owns the schema. It migrates, and grants to the role of `DATABASE_URL` what the service needs. Unset: the role of
   * `DATABASE_URL` does both.
   */
  databaseOwnerUrl: variable<Redacted.Redacted | undefined>("DATABASE_OWNER_URL", postgresUrl, undefined, {
    secret: true
  }),
  /** Apache Kafka 4.x. Unset: the embedded broker in Postgres. */
  kafkaBrokers: variable<ReadonlyArray<string> | undefined>("KAFKA_BROKERS", brokers, undefined),
  /** The prefix of topic and group names: several installations can share a cluster. */
  kafkaPrefix: variable(
    "KAFKA_PREFIX",
    text(/^[A-Za-z0-9._-]{1,100}$/, "1 to 100 letters, digits, dots, dashes or underscores"),
    ""
  ),
  /** Whether topics that are missing are made at the start, with eight partitions. */
  kafkaCreateTopics: variable("KAFKA_CREATE_TOPICS", onOff, true),
  /** Copies of each partition of a topic that is made at the start. */
  kafkaReplication: variable("KAFKA_REPLICATION", integer(1, 32), 1),
  /** Encrypts all connections to Kafka, and checks the brokers' certificates and names. */
  kafkaSsl: variable("KAFKA_SSL", onOff, false),
  /** The authorities that may vouch for a broker. Unset: those that Node trusts. */
  kafkaSslCa: variable<string | undefined>("KAFKA_SSL_CA", certificateFile, undefined),
  /** The certificate of this service, where the brokers demand one, with its chain. */
  kafkaSslCert: variable<string | undefined>("KAFKA_SSL_CERT", certificateFile, undefined),
  /** The key of `KAFKA_SSL_CERT`, without a passphrase. */
  kafkaSslKey: variable<Redacted.Redacted | undefined>("KAFKA_SSL_KEY", keyFile, undefined),
  /** How the user of the service is proved. Unset: no user, or the one of `KAFKA_SSL_CERT`. */
  kafkaSaslMechanism: variable<Mechanism | undefined>(
    "KAFKA_SASL_MECHANISM",
    oneOf("plain", "scram-sha-256", "scram-sha-512"),
    undefined
  ),
  /** The user of the service at the brokers. */
  kafkaSaslUsername: variable<string | undefined>(
    "KAFKA_SASL_USERNAME",
    text(/^[^\p{Cc}]{1,200}$/u, "1 to 200 printable characters"),
    undefined
  ),
  /** The password of `KAFKA_SASL_USERNAME`. */
  kafkaSaslPassword: variable<Redacted.Redacted | undefined>(
    "KAFKA_SASL_PASSWORD",
    (value) => Result.map(text(/^[^\p{Cc}]{1,1000}$/u, "1 to 1,000 printable characters")(value), Redacted.make),
    undefined,
    { secret: true }
  ),
  /** The default admits this machine only. Any other host needs API_KEYS. */
  host: variable("HOST", text(/^[A-Za-z0-9.:_-]{1,253}$/, "a host name or an address"), "127.0.0.1"),
  /**
   * The programs that may call, what they may do (`customer`, `viewer` or `operator`), and a hash of each one's key. Unset: everybody may do everything,
   * on this machine.
   */
  apiKeys: variable<ReadonlyArray<ApiKey> | undefined>("API_KEYS", ApiKeys.parse, undefined, { secret: true }),
  /**
   * The token of the operators, for the console and everything under `/admin`; `openssl rand -base64 24` draws one. API keys of scope
   * `operator` or `viewer` work there, too. Unset, and without a key of scope `operator`: a start on loopback prints a link that signs in once.
   */
  adminToken: variable<Redacted.Redacted | undefined>("ADMIN_TOKEN", adminToken, undefined, { secret: true }),
  /** The hosts that clients call the service by, besides loopback's names, HOST and its address. One without a port stands for all ports. */
  publicHosts: variable<ReadonlyArray<Authority>>("PUBLIC_HOSTS", publicHosts, []),
  /**
   * The requests of each API key, and of each address that sends no valid one. Unset: `off` on loopback, else 600/1m: two to three times
   * the requests of a shop with a hundred thousand orders a day.
   */
  rateLimit: variable<RateLimit | "off" | undefined>("RATE_LIMIT", rateLimit, undefined),
  /**
   * 0 picks a free one. Unset: 3000 with the role `http`, and none without it, so that several processes on a machine do not collide.
   */
  port: variable<number | undefined>("PORT", integer(0, 65_535), undefined),
  /**
   * Requests in work at once. Above it others are refused with 503. With API_KEYS a caller gets no more than it leaves free, and else 429. A
   * request takes up to some megabytes while it is in work.
   */
  httpMaxRequests: variable("HTTP_MAX_REQUESTS", integer(1, 100_000), 256),
  /** Lets faults be armed at named points while the service runs; a list arms them from the start. For tests and drills. */
  faults: variable("FAULTS", faults, undefined),
  /** Set by `demo --stay`: the page Break it asks there for processes to be frozen, killed and started. */
  demoControlUrl: variable<string | undefined>("DEMO_CONTROL_URL", ownPort, undefined),
  /** Less severe lines are not written. */
  logLevel: variable("LOG_LEVEL", oneOf("Trace", "Debug", "Info", "Warn", "Error", "Fatal", "None"), "Info"),
  /** Each line of the log as JSON. */
  logJson: variable("LOG_JSON", onOff, false),
  /** Large enough that the round trip is small beside the batch. */
  outboxBatchSize: variable("OUTBOX_BATCH_SIZE", integer(1, 10_000), 1_000),
  /** Below Kafka's default limit of 1,048,588 bytes for a batch. */
  outboxBatchBytes: variable("OUTBOX_BATCH_BYTES", integer(1_000, 100_000_000), 900_000),
  /** A larger event is refused when it is written, before its transaction commits. */
  outboxMaxEventBytes: variable("OUTBOX_MAX_EVENT_BYTES", integer(1_000, 100_000_000), 900_000),
  /** Finds events whose wake-up was lost. */
  outboxPollMillis: variable("OUTBOX_POLL_MILLIS", integer(10, 600_000), 1_000),
  /** Whether a commit wakes the dispatchers of other processes. Without it they find the event at their next poll. */
  outboxNotify: variable("OUTBOX_NOTIFY", onOff, true),
  /** Far above a healthy ack, and shorter than the session timeout: a stuck send ends before its lane moves. */
  outboxSendTimeoutMillis: variable("OUTBOX_SEND_TIMEOUT_MILLIS", millis, 3_000),
  /** How long a frozen process keeps its lanes. */
  outboxSessionTimeoutMillis: variable("OUTBOX_SESSION_TIMEOUT_MILLIS", integer(1_000, 600_000), 5_000),
  /** Whether published events are kept, for timelines, the search and replay. */
  outboxArchive: variable("OUTBOX_ARCHIVE", onOff, true),
  /** Attempts of an event that the broker refuses, the first included. They take about half an hour at most: time to correct a limit. */
  outboxMaxAttempts: variable("OUTBOX_MAX_ATTEMPTS", integer(1, 100), 10),
  /** After attempt n, n from 1, the next one waits random(0, base · 2ⁿ). */
  outboxRetryBaseMillis: variable("OUTBOX_RETRY_BASE_MILLIS", millis, Backoff.outboxHoldBaseMillis),
  /** Attempts of an event whose handler fails, the first included. They take about three and a half minutes at most: time for a dependency to recover. */
  inboxMaxAttempts: variable("INBOX_MAX_ATTEMPTS", integer(1, 100), 10),
  /** After failure n, n from 1, the next attempt waits random(0, base · 2ⁿ). */
  inboxRetryBaseMillis: variable("INBOX_RETRY_BASE_MILLIS", millis, Backoff.inboxHoldBaseMillis),
  /** Records of a partition that a consumer is given at once, at most. */
  consumerSliceSize: variable("CONSUMER_SLICE_SIZE", integer(1, 10_000), 200),
  /** How long a consumer that is frozen keeps its partitions. */
  consumerSessionTimeoutMillis: variable("CONSUMER_SESSION_TIMEOUT_MILLIS", integer(1_000, 600_000), 10_000),
  /** How long published events are kept for timelines and replay; 0 keeps them. */
  outboxRetentionDays: variable("OUTBOX_RETENTION_DAYS", integer(0, 36_500), 3),
  /** How long an event is recognised as a duplicate. A topic with seven days' retention and daily segments keeps a record for up to eight. */
  inboxRetentionDays: variable("INBOX_RETENTION_DAYS", integer(0, 36_500), 8),
  /** A task whose worker has sent no heartbeat for this long is run again by another worker. */
  taskLeaseMillis: variable("TASK_LEASE_MILLIS", integer(100, 86_400_000), 60_000),
  /** How often a worker renews its leases: several times in a lease, as a renewal may be late. */
  taskHeartbeatMillis: variable("TASK_HEARTBEAT_MILLIS", integer(10, 86_400_000), 10_000),
  /** The waits between the runs of a failing task, which has one run more than waits: over two days in all. */
  taskRetryDelays: variable("TASK_RETRY_DELAYS", durations, Backoff.taskDelaysMillis),
  /** How long completed and cancelled tasks are kept, with their idempotency keys; 0 keeps them. */
  taskRetentionDays: variable("TASK_RETENTION_DAYS", integer(0, 36_500), 30),
  /** Unset: a sandbox gateway beside the service. */
  gatewayUrl: variable<HttpTarget | undefined>("GATEWAY_URL", httpBase, undefined, { secret: true }),
  /** The port of `paid-once gateway`. */
  gatewayPort: variable("GATEWAY_PORT", integer(0, 65_535), 3_001),
  /** After it an answer of the gateway counts as unknown, and is looked up. */
  gatewayTimeoutMillis: variable("GATEWAY_TIMEOUT_MILLIS", millis, 5_000),
  /** How long the gateway remembers a key. The service repeats a request in the first half of it only; the sandbox forgets keys after it. */
  gatewayKeyRetentionMillis: variable("GATEWAY_KEY_RETENTION", duration, 86_400_000),
  /**
   * The secrets that sign the gateway's webhooks, the newest first. To replace one, add the new one in front, tell the gateway, and take the old
   * one away once no report is signed with it. The sandbox signs with the first. Unset: drawn at the start, for the sandbox beside the service.
   */
  gatewayWebhookSecrets: variable<ReadonlyArray<Redacted.Redacted> | undefined>(
    "GATEWAY_WEBHOOK_SECRET",
    secrets,
    undefined,
    { secret: true }
  ),
  /** The receiver of the webhooks of `paid-once gateway`. Unset: none are sent. */
  gatewayWebhookUrl: variable<HttpTarget | undefined>("GATEWAY_WEBHOOK_URL", httpAddress, undefined, { secret: true }),
  /** When a payment without an outcome is looked up: within some nine hours, inside the first half of the key's retention. */
  paymentRecoverDelaysMillis: variable("PAYMENT_RECOVER_DELAYS", durations, Backoff.paymentRecoverDelaysMillis),
  /** How long an Idempotency-Key is kept once its order or payment is final; 0 keeps all. */
  idempotencyRetentionDays: variable("IDEMPOTENCY_RETENTION_DAYS", integer(0, 36_500), 7),
  /** The mail server, with user and password where it requires them. Unset: files under `DATA_DIRECTORY/mail`. */
  smtpUrl: variable<Redacted.Redacted | undefined>("SMTP_URL", smtpUrl, undefined, { secret: true }),
  /** The sender of mail. `.example` is reserved (RFC 2606). */
  mailFrom: variable("MAIL_FROM", mailAddress, EmailAddress.make("shop@paid-once.example")),
  /** The host of the customers' addresses, which are made of their ids. */
  mailCustomerHost: variable("MAIL_CUSTOMER_HOST", mailHost, "customers.example"),
  /** The collector of traces, over OTLP. Unset: no traces, and no span for an event. */
  otlpEndpoint: variable<HttpTarget | undefined>("OTEL_EXPORTER_OTLP_ENDPOINT", httpBase, undefined, { secret: true }),
  /** Headers for the collector, for example an API key. */
  otlpHeaders: variable<Readonly<Record<string, string>>>("OTEL_EXPORTER_OTLP_HEADERS", headers, {}, { secret: true }),
  /** The name of the service in its traces. */
  otelServiceName: variable("OTEL_SERVICE_NAME", text(/^.{1,200}$/, "1 to 200 characters"), "paid-once"),
  /** How long requests, slices and tasks under way may take together to end after SIGTERM (platform/Grace.ts). */
  shutdownGraceMillis: variable("SHUTDOWN_GRACE_MILLIS", millis, 10_000),
  /** After this the process exits, whatever is still open. The next start recovers. */
  shutdownHardMillis: variable("SHUTDOWN_HARD_MILLIS", millis, 30_000)
}

/** The name of every variable. */
export const variableNames: ReadonlyArray<string> = Object.values(variables).map(({ variableName }) => variableName)

/** The settings that the environment gives, without secrets. */
export const inForce: Effect.Effect<ReadonlyArray<Setting>> = Effect.orDie(
  Effect.forEach(Object.values(variables), ({ setting, variableName }) =>
    Effect.map(setting, (found) => ({ ...found, description: variableDescriptions[variableName] ?? "" }))
  )
)

/** The configuration, decoded. */
export type AppConfig = {
  readonly [Key in keyof typeof variables]: (typeof variables)[Key] extends Config.Config<Parsed<infer A>> ? A : never
}

/**
 * How many times the gateway's timeout its keys' retention has to be. A request leaves in the first half of the retention, and must arrive
 * well inside the second: ten timeouts leave four for a request that is slow, and for clocks that differ.
 */
const timeoutsInRetention = 10

/** Constraints between variables. */
const crossChecks = (config: AppConfig): ReadonlyArray<string> => [
  ...(!isLoopback(config.host) && config.apiKeys === undefined
    ? [
        `API_KEYS must be set where HOST is ${config.host}, which other machines can reach: ` +
          "`npm run -s paid-once -- api-key NAME --scope operator` draws a key and prints its entry"
      ]
    : []),
  ...KafkaVariables.conflicts(config),
  ...(config.outboxSendTimeoutMillis >= config.outboxSessionTimeoutMillis
    ? [
        "OUTBOX_SEND_TIMEOUT_MILLIS must be below OUTBOX_SESSION_TIMEOUT_MILLIS: a stuck send has to end before its lane moves"
      ]
    : []),
  ...(config.databaseOwnerUrl !== undefined && config.databaseUrl === undefined
    ? ["DATABASE_URL must be set where DATABASE_OWNER_URL is: the embedded Postgres has its own roles"]
    : []),
  ...(config.gatewayWebhookUrl !== undefined && config.gatewayWebhookSecrets === undefined
    ? ["GATEWAY_WEBHOOK_SECRET must be set where GATEWAY_WEBHOOK_URL is: nobody believes a webhook that is not signed"]
    : []),
  ...(config.gatewayTimeoutMillis * timeoutsInRetention > config.gatewayKeyRetentionMillis
    ? [
        "GATEWAY_TIMEOUT_MILLIS must be at most a tenth of GATEWAY_KEY_RETENTION: a request that is slow to arrive must not find its key forgotten"
      ]
    : []),
  ...(config.taskHeartbeatMillis * 3 > config.taskLeaseMillis
    ? [
        "TASK_HEARTBEAT_MILLIS must be at most a third of TASK_LEASE_MILLIS: a task keeps its worker when a heartbeat or two are late"
      ]
    : []),
  ...(config.shutdownGraceMillis > config.shutdownHardMillis
    ? ["SHUTDOWN_GRACE_MILLIS must not be above SHUTDOWN_HARD_MILLIS"]
    : [])
]

/** Reads and checks all variables; fails with every problem at once. */
export const load: Effect.Effect<AppConfig, InvalidConfig> = Effect.gen(function* () {
  const results = yield* Effect.orDie(Config.all(variables))
  const problems = Object.values<Parsed<unknown>>(results).flatMap((result) =>
    Result.isFailure(result) ? [result.failure] : []
  )
  if (problems.length > 0) return yield* new InvalidConfig({ problems })
  const config = Object.fromEntries(
    Object.entries<Parsed<unknown>>(results).map(([key, result]) => [key, Result.getOrThrow(result)])
  ) as AppConfig
  const conflicts = crossChecks(config)
  return conflicts.length > 0 ? yield* new InvalidConfig({ problems: conflicts }) : config
})
