/** The settings that an operator's command needs, too, and the logger. A command imports this file, and so none of a service's servers and loops. */
import { Effect, Layer, Logger, References } from "effect"
import { IdempotencySettings } from "./application/Idempotency.ts"
import { MailSettings } from "./application/mail/MailTransport.ts"
import { RecoverySettings } from "./application/tasks/PaymentRecover.ts"
import type { AppConfig } from "./Config.ts"
import { HoldSettings as InboxHoldSettings } from "./inbox/holds/ParkedHolds.ts"
import { HoldSettings } from "./outbox/holds/Parking.ts"
import { OutboxSettings } from "./outbox/Outbox.ts"
import { QueueSettings } from "./outbox/Queue.ts"
import { ControlSettings } from "./platform/ControlConnection.ts"
import * as FaultInjection from "./platform/FaultInjection.ts"
import { GraceSettings } from "./platform/Grace.ts"
import { RetentionSettings } from "./platform/Retention.ts"
import * as Telemetry from "./platform/Telemetry.ts"
import { WakeupSettings } from "./platform/Wakeups.ts"
import { TaskSettings } from "./tasks/TaskSettings.ts"

/** The logger. Commands print to stdout, and the log goes to stderr. */
export const logging = (config: AppConfig) =>
  Layer.merge(
    Logger.layer([
      Logger.withConsoleError(Telemetry.withTraceId(config.logJson ? Logger.formatJson : Logger.formatLogFmt))
    ]),
    Layer.succeed(References.MinimumLogLevel, config.logLevel)
  )

/** The settings of the layers that commands use, and the logger. */
export const commandSettings = (config: AppConfig) =>
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
    Layer.succeed(InboxHoldSettings, {
      maxAttempts: config.inboxMaxAttempts,
      retryBaseMillis: config.inboxRetryBaseMillis
    }),
    Layer.succeed(RecoverySettings, { delaysMillis: config.paymentRecoverDelaysMillis }),
    Layer.succeed(IdempotencySettings, { retentionDays: config.idempotencyRetentionDays }),
    Layer.effect(
      MailSettings,
      Effect.map(MailSettings, (defaults) => ({
        ...defaults,
        from: config.mailFrom,
        customerHost: config.mailCustomerHost
      }))
    ),
    Layer.succeed(GraceSettings, { graceMillis: config.shutdownGraceMillis })
  )
