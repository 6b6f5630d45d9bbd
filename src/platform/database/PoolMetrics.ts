/**
 * What the connection pool is at: how many connections are open, how many may be, and how long it takes to get one. Sampled: a scrape reads
 * what was last seen.
 */
import { Clock, Effect, Layer, Metric } from "effect"
import { SqlClient } from "effect/sql"
import * as Supervised from "../Supervised.ts"
import { PoolStats } from "./Database.ts"

const openGauge = Metric.gauge("db_pool_connections", { description: "Open connections of the pool, sampled" })
const maxGauge = Metric.gauge("db_pool_connections_max", { description: "Connections that the pool may open" })
const waitGauge = Metric.gauge("db_pool_wait_seconds", {
  description: "Time that it took to get a connection from the pool, sampled: near 0 unless all are in use"
})

/** Often enough to see a pool that runs dry for longer than a moment. */
const sampleMillis = 5_000

/** A wait that reaches this is told as this: the pool is dry. */
const maxWaitMillis = 10_000

const waitMillis = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const started = yield* Clock.currentTimeMillis
  yield* Effect.timeoutOption(Effect.scoped(sql.reserve), maxWaitMillis)
  return (yield* Clock.currentTimeMillis) - started
})

/** Samples for as long as the layer lives. Takes a connection and gives it back; sends nothing. */
export const layer: Layer.Layer<never, never, PoolStats | SqlClient.SqlClient | Supervised.Fibers> =
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { max, open } = yield* PoolStats
      const sql = yield* SqlClient.SqlClient
      yield* Metric.update(maxGauge, max)
      yield* Metric.update(openGauge, 0)
      yield* Metric.update(waitGauge, 0)
      yield* Supervised.forkLoop(
        "pool metrics",
        Effect.gen(function* () {
          const connections = open()
          yield* Metric.update(openGauge, connections)
          // While more may be opened nobody waits for one, and an idle pool is left in peace.
          const waited = connections < max ? 0 : yield* waitMillis(sql)
          yield* Metric.update(waitGauge, waited / 1_000)
          yield* Effect.sleep(sampleMillis)
        })
      )
    })
  )
