import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Queue } from "../../../src/outbox/Queue.ts"
import { changed } from "./fetching.ts"
import type { Mistake } from "./Mistake.ts"

/** The relay's cursor is one variable here; a table would make no difference. */
export const idCursor: Mistake = {
  name: "id-cursor",
  what: "The relay remembers the highest id that it has published, and asks for what is greater.",
  why: "Ids only grow, so nothing can come in behind the cursor. But an id is taken when a row is written, and seen when it commits.",
  rule: "Nothing remembers the last id: the queue is what is not yet acknowledged, and nothing else.",
  read: "src/outbox/Queue.ts",
  plant: (real) => {
    let cursor = 0n
    let highest = 0n
    return {
      queue: Layer.effect(
        Queue,
        Effect.gen(function* () {
          const queue = yield* Queue
          const sql = yield* SqlClient.SqlClient
          return Queue.of({
            ...queue,
            fetch: changed(queue, (events) => events.filter((event) => event.seq > cursor)),
            mark: Effect.fnUntraced(function* (runs) {
              yield* queue.mark(runs)
              for (const { events } of runs) for (const { seq } of events) if (seq > highest) highest = seq
              // The cursor does not pass rows that it can see in other lanes. The mistake is the rows that it can't see yet.
              const [waiting] = yield* Effect.orDie(sql<{ readonly seq: bigint | null }>`
                SELECT min(seq) AS seq FROM outbox_events WHERE seq > ${cursor}::int8`)
              const before = waiting?.seq == null ? highest : waiting.seq - 1n
              cursor = before < highest ? before : highest
            })
          })
        })
      ).pipe(Layer.provide(real.queue))
    }
  }
}
