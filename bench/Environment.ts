/**
 * The environment of a measurement: a real Postgres with its durability on, and a real Kafka.
 *
 * `DATABASE_URL` and `KAFKA_BROKERS` name running ones. Otherwise the embedded Postgres is started in a temporary directory, and Kafka as
 * the tests start it. The measured database is created for the run and dropped after it.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { DatabaseSettings } from "../src/platform/DatabaseSettings.ts"
import * as Database from "../src/postgres/Database.ts"
import * as EmbeddedPostgres from "../src/postgres/embedded/EmbeddedPostgres.ts"
import * as KafkaSource from "../test/support/KafkaSource.ts"
import { forPlainSockets, migrated, withDatabase } from "../test/support/Postgres.ts"

const postgresUrl = Effect.fnUntraced(function* (logical: boolean) {
  const given = process.env["DATABASE_URL"]
  if (given !== undefined && given !== "") return given
  // A production setting: durable, and with checkpoints so far apart that none falls into a block by chance.
  const settings = {
    max_wal_size: "4GB",
    shared_buffers: "256MB",
    // Only where a contender reads the write-ahead log: it costs all of them a little.
    ...(logical ? { wal_level: "logical" } : {})
  }
  return forPlainSockets((yield* EmbeddedPostgres.acquireTemporary(settings)).superuserUrl).href
})

/** The measured database and broker. */
export class Environment extends Context.Service<
  Environment,
  { readonly databaseUrl: Redacted.Redacted; readonly brokers: string }
>()("bench/Environment") {
  /** With a broker, or without one for blocks that need none. */
  static readonly layer = (options: { readonly kafka: boolean; readonly logical?: boolean }) =>
    Layer.effect(
      Environment,
      Effect.gen(function* () {
        const url = yield* postgresUrl(options.logical ?? false)
        const name = yield* migrated(url)
        const brokers = options.kafka ? (yield* KafkaSource.acquire).bootstrapServers : ""
        return { databaseUrl: Redacted.make(withDatabase(url, name)), brokers }
      })
    )
}

/** The pool of the service. */
export const pool = Layer.unwrap(
  Environment.useSync(({ databaseUrl }) =>
    Database.layer.pipe(Layer.provideMerge(DatabaseSettings.layerOf({ url: databaseUrl })))
  )
)

/** A connection beside the pool without a time limit, to fill tables and to check results. */
export class Side extends Context.Service<Side, SqlClient.SqlClient>()("bench/Side") {
  static readonly layer = Layer.effect(
    Side,
    Effect.flatMap(Environment, ({ databaseUrl }) =>
      Effect.map(Layer.build(PgClient.layer({ url: databaseUrl, maxConnections: 1 })), (context) =>
        Context.get(context, SqlClient.SqlClient)
      )
    )
  )
}
