import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Dispatcher } from "../../../src/outbox/Dispatcher.ts"
import { Queue, type QueuedEvent } from "../../../src/outbox/Queue.ts"
import { eachLane } from "./fetching.ts"
import type { Mistake } from "./Mistake.ts"
import { eventColumns } from "../../../src/outbox/EventRows.ts"

export const skipLocked: Mistake = {
  name: "skip-locked",
  what: "Any dispatcher takes the next rows with `FOR UPDATE SKIP LOCKED` and sends them inside that transaction. Lanes have no owner.",
  why:
    "It is the pattern of the popular articles: no row is sent by two dispatchers at once, and none waits for another. " +
    "But skipping a locked row means overtaking it.",
  rule: "A batch is a version-prefix of each aggregate's unpublished events, and a lane has one owner.",
  read: "src/outbox/Queue.ts",
  plant: (real) => ({
    batchSize: 1,
    lanesHaveOwners: false,
    queue: Layer.effect(
      Queue,
      Effect.gen(function* () {
        const queue = yield* Queue
        const sql = yield* SqlClient.SqlClient
        return Queue.of({
          ...queue,
          fetch: eachLane(
            (lane) => sql<QueuedEvent>`
              SELECT ${sql.literal(eventColumns("outbox_events"))} FROM outbox_events WHERE lane = ${lane}::int2
              ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED`
          )
        })
      })
    ).pipe(Layer.provide(real.queue)),
    dispatcher: Layer.effect(
      Dispatcher,
      Effect.gen(function* () {
        const dispatcher = yield* Dispatcher
        const sql = yield* SqlClient.SqlClient
        return Dispatcher.of({
          ...dispatcher,
          drainOnce: (lanes) => Effect.orDie(sql.withTransaction(dispatcher.drainOnce(lanes)))
        })
      })
    ).pipe(Layer.provide(real.dispatcher))
  })
}
