/** Turns the variables of `Config.ts` into the layers' settings. Each layer has its own defaults, and none reads a variable. */
import { Effect, Layer, Logger, Redacted, References } from "effect"
import { randomBytes } from "node:crypto"
import { WebhookSettings } from "./application/GatewayWebhook.ts"
import { dropExpired as dropExpiredKeys, IdempotencySettings } from "./application/Idempotency.ts"
import { MailSettings } from "./application/mail/MailTransport.ts"
import { RecoverySettings } from "./application/tasks/PaymentRecover.ts"
import * as EmbeddedBroker from "./brokers/embedded/EmbeddedBroker.ts"
import { type AppConfig, defaultPort } from "./Config.ts"
import { HostSettings, isLoopback } from "./http/access/AllowedHosts.ts"
import * as ApiKeys from "./http/access/ApiKeys.ts"
import { AccessSettings } from "./http/access/Credentials.ts"
import { AdmissionSettings } from "./http/Admission.ts"
import { ConsoleSettings } from "./http/Console.ts"
import { HttpSettings } from "./http/HttpServer.ts"
import { defaultRateLimit, RateLimitSettings } from "./http/access/RateLimits.ts"
import * as Consumer from "./inbox/Consumer.ts"
import { HoldSettings as InboxHoldSettings } from "./inbox/holds/ParkedHolds.ts"
import * as Maintenance from "./operations/Maintenance.ts"
import { HoldSettings } from "./outbox/holds/Parking.ts"
import { LaneWorkersSettings } from "./outbox/LaneWorkers.ts"
import { OutboxSettings } from "./outbox/Outbox.ts"
import { QueueSettings } from "./outbox/Queue.ts"
import { ControlSettings } from "./platform/ControlConnection.ts"
import * as FaultInjection from "./platform/FaultInjection.ts"
import { GraceSettings } from "./platform/Grace.ts"
import { RetentionSettings } from "./platform/Retention.ts"
import * as Telemetry from "./platform/Telemetry.ts"
import { WakeupSettings } from "./platform/Wakeups.ts"
import { TaskSettings } from "./tasks/TaskSettings.ts"

/** On this machine nobody is kept from a load test. */
const rateLimitOf = ({ host, rateLimit }: AppConfig) =>
  rateLimit === "off" ? undefined : (rateLimit ?? (isLoopback(host) ? undefined : defaultRateLimit))
/** The logger. Commands print to stdout, and the log goes to stderr. */
export const logging = (config: AppConfig) =>
  Layer.merge(
    Logger.layer([
      Logger.withConsoleError(Telemetry.withTraceId(config.logJson ? Logger.formatJson : Logger.formatLogFmt))
    ]),
    Layer.succeed(References.MinimumLogLevel, config.logLevel)
  )

/** The settings of all layers, and the logger. */
export const settings = (config: AppConfig) =>
  Layer.mergeAll(
    config.faults === undefined ? Layer.empty : FaultInjection.layer(config.faults),
    logging(config),
    Layer.succeed(ControlSettings, {
      sessionTimeoutMillis: config.outboxSessionTimeoutMillis,
      // Five heartbeats in a timeout: a late one must not cost the lanes.
      heartbeatMillis: config.outboxSessionTimeoutMillis / 5
    }),
    Layer.succeed(WakeupSettings, { crossProcess: config.outboxNotify }),
    Layer.succeed(RetentionSettings, {
      outboxDays: config.outboxRetentionDays,
      inboxDays: config.inboxRetentionDays,
      taskDays: config.taskRetentionDays
    }),
    Layer.succeed(TaskSettings, {
      leaseMillis: config.taskLeaseMillis,
      heartbeatMillis: config.taskHeartbeatMillis,
      retryDelaysMillis: config.taskRetryDelays,
      pollMillis: config.outboxPollMillis,
      graceMillis: config.shutdownGraceMillis
    }),
    Layer.succeed(OutboxSettings, { maxEventBytes: config.outboxMaxEventBytes }),
    Layer.succeed(QueueSettings, {
      batchSize: config.outboxBatchSize,
      batchBytes: config.outboxBatchBytes,
      archive: config.outboxArchive
    }),
    Layer.effect(
      HoldSettings,
      Effect.map(HoldSettings, (defaults) => ({
        ...defaults,
        maxAttempts: config.outboxMaxAttempts,
        retryBaseMillis: config.outboxRetryBaseMillis
      }))
    ),
    Layer.effect(
      LaneWorkersSettings,
      Effect.map(LaneWorkersSettings, (defaults) => ({
        ...defaults,
        pollMillis: config.outboxPollMillis
      }))
    ),
    Layer.succeed(Consumer.ConsumerSettings, { sliceSize: config.consumerSliceSize }),
    Layer.succeed(InboxHoldSettings, {
      maxAttempts: config.inboxMaxAttempts,
      retryBaseMillis: config.inboxRetryBaseMillis
    }),
    Layer.succeed(RecoverySettings, { delaysMillis: config.paymentRecoverDelaysMillis }),
    Layer.succeed(Maintenance.FurtherUpkeep, [
      EmbeddedBroker.upkeep,
      { table: "idempotency_keys", deleteExpired: dropExpiredKeys }
    ]),
    Layer.succeed(IdempotencySettings, { retentionDays: config.idempotencyRetentionDays }),
    Layer.sync(WebhookSettings, () => ({
      // Only the sandbox of this process needs it.
      secrets:
        config.gatewayWebhookSecrets ??
        (config.gatewayUrl === undefined ? [Redacted.make(randomBytes(32).toString("hex"))] : [])
    })),
    Layer.effect(
      MailSettings,
      Effect.map(MailSettings, (defaults) => ({
        ...defaults,
        from: config.mailFrom,
        customerHost: config.mailCustomerHost
      }))
    ),
    Layer.succeed(ConsoleSettings, { demoControlUrl: config.demoControlUrl }),
    Layer.succeed(HostSettings, { host: config.host, publicHosts: config.publicHosts }),
    Layer.succeed(AccessSettings, {
      keys: config.apiKeys,
      adminToken: config.adminToken && ApiKeys.ofAdmin(Redacted.value(config.adminToken))
    }),
    Layer.succeed(RateLimitSettings, { rateLimit: rateLimitOf(config) }),
    Layer.succeed(GraceSettings, { graceMillis: config.shutdownGraceMillis }),
    Layer.effect(
      AdmissionSettings,
      Effect.map(AdmissionSettings, (defaults) => ({ ...defaults, maxRequests: config.httpMaxRequests }))
    ),
    Layer.succeed(HttpSettings, {
      host: config.host,
      port: config.port ?? defaultPort,
      graceMillis: config.shutdownGraceMillis
    })
  )
