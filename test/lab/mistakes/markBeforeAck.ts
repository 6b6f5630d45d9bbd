import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { OutboxQueue } from "../../../src/outbox/OutboxQueue.ts"
import type { Mistake } from "./Mistake.ts"

export const markBeforeAck: Mistake = {
  name: "mark-before-ack",
  what: "The dispatcher takes events out of the queue as it fetches them (`DELETE … RETURNING`), and sends them then.",
  why: "One statement, no event is sent twice, no lock is held. But what was taken and not sent is nowhere.",
  rule: "An event is marked only after its ack.",
  read: "src/outbox/Dispatcher.ts",
  plant: (real) => ({
    queue: Layer.effect(
      OutboxQueue,
      Effect.gen(function* () {
        const queue = yield* OutboxQueue
        const sql = yield* SqlClient.SqlClient
        return OutboxQueue.of({
          ...queue,
          fetch: (lane, paused) =>
            Effect.tap(queue.fetch(lane, paused), (events) =>
              Effect.orDie(sql`
                DELETE FROM outbox_events WHERE lane = ${lane}::int2 AND seq = ANY (${events.map((event) => event.seq)}::int8[])`)
            )
        })
      })
    ).pipe(Layer.provide(real.queue))
  })
}
