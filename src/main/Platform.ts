/** The platform: ownership, wake-ups and supervision for processes that share a database, and their health and metrics. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Effect, Layer, Redacted, Result } from "effect"
import { readFileSync } from "node:fs"
import { hostname } from "node:os"
import type { AppConfig } from "../Config.ts"
import { HealthParts, Readiness } from "../http/Health.ts"
import * as MachineMetrics from "../operations/MachineMetrics.ts"
import * as PoolMetrics from "../operations/PoolMetrics.ts"
import { ControlConnection } from "../platform/ControlConnection.ts"
import { headersOf } from "../platform/HttpTarget.ts"
import { Ids } from "../platform/Ids.ts"
import { Ownership } from "../platform/Ownership.ts"
import { Fibers } from "../platform/Supervised.ts"
import * as Telemetry from "../platform/Telemetry.ts"
import { Wakeups } from "../platform/Wakeups.ts"
import * as Address from "../postgres/tls/Address.ts"
import { database } from "./Storage.ts"

/** The certificates of KAFKA_SSL_CA and KAFKA_SSL_CERT, and of sslrootcert and sslcert in DATABASE_URL. */
const certificates = (config: AppConfig): Effect.Effect<ReadonlyArray<MachineMetrics.CertificateFile>> =>
  Effect.sync(() => {
    const address = config.databaseUrl === undefined ? undefined : Address.parse(Redacted.value(config.databaseUrl))
    const tls = address !== undefined && Result.isSuccess(address) ? address.success.tls : undefined
    const text = (path: string | undefined) =>
      path === undefined || path === "system" ? undefined : readFileSync(path, "utf8")
    return Object.entries({
      kafka_ca: config.kafkaSslCa,
      kafka_client: config.kafkaSslCert,
      postgres_ca: text(tls?.rootCertificate),
      postgres_client: text(tls?.client?.certificate)
    }).flatMap(([use, pem]) => (pem === undefined ? [] : [{ use, pem }]))
  })

/** Ownership, wake-ups, the control connection and supervised fibers, over the database. */
export const platform = (config: AppConfig) =>
  Layer.mergeAll(Ownership.layer, HealthParts.layer, Readiness.layer).pipe(
    // Without this line nobody sees that the requests' pool runs dry.
    Layer.provideMerge(PoolMetrics.layer("requests")),
    // Without this line nobody sees that a disk fills up, or that a certificate ends.
    Layer.provideMerge(MachineMetrics.layer({ directory: config.dataDirectory, certificates: certificates(config) })),
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
        endpoint: config.otlpEndpoint.url,
        headers: { ...headersOf(config.otlpEndpoint), ...config.otlpHeaders },
        serviceName: config.otelServiceName,
        instance: `${process.pid}@${hostname()}`
      }).pipe(Layer.provide(NodeHttpClient.layerUndici))
