import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Queue } from "../../../src/outbox/Queue.ts"
import type { Mistake } from "./Mistake.ts"

export const markBeforeAck: Mistake = {
  name: "mark-before-ack",
  what: "The dispatcher takes events out of the queue as it fetches them (`DELETE … RETURNING`), and sends them then.",
  why: "One statement, no event is sent twice, no lock is held. But what was taken and not sent is nowhere.",
  rule: "An event is marked only after its ack.",
  read: "src/outbox/Dispatcher.ts",
  plant: (real) => ({
    queue: Layer.effect(
      Queue,
      Effect.gen(function* () {
        const queue = yield* Queue
        const sql = yield* SqlClient.SqlClient
        return Queue.of({
          ...queue,
          fetch: (parts) =>
            Effect.tap(queue.fetch(parts), (fetched) =>
              Effect.orDie(sql`
                DELETE FROM outbox_events WHERE seq = ANY (${fetched.flatMap(({ events }) => events.map(({ seq }) => seq))}::int8[])`)
            )
        })
      })
    ).pipe(Layer.provide(real.queue))
  })
}
