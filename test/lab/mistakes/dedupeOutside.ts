import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Inbox } from "../../../src/inbox/Inbox.ts"
import type { Mistake } from "./Mistake.ts"

export const dedupeOutside: Mistake = {
  name: "dedupe-outside",
  what: "The consumer marks an event as seen in a statement of its own, before the transaction of the effect.",
  why: "No event is applied twice, whatever comes again. But a crash between the mark and the effect leaves an event that nobody will apply.",
  rule: "The mark and the effect commit in one transaction.",
  read: "src/inbox/Inbox.ts",
  plant: (real) => ({
    // A mark outside of the transaction is a statement of its own, so the slice is applied step by step.
    fastPath: Layer.empty,
    inbox: Layer.effect(
      Inbox,
      Effect.gen(function* () {
        const inbox = yield* Inbox
        const sql = yield* SqlClient.SqlClient
        return Inbox.of({
          ...inbox,
          markFirst: (consumer, eventIds) =>
            Effect.scoped(
              Effect.flatMap(sql.reserve, (connection) =>
                connection.execute(
                  `INSERT INTO processed_events (consumer_name, event_id, processed_at)
                 SELECT $1, event_id, clock_now() FROM unnest($2::uuid[]) AS event_id ON CONFLICT DO NOTHING RETURNING event_id::text`,
                  [consumer, eventIds],
                  undefined
                )
              )
            ).pipe(
              Effect.map((rows) => new Set(rows.map((row: { readonly event_id: string }) => row.event_id))),
              Effect.orDie
            )
        })
      })
    ).pipe(Layer.provide(real.inbox))
  })
}
