/** Turns the variables of `Config.ts` into the layers' settings. Each layer has its own defaults, and none reads a variable. */
import { Effect, Layer, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import { WebhookSettings } from "./application/GatewayWebhook.ts"
import { dropExpired as dropExpiredKeys } from "./application/Idempotency.ts"
import * as EmbeddedBroker from "./brokers/embedded/EmbeddedBroker.ts"
import { commandSettings } from "./CommandSettings.ts"
import { type AppConfig, defaultPort } from "./Config.ts"
import { HostSettings, isLoopback } from "./http/access/AllowedHosts.ts"
import * as ApiKeys from "./http/access/ApiKeys.ts"
import { AccessSettings } from "./http/access/Credentials.ts"
import { AdmissionSettings } from "./http/Admission.ts"
import { ConsoleSettings } from "./http/Console.ts"
import { HttpSettings } from "./http/HttpServer.ts"
import { defaultRateLimit, RateLimitSettings } from "./http/access/RateLimits.ts"
import * as Consumer from "./inbox/Consumer.ts"
import * as Maintenance from "./operations/Maintenance.ts"
import { LaneWorkersSettings } from "./outbox/LaneWorkers.ts"

/** On this machine nobody is kept from a load test. */
const rateLimitOf = ({ host, rateLimit }: AppConfig) =>
  rateLimit === "off" ? undefined : (rateLimit ?? (isLoopback(host) ? undefined : defaultRateLimit))

/** The settings of all layers, and the logger. */
export const settings = (config: AppConfig) =>
  Layer.mergeAll(
    commandSettings(config),
    Layer.effect(
      LaneWorkersSettings,
      Effect.map(LaneWorkersSettings, (defaults) => ({
        ...defaults,
        pollMillis: config.outboxPollMillis
      }))
    ),
    Layer.succeed(Consumer.ConsumerSettings, { sliceSize: config.consumerSliceSize }),
    Layer.succeed(Maintenance.FurtherUpkeep, [
      EmbeddedBroker.upkeep,
      {
        table: "idempotency_keys",
        retentionDays: config.idempotencyRetentionDays,
        deleteExpired: dropExpiredKeys
      }
    ]),
    Layer.sync(WebhookSettings, () => ({
      // Only the sandbox of this process needs it.
      secrets:
        config.gatewayWebhookSecrets ??
        (config.gatewayUrl === undefined ? [Redacted.make(randomBytes(32).toString("hex"))] : [])
    })),
    Layer.succeed(ConsoleSettings, { demoControlUrl: config.demoControlUrl }),
    Layer.succeed(HostSettings, { host: config.host, publicHosts: config.publicHosts }),
    Layer.succeed(AccessSettings, {
      keys: config.apiKeys,
      adminToken: config.adminToken && ApiKeys.ofAdmin(Redacted.value(config.adminToken))
    }),
    Layer.succeed(RateLimitSettings, { rateLimit: rateLimitOf(config) }),
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
