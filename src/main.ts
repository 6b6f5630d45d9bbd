/**
 * The service as layers, a line for each room. `src/main/` composes the rooms, and alone knows which parts are embedded, fast or
 * Kafka's.
 */
import { Effect, Layer } from "effect"
import * as Banner from "./Banner.ts"
import type { AppConfig } from "./Config.ts"
import type { Role } from "./Roles.ts"
import * as Nightly from "./application/reconciliation/Nightly.ts"
import { Readiness } from "./http/Health.ts"
import * as HttpServer from "./http/HttpServer.ts"
import * as PausesHealth from "./http/PausesHealth.ts"
import * as RequestContext from "./http/RequestContext.ts"
import * as Lifecycle from "./Lifecycle.ts"
import { broker, topics } from "./main/Brokers.ts"
import * as Doctor from "./main/Doctor.ts"
import { consumers, inbox } from "./main/Inbox.ts"
import { admin } from "./main/Operator.ts"
import { dispatcher, outbox } from "./main/Outbox.ts"
import { platform, telemetry } from "./main/Platform.ts"
import * as Sandbox from "./main/Sandbox.ts"
import { database } from "./main/Storage.ts"
import { tasks, workers } from "./main/Tasks.ts"
import { useCases } from "./main/UseCases.ts"
import * as FollowedFaults from "./operations/faults/FollowedFaults.ts"
import * as Maintenance from "./operations/Maintenance.ts"
import * as Retention from "./platform/Retention.ts"
import * as OutageLog from "./operations/OutageLog.ts"
import * as Pauses from "./operations/pauses/Pauses.ts"
import * as PidFile from "./platform/PidFile.ts"
import { settings } from "./Settings.ts"

/**
 * The whole service, as far as `roles` go.
 *
 * From top to bottom the lines are the order of a clean stop; a start goes from bottom to top.
 */
export const service = (config: AppConfig, roles: ReadonlySet<Role>, output: { readonly json: boolean }) => {
  /** `layer` where this process has one of these roles. It is not built apart from the others: a part that two roles use exists once. */
  const where = <A, E, R>(some: ReadonlyArray<Role>, layer: Layer.Layer<A, E, R>): Layer.Layer<never, E, R> =>
    some.some((role) => roles.has(role)) ? layer : Layer.empty
  // One value, and so one instance, for all parts that use it.
  const cases = useCases(config)
  const http = Layer.provideMerge(Sandbox.webhooks, HttpServer.layer)
  // A process that takes no requests answers health and metrics, where PORT is set, from before its work begins until after it has ended.
  const watched = roles.has("http") || config.port === undefined ? Layer.empty : HttpServer.layerHealth

  return Layer.provideMerge(Lifecycle.stopping, Banner.layer({ config, roles, json: output.json })).pipe(
    Layer.provideMerge(
      roles.has("http")
        ? http.pipe(Layer.provide(Layer.merge(admin, Doctor.layer(config))), Layer.provideMerge(cases))
        : Readiness.layerWorking
    ),
    Layer.provideMerge(where(["consumers"], consumers)),
    Layer.provideMerge(where(["workers"], Layer.provide(workers(config), cases))),
    Layer.provideMerge(where(["dispatcher"], dispatcher)),
    Layer.provideMerge(where(["maintenance"], Maintenance.layer)),
    Layer.provideMerge(Maintenance.layerNoted),
    Layer.provideMerge(where(["maintenance"], Layer.provide(Nightly.layer, cases))),
    Layer.provideMerge(where(["http", "dispatcher", "consumers"], topics)),
    Layer.provideMerge(watched),
    Layer.provideMerge(PausesHealth.layer),
    Layer.provideMerge(Layer.mergeAll(outbox, inbox, tasks, broker(config), Pauses.layer, FollowedFaults.layer)),
    Layer.provideMerge(platform(config)),
    Layer.provideMerge(RequestContext.layer),
    Layer.provide(telemetry(config)),
    Layer.provide(OutageLog.layer),
    Layer.provide(Lifecycle.layer(config, roles)),
    Layer.provide(settings(config)),
    Layer.provide(PidFile.layer(config.dataDirectory))
  )
}

/** The sandbox gateway alone. GATEWAY_URL tells a service where its gateway is; in this process's shell it says nothing about the gateway's own books. */
export const gateway = (config: AppConfig) =>
  Sandbox.alone(config).pipe(
    Layer.provide(database({ ...config, gatewayUrl: undefined })),
    Layer.provide(settings(config))
  )

/** The migrated database alone. */
export const migrated = (config: AppConfig) => database(config).pipe(Layer.provide(settings(config)))

/**
 * One round of upkeep, and nothing else. It goes by what the service has noted. The variables of this process may be those of an operator's shell. Without
 * a note it deletes nothing.
 */
export const maintenance = (config: AppConfig, options: { readonly dryRun: boolean }) =>
  Effect.gen(function* () {
    const kept = yield* Retention.noted
    const daysOf = (table: string) => kept.get(table)?.days ?? 0
    const inForce: AppConfig = {
      ...config,
      outboxRetentionDays: daysOf("event_log"),
      inboxRetentionDays: daysOf("processed_events"),
      taskRetentionDays: daysOf("outbox_tasks"),
      idempotencyRetentionDays: daysOf("idempotency_keys")
    }
    const report = yield* Effect.provide(Maintenance.runOnce(options), settings(inForce))
    return { report, kept: [...kept.values()] }
  }).pipe(Effect.provide(migrated(config)))
