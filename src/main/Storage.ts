/** The database: where it is, its pool, and its schema. */
import { Effect, Layer, Redacted, type Scope } from "effect"
import * as Path from "node:path"
import type { AppConfig } from "../Config.ts"
import { DatabaseSettings } from "../platform/DatabaseSettings.ts"
import { Fibers } from "../platform/Supervised.ts"
import * as Database from "../postgres/Database.ts"
import * as EmbeddedPostgres from "../postgres/embedded/EmbeddedPostgres.ts"
import * as DeferredBegin from "../postgres/fast/DeferredBegin.ts"
import { isCurrent, type Migrated, type MigrationsError, setOf } from "../postgres/Migrations.ts"
import { DatabaseUnusable } from "../postgres/StartChecks.ts"
import * as Sockets from "../postgres/tls/Sockets.ts"
import * as Owner from "./Owner.ts"

/** The checkout: migrations are read from it. */
export const root = Path.resolve(import.meta.dirname, "../..")

/** A Postgres server with an empty database, until the scope closes: the URLs of the service's role, and of the database's owner. */
export const temporaryPostgres = EmbeddedPostgres.acquireTemporary()

export const embeddedDirectory = (config: Pick<AppConfig, "dataDirectory">) =>
  Path.join(config.dataDirectory, "postgres")

/** Deletes the embedded server's data. Refused while a living process uses it. */
export const resetEmbedded = (config: AppConfig) => EmbeddedPostgres.reset(embeddedDirectory(config))

/**
 * The URLs of DATABASE_URL and DATABASE_OWNER_URL, or of an embedded server, which is kept alive. The last process to leave the embedded
 * one stops it.
 */
const location = (
  config: AppConfig
): Effect.Effect<
  { readonly url: Redacted.Redacted; readonly ownerUrl?: Redacted.Redacted | undefined },
  EmbeddedPostgres.EmbeddedPostgresError,
  Fibers | Scope.Scope
> =>
  config.databaseUrl === undefined
    ? EmbeddedPostgres.acquireKept({ dataDirectory: embeddedDirectory(config) })
    : Effect.succeed({ url: config.databaseUrl, ownerUrl: config.databaseOwnerUrl })

/** How a pool of this process reaches the database at `url`. */
export const settingsOf = (url: Redacted.Redacted, options: { readonly maxConnections?: number } = {}) =>
  // Without these sockets the driver's own TLS is used, which knows sslmode alone.
  Layer.unwrap(Effect.map(Sockets.warning, (sockets) => DatabaseSettings.layerOf({ url, sockets, ...options })))

/** The migrations of the service. */
export const sets = [setOf(root, "mechanism"), setOf(root, "business")]

/** The pool, checked and migrated. */
export const database = (config: AppConfig) =>
  Layer.unwrap(
    Effect.map(location(config), ({ ownerUrl, url }) => {
      const schema: Layer.Layer<Migrated, MigrationsError | DatabaseUnusable, DatabaseSettings | Database.Pool> =
        ownerUrl === undefined
          ? Owner.migratedByService(sets, { warnsOfSuperuser: config.databaseUrl !== undefined })
          : Owner.migrated(ownerUrl, sets, { sandbox: config.gatewayUrl === undefined })
      return schema.pipe(
        Layer.provideMerge(Database.layerChecked),
        // Sends BEGIN in one packet with the statement after it. Without this line each transaction takes one round trip more.
        Layer.provideMerge(Layer.succeed(Database.SocketSetup, DeferredBegin.install)),
        Layer.provideMerge(settingsOf(url))
      )
    })
  ).pipe(Layer.provide(Fibers.layer))

/** Which database that is, for a person: without user and password. */
export const nameOf = ({ databaseUrl, ...config }: AppConfig): string => {
  if (databaseUrl === undefined) return `the embedded one in ${embeddedDirectory(config)}`
  const { host, pathname, searchParams } = new URL(Redacted.value(databaseUrl))
  return `${decodeURIComponent(pathname.slice(1))} at ${decodeURIComponent(host) || searchParams.get("host") || "localhost"}`
}

const checkSchema = Effect.gen(function* () {
  for (const set of sets) {
    if (yield* Effect.orDie(isCurrent(set))) continue
    const reason = "its schema is not that of this version: run paid-once migrate, if this is the service's database"
    return yield* new DatabaseUnusable({ reason })
  }
})

/**
 * The URL of the owner of a database that is there: DATABASE_OWNER_URL, or the embedded server's. Without an owner of its own the role of DATABASE_URL
 * has the tables.
 */
export const foundOwner = (config: AppConfig) =>
  config.databaseUrl === undefined
    ? Effect.map(
        EmbeddedPostgres.acquire({ dataDirectory: embeddedDirectory(config), mustExist: true }),
        (server): Redacted.Redacted => server.ownerUrl
      )
    : Effect.succeed(config.databaseOwnerUrl ?? config.databaseUrl)

/** How a database that is there is reached. An embedded server is started where it does not run, and none is made. */
export const foundSettings = ({ databaseUrl, ...config }: AppConfig) =>
  Layer.unwrap(
    Effect.map(
      databaseUrl === undefined
        ? Effect.map(
            EmbeddedPostgres.acquire({ dataDirectory: embeddedDirectory(config), mustExist: true }),
            (server): Redacted.Redacted => server.url
          )
        : Effect.succeed(databaseUrl),
      (url) => settingsOf(url)
    )
  )

/** The pool of a database that is there, with the schema of this version. It makes and migrates nothing: an operator looks at what is. */
export const foundDatabase = (config: AppConfig) =>
  Layer.effectDiscard(checkSchema).pipe(
    Layer.provideMerge(Database.layerChecked),
    Layer.provideMerge(Layer.succeed(Database.SocketSetup, DeferredBegin.install)),
    Layer.provideMerge(foundSettings(config))
  )
