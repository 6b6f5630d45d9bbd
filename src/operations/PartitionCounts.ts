/**
 * Over how many of a topic's partitions its lanes are spread: one number for all dispatchers, kept in the database.
 *
 * A lane's partition follows from that count, so with another one aggregates move between partitions, and a reader may see what comes later
 * first. Brokers let a topic grow at any time, and each process would learn of it at a time of its own: so what counts is not what the
 * broker says now but what it said when the topic was first found fit. The partitions of then are still there in a topic that has grown.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"

export class PartitionCounts extends Context.Service<
  PartitionCounts,
  {
    /** The topic's count, where one has been noted. */
    readonly noted: (topic: string) => Effect.Effect<number | undefined>
    /**
     * Notes `found`, which has to divide the lanes, where nothing has been noted yet, and says what is noted now. All who ask hear the same, also
     * those who ask at once, until an operator changes it.
     */
    readonly note: (topic: string, found: number) => Effect.Effect<number>
  }
>()("paid-once/operations/PartitionCounts") {
  static readonly layer: Layer.Layer<PartitionCounts, never, PgClient.PgClient> = Layer.effect(
    PartitionCounts,
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      return PartitionCounts.of({
        noted: Effect.fn("PartitionCounts.noted")(function* (topic) {
          const [row] = yield* sql<{ readonly partitions: number }>`
            SELECT partitions FROM outbox_topics WHERE topic = ${topic}`
          return row?.partitions
        }, Effect.orDie),
        note: Effect.fn("PartitionCounts.note")(function* (topic, found) {
          // The update changes nothing: it makes the statement wait for, and return, the row of whoever was first.
          const [row] = yield* sql<{ readonly partitions: number }>`
            INSERT INTO outbox_topics AS t (topic, partitions) VALUES (${topic}, ${found}::int4)
            ON CONFLICT (topic) DO UPDATE SET partitions = t.partitions
            RETURNING t.partitions`
          return row?.partitions ?? found
        }, Effect.orDie)
      })
    })
  )
}
