import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Publisher } from "../../../src/outbox/Publisher.ts"
import type { Mistake } from "./Mistake.ts"

/** The usual limit in articles: three attempts, then the event is given up. */
const maxAttempts = 3

export const outageBurnsAttempts: Mistake = {
  name: "outage-burns-attempts",
  what: `Each failed send counts as an attempt of its events, whatever the failure was; after ${maxAttempts} they are given up as poison.`,
  why: "A poison message must not block the queue for ever. But an outage is no property of a message: it gives up everything that waits.",
  rule: "An outage is not a poison message: it pauses the topic and burns nothing.",
  read: "src/outbox/Dispatcher.ts",
  plant: (real) => ({
    publisher: Layer.effect(
      Publisher,
      Effect.gen(function* () {
        const publisher = yield* Publisher
        const sql = yield* SqlClient.SqlClient
        const attempts = new Map<bigint, number>()
        return Publisher.of({
          ...publisher,
          publish: (batch) =>
            Effect.tapError(publisher.publish(batch), () =>
              Effect.forEach(
                batch.events,
                ({ lane, seq }) => {
                  const count = (attempts.get(seq) ?? 0) + 1
                  attempts.set(seq, count)
                  return count < maxAttempts
                    ? Effect.void
                    : Effect.orDie(sql`DELETE FROM outbox_events WHERE lane = ${lane}::int2 AND seq = ${seq}`)
                },
                { discard: true }
              )
            )
        })
      })
    ).pipe(Layer.provide(real.publisher))
  })
}
