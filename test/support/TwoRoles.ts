/** A database with the two roles of docs/hardening.md, made by a superuser as it is written there. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import * as Config from "../../src/Config.ts"
import { ConfigProvider } from "effect"
import { TestDatabase } from "./TestDatabase.ts"

/** An empty database, the owner's URL, and the service's. The roles go with the scope. */
export const make = Effect.gen(function* () {
  const suffix = randomBytes(4).toString("hex")
  const owner = `owner_${suffix}`
  const service = `service_${suffix}`
  yield* Effect.acquireRelease(
    TestDatabase.administer(
      ...[owner, service].map(
        (role) => `CREATE ROLE ${role} LOGIN PASSWORD '${suffix}' NOSUPERUSER NOCREATEDB NOCREATEROLE`
      )
    ),
    // The database, which holds their rights, is gone by then.
    () => TestDatabase.administer(`DROP ROLE ${owner}`, `DROP ROLE ${service}`)
  )
  const { name, url } = yield* TestDatabase.make("template0")
  yield* TestDatabase.administer(
    `ALTER DATABASE ${name} OWNER TO ${owner}`,
    `REVOKE TEMPORARY ON DATABASE ${name} FROM PUBLIC`
  )
  const as = (role: string) => {
    const own = new URL(Redacted.value(url))
    own.username = role
    own.password = suffix
    return Redacted.make(own.toString())
  }
  return { owner, service, adminUrl: url, ownerUrl: as(owner), serviceUrl: as(service) }
})

/** Runs `effect` on a connection of its own at this URL. */
export const on =
  (url: Redacted.Redacted) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.provide(effect, Layer.fresh(PgClient.layer({ url, maxConnections: 1 })), { local: true })

/** The configuration of a service with these variables. */
export const configOf = (variables: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    return yield* Effect.provide(
      Config.load,
      ConfigProvider.layer(
        ConfigProvider.fromUnknown({ DATA_DIRECTORY: directory, PORT: "0", LOG_LEVEL: "Warn", ...variables })
      )
    )
  })
