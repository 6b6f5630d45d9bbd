/** The pool's gauges, while it is idle and while it is exhausted. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Metric } from "effect"
import { PrometheusMetrics } from "effect/observability"
import { SqlClient } from "effect/sql"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import * as PoolMetrics from "../../src/operations/PoolMetrics.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const world = PoolMetrics.layer("test").pipe(
  Layer.provideMerge(
    Layer.unwrap(
      TestDatabase.useSync(({ url }) =>
        Database.layer.pipe(Layer.provideMerge(DatabaseSettings.layerOf({ url, maxConnections: 2 })))
      )
    )
  ),
  Layer.provideMerge(Layer.mergeAll(TestDatabase.layer, Fibers.layer)),
  // A separate registry, since other tests of this process have a pool, too.
  Layer.provideMerge(Layer.sync(Metric.MetricRegistry, () => new Map()))
)

const value = (name: string) =>
  Effect.map(PrometheusMetrics.format(), (text) =>
    Number(new RegExp(`^${name}\\{pool="test"\\} (.+)$`, "m").exec(text)?.[1])
  )

it.live("a pool whose connections are all in use shows how many there are and how long a caller waits", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    assert.strictEqual(yield* value("db_pool_connections_max"), 2)
    assert.strictEqual(yield* value("db_pool_wait_seconds"), 0)
    const release = yield* Deferred.make<void>()
    const holders = yield* Effect.forkChild(
      Effect.all(
        Array.from({ length: 2 }, () => sql.withTransaction(Effect.andThen(sql`SELECT 1`, Deferred.await(release)))),
        { concurrency: "unbounded" }
      )
    )
    yield* eventually(
      "both connections to be seen",
      Effect.map(value("db_pool_connections"), (open) => open === 2)
    )
    // The sampler has waited for a connection since before this moment, so for at least this long.
    yield* Effect.sleep("50 millis")
    yield* Deferred.succeed(release, undefined)
    yield* eventually(
      "its wait to be reported",
      Effect.map(value("db_pool_wait_seconds"), (seconds) => seconds >= 0.05)
    )
    yield* Fiber.join(holders)
  }).pipe(Effect.provide(world))
)
