import { Effect, Layer, Result } from "effect"
import { ParkedHolds } from "../../../src/inbox/holds/ParkedHolds.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import type { Mistake } from "./Mistake.ts"

export const parkedKeepsMark: Mistake = {
  name: "parked-keeps-mark",
  what: "An event whose handler fails is parked for later, and its row in `processed_events` stays: the mark was made first, and parking commits with it.",
  why: "The event was processed in a way: it comes again with its slice, and must not be parked twice. But its retry finds it marked, and takes it for a duplicate.",
  rule: "A mark stands for an effect: a parked event has none.",
  read: "src/inbox/holds/ParkedHolds.ts",
  plant: (real) => ({
    inboxHolds: Layer.effect(
      ParkedHolds,
      Effect.map(ParkedHolds, (holds) =>
        ParkedHolds.of({
          ...holds,
          hold: (consumer, head, reason) =>
            Effect.tap(
              holds.hold(consumer, head, reason),
              Effect.fnUntraced(function* () {
                if (reason._tag === "Gap" || Result.isFailure(head.arrival.read)) return
                const { sql } = yield* Transaction
                yield* Effect.orDie(sql`
                  INSERT INTO processed_events (consumer_name, event_id, processed_at)
                  VALUES (${consumer}, ${head.arrival.eventId}::uuid, clock_now()) ON CONFLICT DO NOTHING`)
              })
            )
        })
      )
    ).pipe(Layer.provide(real.inboxHolds))
  })
}
