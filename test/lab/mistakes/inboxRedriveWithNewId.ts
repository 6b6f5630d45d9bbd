import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { InboxDeadLetters } from "../../../src/operations/InboxDeadLetters.ts"
import { Ids } from "../../../src/platform/Ids.ts"
import type { Mistake } from "./Mistake.ts"

export const inboxRedriveWithNewId: Mistake = {
  name: "inbox-redrive-with-new-id",
  what: "A consumer's dead letter that is tried again goes in as a new message, with an id of its own.",
  why: "A queue's console does that when one sends a message back. But whatever the handler hands on, a task, a mail, a charge, is known by the event's id: under another one it is done again.",
  rule: "A redrive keeps the event's id and version.",
  read: "src/operations/InboxDeadLetters.ts",
  plant: (real) => ({
    inboxDeadLetters: Layer.effect(
      InboxDeadLetters,
      Effect.gen(function* () {
        const letters = yield* InboxDeadLetters
        const sql = yield* SqlClient.SqlClient
        const ids = yield* Ids
        return InboxDeadLetters.of({
          ...letters,
          retry: (consumer, eventId, operator) =>
            Effect.tap(letters.retry(consumer, eventId, operator), () =>
              Effect.orDie(sql`
                WITH fresh AS (SELECT ${ids.next()}::text AS id),
                     hold AS (UPDATE inbox_holds SET event_id = fresh.id FROM fresh WHERE consumer_name = ${consumer} AND event_id = ${eventId})
                UPDATE inbox_parked SET event_id = fresh.id,
                       record_value = convert_to(replace(convert_from(record_value, 'UTF8'), ${eventId}, fresh.id), 'UTF8')
                FROM fresh WHERE consumer_name = ${consumer} AND event_id = ${eventId}`)
            )
        })
      })
    ).pipe(Layer.provide(real.inboxDeadLetters))
  })
}
