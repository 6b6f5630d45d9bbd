/**
 * A database of its own for each test file: cloned from a template that has every migration applied, which takes tens of
 * milliseconds, and dropped at the end.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { randomBytes } from "node:crypto"
import { chmod, mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { inject } from "vitest"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import { Ids } from "../../src/platform/Ids.ts"
import * as Database from "../../src/postgres/Database.ts"
import * as DeferredBegin from "../../src/postgres/fast/DeferredBegin.ts"
import { plantedSql } from "../mutants/planted.ts"
import { farFromUtc, withDatabase } from "./Postgres.ts"

export { root } from "./Postgres.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** A superuser's URL of the run's Postgres, at a maintenance database. */
    readonly postgresUrl: string
    /** The name of the migrated template. */
    readonly templateDatabase: string
  }
}

/** Runs the statements one by one as the superuser, on a connection of their own: CREATE and DROP DATABASE allow no transaction. */
const administer = (...statements: ReadonlyArray<string>) => runAt(inject("postgresUrl"), statements)

const runAt = (url: string, statements: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    for (const statement of statements) yield* sql.unsafe(statement)
  }).pipe(
    Effect.provide(PgClient.layer({ url: Redacted.make(url), maxConnections: 1, connectTimeout: "60 seconds" })),
    Effect.orDie
  )

/** The test's own database. */
export class TestDatabase extends Context.Service<
  TestDatabase,
  { readonly url: Redacted.Redacted; readonly name: string }
>()("test/TestDatabase") {
  /** Clones the template. At the end it drops the clone and all its sessions. `template: "template0"` gives an empty database. */
  static readonly make = (template?: string) =>
    Effect.acquireRelease(
      Effect.gen(function* () {
        const name = `test_${randomBytes(6).toString("hex")}`
        // A clone does not copy the template's settings.
        yield* administer(
          `CREATE DATABASE ${name} TEMPLATE ${template ?? inject("templateDatabase")}`,
          farFromUtc(name)
        )
        const url = withDatabase(inject("postgresUrl"), name)
        const mistake = template === undefined ? plantedSql() : undefined
        if (mistake !== undefined) yield* runAt(url, [mistake])
        return { name, url: Redacted.make(url) }
      }),
      ({ name }) => administer(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
    )

  static readonly layer = Layer.effect(TestDatabase, TestDatabase.make())

  /** Runs the statements one by one as the superuser, on a connection of their own. */
  static readonly administer = administer

  /** A directory for a service process's files, removed with the scope. */
  static readonly dataDirectory = Effect.acquireRelease(
    Effect.promise(async () => {
      const directory = await mkdtemp(Path.join(tmpdir(), "paid-once-test-"))
      // Root's Postgres runs as another user, who has to pass through.
      await chmod(directory, 0o711)
      return directory
    }),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
  )

  /** BEGIN without a round trip, as in the service's pools. */
  static readonly fastBegin = Layer.succeed(Database.SocketSetup, DeferredBegin.install)

  /** The clone with a pool like the service's, and ids by its clock. */
  static readonly layerPool = Layer.unwrap(
    TestDatabase.useSync(({ url }) =>
      Ids.layer.pipe(
        Layer.provideMerge(Database.layer),
        Layer.provide(TestDatabase.fastBegin),
        Layer.provideMerge(DatabaseSettings.layerOf({ url }))
      )
    )
  ).pipe(Layer.provideMerge(TestDatabase.layer))
}
