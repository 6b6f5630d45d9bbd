/** Samples of what runs out around the process: the disk under its data, write-ahead log that nobody fetches, and certificates. */
import { Effect, Layer, Metric, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { X509Certificate } from "node:crypto"
import { statfs } from "node:fs/promises"
import * as Rows from "../platform/Rows.ts"
import * as Supervised from "../platform/Supervised.ts"

const freeGauge = Metric.gauge("data_directory_free_bytes", {
  description: "Free space of the disk under DATA_DIRECTORY, sampled"
})
const sizeGauge = Metric.gauge("data_directory_size_bytes", {
  description: "Size of the disk under DATA_DIRECTORY, sampled"
})
const walGauge = Metric.gauge("database_wal_retained_bytes", {
  description:
    "Write-ahead log that Postgres keeps for the replication slot that is furthest behind; 0 without slots, sampled"
})
const certificateGauge = Metric.gauge("tls_certificate_expiry_timestamp_seconds", {
  description:
    "When the first certificate of this configured file ends, in Unix seconds; none for a file that is not set"
})

/** A disk fills up in minutes at the fastest. */
const sampleMillis = 30_000

/** A configured file of certificates: what it is for, and its text in PEM. */
export interface CertificateFile {
  readonly use: string
  readonly pem: string
}

/** When the first of these certificates ends, in Unix seconds. */
export const firstEndSeconds = (pem: string): number =>
  Math.min(
    ...(pem.match(/-----BEGIN CERTIFICATE-----[^]*?-----END CERTIFICATE-----/g) ?? []).map(
      (one) => Date.parse(new X509Certificate(one).validTo) / 1_000
    )
  )

const retained = Rows.one(Schema.Struct({ bytes: Schema.Finite }))

/** Samples for as long as the layer lives. `certificates` is read again for each sample: a file may be renewed in its place. */
export const layer = (options: {
  readonly directory: string
  readonly certificates: Effect.Effect<ReadonlyArray<CertificateFile>>
}): Layer.Layer<never, never, SqlClient.SqlClient | Supervised.Fibers> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* Supervised.forkLoop(
        "machine metrics",
        Effect.gen(function* () {
          const { bavail, blocks, bsize } = yield* Effect.promise(() => statfs(options.directory))
          yield* Metric.update(freeGauge, bavail * bsize)
          yield* Metric.update(sizeGauge, blocks * bsize)
          for (const { pem, use } of yield* options.certificates) {
            yield* Metric.update(Metric.withAttributes(certificateGauge, { use }), firstEndSeconds(pem))
          }
          // Last: without a database the disk is still looked at. The size of pg_wal itself is for superusers and monitors only.
          const { bytes } = yield* retained(sql`
            SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0)::float8 AS bytes FROM pg_replication_slots`)
          yield* Metric.update(walGauge, bytes)
          yield* Effect.sleep(sampleMillis)
        })
      )
    })
  )
