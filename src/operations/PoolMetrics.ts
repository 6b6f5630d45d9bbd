/**
 * What each connection pool is at: how many connections are open, how many may be, and how long it takes to get one. Sampled: a scrape reads
 * what was last seen.
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

/** Often enough to see a pool that runs dry for longer than a moment. */
const sampleMillis = 5_000

/** A wait that reaches this is told as this: the pool is dry. */
const maxWaitMillis = 10_000

const waitMillis = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const started = yield* Monotonic.millis
  yield* Effect.timeoutOption(Effect.scoped(sql.reserve), maxWaitMillis)
  return (yield* Monotonic.millis) - started
})

/**
 * Samples the pool around it under this name for as long as the layer lives. Takes a connection and gives it back where all are open; sends
 * nothing.
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
          // While more may be opened nobody waits for one, and an idle pool is left in peace.
          const waited = connections < max ? 0 : yield* waitMillis(sql)
          yield* set(waitGauge, waited / 1_000)
          yield* Effect.sleep(sampleMillis)
        })
      )
    })
  )
