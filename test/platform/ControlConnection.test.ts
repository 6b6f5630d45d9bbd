import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Scope, SubscriptionRef } from "effect"
import { SqlClient } from "effect/sql"
import { Ids } from "../../src/platform/Ids.ts"
import { ControlConnection, ControlSettings } from "../../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { Ownership } from "../../src/platform/Ownership.ts"
import { Wakeups } from "../../src/platform/Wakeups.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { eventually } from "../support/Counters.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { quiet } from "../support/TestProcess.ts"

/** A process that reaches its database through a proxy. */
const proxied = Layer.unwrap(
  Effect.gen(function* () {
    const { proxy, url } = yield* TcpProxy.makePostgres((yield* TestDatabase).url)
    return Ownership.layer.pipe(
      Layer.provideMerge(Wakeups.layer),
      Layer.provideMerge(ControlConnection.layer),
      Layer.provide(Ids.layer),
      Layer.provideMerge(Layer.mergeAll(Fibers.layer, Database.layer)),
      Layer.provide(DatabaseSettings.layerOf({ url, maxConnections: 2 })),
      // The heartbeat is slower than the rebalance, whose statements keep the session alive. So the rebalance meets the silence first.
      Layer.provide(Layer.succeed(ControlSettings, { sessionTimeoutMillis: 1_000, heartbeatMillis: 3_000 })),
      Layer.provideMerge(Layer.succeed(Proxy, proxy))
    )
  })
).pipe(Layer.provideMerge(TestDatabase.layer), Layer.provideMerge(quiet))

class Proxy extends Context.Service<Proxy, TcpProxy.TcpProxy>()("test/unit/Proxy") {}

it.live("a connection that falls silent without being closed is replaced, and its slots are owned again", () =>
  Effect.gen(function* () {
    const proxy = yield* Proxy
    const control = yield* ControlConnection
    const { join } = yield* Ownership
    const { held } = yield* join("silent", 8)
    yield* eventually(
      "the slots",
      Effect.map(held, (shares) => shares.length === 8)
    )
    const before = yield* SubscriptionRef.get(control.session)
    const { accepted } = yield* proxy.counters
    // Bytes are dropped without an error.
    yield* proxy.blackHole()
    yield* eventually(
      "the loss to be seen",
      Effect.map(held, (shares) => shares.length === 0)
    )
    // The process gives up the session itself, without a reset, and connects again and again. One more connection would prove nothing: the
    // driver opens one to cancel the statement.
    yield* eventually(
      "more connections",
      Effect.map(proxy.counters, (counters) => counters.accepted > accepted + 4)
    )
    yield* proxy.pass
    yield* eventually(
      "the slots through another session",
      Effect.map(held, (shares) => shares.length === 8)
    )
    const after = yield* SubscriptionRef.get(control.session)
    assert.isAbove(after?.id ?? 0, before?.id ?? 0)
  }).pipe(Effect.scoped, Effect.provide(proxied))
)

/** A process with a control connection through the proxy, once it has a session. The test can end it early. */
const startProcess = Effect.fnUntraced(function* (settings: Context.Service.Shape<typeof ControlSettings>) {
  const { proxy, url } = yield* TcpProxy.makePostgres((yield* TestDatabase).url)
  const scope = yield* Scope.make()
  const context = yield* Layer.build(
    Layer.fresh(
      Wakeups.layer.pipe(
        Layer.provideMerge(ControlConnection.layer),
        Layer.provide(Layer.mergeAll(Fibers.layer, Layer.provide(Ids.layer, Database.layer))),
        Layer.provide(DatabaseSettings.layerOf({ url })),
        Layer.provide(Layer.succeed(ControlSettings, settings))
      )
    )
  ).pipe(Scope.provide(scope))
  const { session } = Context.get(context, ControlConnection)
  const up = (after: number) =>
    eventually(
      "a session",
      Effect.map(SubscriptionRef.get(session), (current) => (current?.id ?? 0) > after)
    )
  yield* up(0)
  return { proxy, scope, up, session, signals: Context.get(context, Wakeups) }
})

it.live("a NOTIFY that hangs on a silent connection delays neither the next session nor the stop", () =>
  Effect.gen(function* () {
    const { proxy, scope, signals, up } = yield* startProcess({ sessionTimeoutMillis: 1_000, heartbeatMillis: 500 })
    yield* Scope.provide(
      signals.on("x", () => undefined),
      scope
    )
    const { accepted } = yield* proxy.counters
    yield* proxy.blackHole()
    yield* signals.send("x", ["1"])
    yield* eventually(
      "more connections",
      Effect.map(proxy.counters, (counters) => counters.accepted > accepted + 2)
    )
    yield* proxy.pass
    yield* up(1)
    yield* proxy.blackHole()
    yield* signals.send("x", ["2"])
    yield* Scope.close(scope, Exit.void)
    yield* proxy.pass
  }).pipe(Effect.scoped, Effect.provide(Layer.mergeAll(TestDatabase.layer, quiet)))
)

it.live("a process that only sends wake-ups notices with the first failure that its session is gone", () =>
  Effect.gen(function* () {
    // An hour, so that a session that comes sooner was not caused by the heartbeat.
    const { scope, session, signals, up } = yield* startProcess({
      sessionTimeoutMillis: 7_200_000,
      heartbeatMillis: 3_600_000
    })
    const sql = yield* SqlClient.SqlClient
    const first = yield* SubscriptionRef.get(session)
    yield* sql`SELECT pg_terminate_backend(${first?.backendPid ?? 0}::int4)`
    yield* eventually(
      "the backend to be gone",
      Effect.map(
        sql`SELECT 1 FROM pg_stat_activity WHERE pid = ${first?.backendPid ?? 0}::int4`,
        (rows) => rows.length === 0
      )
    )
    yield* signals.send("x", ["1"])
    yield* up(1)
    yield* Scope.close(scope, Exit.void)
  }).pipe(Effect.scoped, Effect.provide(Layer.mergeAll(TestDatabase.layerPool, quiet)))
)
