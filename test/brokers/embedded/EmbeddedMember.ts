/** Members of the embedded broker for tests. Like a process, each has its own pool and control connection. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, References, Redacted, Schedule } from "effect"
import { inject } from "vitest"
import { Broker } from "../../../src/brokers/Broker.ts"
import * as EmbeddedBroker from "../../../src/brokers/embedded/EmbeddedBroker.ts"
import * as EmbeddedProgress from "../../../src/brokers/embedded/EmbeddedProgress.ts"
import * as EmbeddedTopicReader from "../../../src/brokers/embedded/EmbeddedTopicReader.ts"
import { TopicReader } from "../../../src/brokers/TopicReader.ts"
import { GroupProgress } from "../../../src/brokers/GroupProgress.ts"
import { Ids } from "../../../src/platform/Ids.ts"
import { ControlConnection, ControlSettings } from "../../../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import * as Database from "../../../src/postgres/Database.ts"
import { Ownership } from "../../../src/platform/Ownership.ts"
import { Wakeups } from "../../../src/platform/Wakeups.ts"
import { Fibers } from "../../../src/platform/Supervised.ts"
import { BrokerHarness } from "../../contracts/BrokerHarness.ts"
import * as TcpProxy from "../../support/TcpProxy.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

/** The session timeout of a silent member: longer than a busy machine stands still, and short for a test that waits for it. */
const controlSettings = { sessionTimeoutMillis: 4_000, heartbeatMillis: 500 }

/** The layers of a process that shares work over a database, without the broker. */
export const platform = (url: Redacted.Redacted, settings = controlSettings) =>
  Layer.mergeAll(Ownership.layer, Wakeups.layer).pipe(
    Layer.provideMerge(Wakeups.layer),
    Layer.provideMerge(ControlConnection.layer),
    Layer.provideMerge(Layer.merge(Fibers.layer, Ids.layer)),
    Layer.provideMerge(Database.layer),
    Layer.provide(DatabaseSettings.layerOf({ url, maxConnections: 8 })),
    Layer.provide(Layer.succeed(ControlSettings, settings))
  )

/** A member of the embedded broker, with its parts for the tests that need them. */
export const make = Effect.fnUntraced(function* (
  url: Redacted.Redacted,
  settings: Partial<(typeof EmbeddedBroker.EmbeddedBrokerSettings)["Service"]> = {}
) {
  const { proxy, url: proxiedUrl } = yield* TcpProxy.makePostgres(url)
  // Fresh, because two members must not share a pool.
  const context = yield* Layer.mergeAll(EmbeddedBroker.layer, EmbeddedProgress.layer, EmbeddedTopicReader.layer).pipe(
    Layer.provideMerge(platform(proxiedUrl)),
    Layer.provide(
      Layer.succeed(EmbeddedBroker.EmbeddedBrokerSettings, {
        ...(yield* EmbeddedBroker.EmbeddedBrokerSettings),
        ...settings
      })
    ),
    Layer.fresh,
    Layer.build
  )
  return {
    broker: Context.get(context, Broker),
    progress: Context.get(context, GroupProgress),
    topics: Context.get(context, TopicReader),
    context,
    proxy,
    // Packets are dropped without an error, like a pulled cable or a frozen process: the harder failure.
    kill: Effect.acquireRelease(proxy.blackHole(), () => proxy.pass)
  }
})

/** Runs a statement as the superuser, outside of the test's database. */
const administer = (statement: string) =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    return yield* sql.unsafe(statement)
  }).pipe(
    Effect.provide(
      PgClient.layer({ url: Redacted.make(inject("postgresUrl")), maxConnections: 1, connectTimeout: "60 seconds" })
    ),
    Effect.orDie
  )

/** An outage of one database: it refuses connections until every backend has ended. */
export const restart = (database: string) =>
  Effect.gen(function* () {
    yield* administer(`ALTER DATABASE ${database} ALLOW_CONNECTIONS false`)
    const backends = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${database}'`
    yield* administer(backends).pipe(
      Effect.repeat({ until: (rows) => rows.length === 0, schedule: Schedule.spaced("20 millis") }),
      Effect.ensuring(administer(`ALTER DATABASE ${database} ALLOW_CONNECTIONS true`))
    )
  })

/** The harness of the contract suite: members on one database. */
export const harness: Layer.Layer<BrokerHarness> = Layer.effect(
  BrokerHarness,
  Effect.map(TestDatabase, ({ name, url }) => ({ member: Effect.orDie(make(url)), restartBroker: restart(name) }))
).pipe(
  Layer.provide(TestDatabase.layer),
  // The suite causes failures on purpose, and its assertions show any other.
  Layer.provideMerge(Layer.succeed(References.MinimumLogLevel, "Fatal"))
)
