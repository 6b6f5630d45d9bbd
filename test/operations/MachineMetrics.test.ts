/** What is told of the disk, of write-ahead log that a replication slot holds back, and of certificates. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Metric } from "effect"
import { PrometheusMetrics } from "effect/observability"
import { SqlClient } from "effect/sql"
import { statfs } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as MachineMetrics from "../../src/operations/MachineMetrics.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import * as Database from "../../src/postgres/Database.ts"
import * as Certificates from "../support/Certificates.ts"
import { eventually } from "../support/Counters.ts"
import * as OwnPostgres from "../support/OwnPostgres.ts"
import { seriesOf, written } from "../support/Scrape.ts"

/** The first sample of a new process, by series. */
const sample = (pem: string) =>
  Effect.gen(function* () {
    const registry: Metric.MetricRegistry = new Map()
    yield* Layer.build(
      Layer.fresh(
        MachineMetrics.layer({ directory: tmpdir(), certificates: Effect.succeed([{ use: "kafka_ca", pem }]) })
      )
    ).pipe(Effect.provideService(Metric.MetricRegistry, registry))
    const read = Effect.map(
      Effect.provideService(PrometheusMetrics.format(), Metric.MetricRegistry, registry),
      (text) => new Map(seriesOf(text).map((series) => [written(series), series.value]))
    )
    yield* eventually(
      "the sample",
      Effect.map(read, (found) => found.has("database_wal_retained_bytes"))
    )
    return yield* read
  }).pipe(Effect.scoped)

it.live("free disk, the slot that is furthest behind, and the certificate that ends first are told", () =>
  Effect.gen(function* () {
    const { url } = yield* OwnPostgres.acquire({ settings: { wal_level: "replica", max_wal_senders: "1" } })
    const authority = yield* Certificates.authority("Paid Once test")
    const long = yield* Effect.promise(() => authority.sign("long.example", { days: 30 }))
    const short = yield* Effect.promise(() => authority.sign("short.example", { days: 1 }))
    const pem = `${long.text.certificate}${short.text.certificate}`
    yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const before = yield* sample(pem)
      assert.strictEqual(before.get("database_wal_retained_bytes"), 0)
      const { bavail, blocks, bsize } = yield* Effect.promise(() => statfs(tmpdir()))
      assert.strictEqual(before.get("data_directory_size_bytes"), blocks * bsize)
      // Others write to this disk meanwhile: the figure is of its order.
      assert.isAbove(before.get("data_directory_free_bytes")!, (bavail * bsize) / 2)
      assert.isBelow(before.get("data_directory_free_bytes")!, bavail * bsize * 2)
      const days =
        (before.get(`tls_certificate_expiry_timestamp_seconds{use="kafka_ca"}`)! - Date.now() / 1_000) / 86_400
      assert.isTrue(days > 0.9 && days < 1.1, `${days} days`)

      yield* sql`SELECT 1 AS one FROM pg_create_physical_replication_slot('abandoned', true)`
      yield* sql`CREATE TABLE filler AS SELECT repeat('x', 1000) AS text FROM generate_series(1, 2000)`
      assert.isAbove((yield* sample(pem)).get("database_wal_retained_bytes")!, 1_000_000)
    }).pipe(
      Effect.provide(
        Database.layer.pipe(Layer.provideMerge(DatabaseSettings.layerOf({ url })), Layer.provideMerge(Fibers.layer))
      )
    )
  }).pipe(Effect.scoped)
)
