/**
 * Gauges of each connection pool: open connections, their maximum, and how long it takes to get one. They are sampled; a scrape reads the
 * last sample.
 */
import { Effect, Layer, Metric } from "effect"
import { SqlClient } from "effect/sql"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Supervised from "../platform/Supervised.ts"
import { PoolStats } from "../postgres/Database.ts"

const openGauge = Metric.gauge("db_pool_connections", { description: "Open connections of the pool, sampled" })
const maxGauge = Metric.gauge("db_pool_connections_max", { description: "Connections that the pool may open" })
const waitGauge = Metric.gauge("db_pool_wait_seconds", {
  description: "Time that it took to get a connection from the pool, sampled: near 0 unless all are in use"
})

/** Often enough to see a pool that is exhausted for some seconds. */
const sampleMillis = 5_000

/** A longer wait is reported as this one: the pool is exhausted either way. */
const maxWaitMillis = 10_000

const waitMillis = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const started = yield* Monotonic.millis
  yield* Effect.timeoutOption(Effect.scoped(sql.reserve), maxWaitMillis)
  return (yield* Monotonic.millis) - started
})

/**
 * Samples the provided pool under this name for as long as the layer lives. If all connections are open, a sample takes one and gives it
 * back without running a statement.
 */
export const layer = (pool: string): Layer.Layer<never, never, PoolStats | SqlClient.SqlClient | Supervised.Fibers> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { max, open } = yield* PoolStats
      const sql = yield* SqlClient.SqlClient
      const set = (gauge: typeof openGauge, value: number) =>
        Metric.update(Metric.withAttributes(gauge, { pool }), value)
      yield* set(maxGauge, max)
      yield* set(openGauge, 0)
      yield* set(waitGauge, 0)
      yield* Supervised.forkLoop(
        `pool metrics of ${pool}`,
        Effect.gen(function* () {
          const connections = open()
          yield* set(openGauge, connections)
          // Below the maximum a caller opens a connection instead of waiting, and a sample would only open one more.
          const waited = connections < max ? 0 : yield* waitMillis(sql)
          yield* set(waitGauge, waited / 1_000)
          yield* Effect.sleep(sampleMillis)
        })
      )
    })
  )
