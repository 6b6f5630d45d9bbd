/** The statements of marks, as Postgres has to plan them. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { allLanes } from "../../src/outbox/Lane.ts"
import { type QueuedEvent, Queue } from "../../src/outbox/Queue.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

/** Prepared statements belong to a connection. */
const oneConnection = Layer.unwrap(Effect.map(TestDatabase, ({ url }) => PgClient.layer({ url, maxConnections: 1 })))

layer(Queue.layer.pipe(Layer.provideMerge(oneConnection), Layer.provide(TestDatabase.layer)))("marks", (it) => {
  it.effect("as many lanes as fit into one width are one statement, which is planned once", () =>
    Effect.gen(function* () {
      const queue = yield* Queue
      const sql = yield* SqlClient.SqlClient
      for (const lanes of [33, 40, 50, 64]) {
        yield* queue.mark(
          allLanes.slice(0, lanes).map((lane) => ({
            lane,
            topic: "orders",
            // Published by another process: the mark finds nothing.
            events: [{ seq: 1n } as QueuedEvent],
            receipt: { partition: 0, baseOffset: 0n }
          }))
        )
      }
      const marks = yield* sql`SELECT 1 AS one FROM pg_prepared_statements WHERE statement LIKE 'WITH run_0%'`
      assert.lengthOf(marks, 1)
    })
  )
})
