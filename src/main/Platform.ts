/** The platform: ownership, wake-ups and supervision for processes that share a database, and their health and metrics. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Layer } from "effect"
import type { AppConfig } from "../Config.ts"
import { HealthParts, Readiness } from "../http/Health.ts"
import * as PoolMetrics from "../operations/PoolMetrics.ts"
import { ControlConnection } from "../platform/ControlConnection.ts"
import { Ids } from "../platform/Ids.ts"
import { Ownership } from "../platform/Ownership.ts"
import { Fibers } from "../platform/Supervised.ts"
import * as Telemetry from "../platform/Telemetry.ts"
import { Wakeups } from "../platform/Wakeups.ts"
import { database } from "./Storage.ts"

/** Ownership, wake-ups, the control connection and supervised fibers, over the database. */
export const platform = (config: AppConfig) =>
  Layer.mergeAll(Ownership.layer, HealthParts.layer, Readiness.layer).pipe(
    // Without this line nobody sees that the requests' pool runs dry.
    Layer.provideMerge(PoolMetrics.layer("requests")),
    Layer.provideMerge(Wakeups.layer),
    Layer.provideMerge(ControlConnection.layer),
    Layer.provideMerge(Layer.merge(Fibers.layer, Ids.layer)),
    Layer.provideMerge(database(config))
  )

/** Traces, where OTEL_EXPORTER_OTLP_ENDPOINT names a collector. */
export const telemetry = (config: AppConfig) =>
  config.otlpEndpoint === undefined
    ? Layer.empty
    : Telemetry.layerOtlp({
        endpoint: config.otlpEndpoint,
        headers: config.otlpHeaders,
        serviceName: config.otelServiceName
      }).pipe(Layer.provide(NodeHttpClient.layerUndici))
