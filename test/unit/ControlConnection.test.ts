import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted, SubscriptionRef } from "effect"
import { ControlConnection, ControlSettings } from "../../src/platform/database/ControlConnection.ts"
import * as Database from "../../src/platform/database/Database.ts"
import { Shares } from "../../src/platform/database/Shares.ts"
import { Signals } from "../../src/platform/Signals.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { eventually } from "../support/Counters.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { quiet } from "../support/TestProcess.ts"

/** A process that reaches its database through a proxy. */
const proxied = Layer.unwrap(
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const target = new URL(Redacted.value(url))
    const proxy = yield* TcpProxy.make({ upstream: { host: target.hostname, port: Number(target.port) } })
    target.hostname = proxy.host
    target.port = String(proxy.port)
    return Shares.layer.pipe(
      Layer.provideMerge(Signals.layer),
      Layer.provideMerge(ControlConnection.layer),
      Layer.provideMerge(Layer.mergeAll(Fibers.layer, Database.layer)),
      Layer.provide(Database.DatabaseSettings.layerOf({ url: Redacted.make(target.toString()), maxConnections: 2 })),
      // The heartbeat is slow beside the rebalance (which keeps the session alive), so that it is a rebalance that meets the silence.
      Layer.provide(Layer.succeed(ControlSettings, { sessionTimeoutMillis: 1_000, heartbeatMillis: 3_000 })),
      Layer.provideMerge(Layer.succeed(Proxy, proxy))
    )
  })
).pipe(Layer.provideMerge(TestDatabase.layer), Layer.provideMerge(quiet))

class Proxy extends Context.Service<Proxy, TcpProxy.TcpProxy>()("test/unit/Proxy") {}

it.live("a connection that falls silent without a goodbye is replaced, and the shares are taken anew", () =>
  Effect.gen(function* () {
    const proxy = yield* Proxy
    const control = yield* ControlConnection
    const { join } = yield* Shares
    const { held } = yield* join("silent", 8)
    yield* eventually(
      "the shares",
      Effect.map(held, (shares) => shares.length === 8)
    )
    const before = yield* SubscriptionRef.get(control.session)
    const { accepted } = yield* proxy.counters
    // Bytes are swallowed, and nothing says so.
    yield* proxy.blackHole()
    yield* eventually(
      "the loss to be seen",
      Effect.map(held, (shares) => shares.length === 0)
    )
    // It is given up by our own decision, before anyone resets it, and connecting is tried again and again. (One connection more
    // proves nothing: the driver opens it to cancel what it gave up.)
    yield* eventually(
      "more connections",
      Effect.map(proxy.counters, (counters) => counters.accepted > accepted + 4)
    )
    yield* proxy.pass
    yield* eventually(
      "the shares through another session",
      Effect.map(held, (shares) => shares.length === 8)
    )
    const after = yield* SubscriptionRef.get(control.session)
    assert.isAbove(after?.id ?? 0, before?.id ?? 0)
  }).pipe(Effect.scoped, Effect.provide(proxied))
)
