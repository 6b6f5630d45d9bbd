import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { OutboxDeadLetters } from "../../../src/operations/OutboxDeadLetters.ts"
import { Ids } from "../../../src/platform/Ids.ts"
import type { Mistake } from "./Mistake.ts"

export const redriveWithNewId: Mistake = {
  name: "redrive-with-new-id",
  what: "A dead letter that is sent again gets a new id, as if it were a new message.",
  why: "Most queues do that when one puts a message back by hand. But the id is what consumers know an event by: if the old send arrived after all, its effect happens twice.",
  rule: "A redrive keeps the event's id and version.",
  read: "src/operations/OutboxDeadLetters.ts",
  plant: (real) => ({
    deadLetters: Layer.effect(
      OutboxDeadLetters,
      Effect.gen(function* () {
        const deadLetters = yield* OutboxDeadLetters
        const sql = yield* SqlClient.SqlClient
        const ids = yield* Ids
        return OutboxDeadLetters.of({
          ...deadLetters,
          retry: (eventId, operator) =>
            Effect.tap(deadLetters.retry(eventId, operator), () =>
              Effect.orDie(sql`
                WITH fresh AS (SELECT ${ids.next()}::uuid AS id),
                     hold AS (UPDATE outbox_holds SET event_id = fresh.id FROM fresh WHERE event_id = ${eventId}::uuid)
                UPDATE outbox_parked SET event_id = fresh.id FROM fresh WHERE event_id = ${eventId}::uuid`)
            )
        })
      })
    ).pipe(Layer.provide(real.deadLetters))
  })
}
