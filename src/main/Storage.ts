/** The database: where it is, its pool, and its schema. */
import { Effect, Layer } from "effect"
import * as Path from "node:path"
import type { AppConfig } from "../Config.ts"
import { DatabaseSettings } from "../platform/DatabaseSettings.ts"
import * as Database from "../postgres/Database.ts"
import * as EmbeddedPostgres from "../postgres/embedded/EmbeddedPostgres.ts"
import * as DeferredBegin from "../postgres/fast/DeferredBegin.ts"
import { Migrated, setOf } from "../postgres/Migrations.ts"

/** The checkout: migrations are read from it. */
export const root = Path.resolve(import.meta.dirname, "../..")

/** A Postgres server of its own on this directory, until the scope closes. Processes that name the same directory share one server. */
export const acquireEmbedded = (dataDirectory: string) => EmbeddedPostgres.acquire({ dataDirectory })

const embeddedDirectory = (config: AppConfig) => Path.join(config.dataDirectory, "postgres")

/** Deletes the embedded server's data. Refused while a living process uses it. */
export const resetEmbedded = (config: AppConfig) => EmbeddedPostgres.reset(embeddedDirectory(config))

/** The database of DATABASE_URL, or an embedded one. The last process to leave the embedded one stops it. */
const location = (config: AppConfig) =>
  config.databaseUrl !== undefined
    ? DatabaseSettings.layerOf({ url: config.databaseUrl })
    : Layer.unwrap(
        Effect.map(acquireEmbedded(embeddedDirectory(config)), ({ url }) => DatabaseSettings.layerOf({ url }))
      )

/** The pool, checked and migrated. */
export const database = (config: AppConfig) =>
  Migrated.layer([setOf(root, "mechanism"), setOf(root, "business")]).pipe(
    Layer.provide(Database.layerPatient),
    Layer.provideMerge(Database.layerChecked),
    // Sends BEGIN in one packet with the statement after it. Without this line each transaction takes one round trip more.
    Layer.provideMerge(Layer.succeed(Database.SocketSetup, DeferredBegin.install)),
    Layer.provideMerge(location(config))
  )
