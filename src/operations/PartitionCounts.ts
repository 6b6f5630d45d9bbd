/**
 * How many of a topic's partitions its lanes are spread over: one number for all dispatchers, kept in the database.
 *
 * A lane's partition follows from that number. With another one aggregates move between partitions, and a consumer can read an aggregate's
 * later event first. A topic can grow at any time, and each process would learn of it at a different moment. The noted number is the one that the
 * broker reported when the topic was first found fit, not the current one. A topic that has grown still has those partitions.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import * as Rows from "../platform/Rows.ts"

const row = Schema.Struct({ partitions: Schema.Int })
const firstRow = Rows.first(row)
const oneRow = Rows.one(row)

export class PartitionCounts extends Context.Service<
  PartitionCounts,
  {
    /** The topic's number, where one has been noted. */
    readonly noted: (topic: string) => Effect.Effect<number | undefined>
    /**
     * Notes `found` where nothing has been noted yet, and returns the noted number. `found` has to divide the number of lanes. All callers get
     * the same number, also those that call at the same time, until an operator changes it.
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
          const noted = yield* firstRow(sql`SELECT partitions FROM outbox_topics WHERE topic = ${topic}`)
          return noted?.partitions
        }, Effect.orDie),
        note: Effect.fn("PartitionCounts.note")(function* (topic, found) {
          // The update changes nothing. It makes the statement wait for a concurrent first row, and return that.
          const { partitions } = yield* oneRow(sql`
            INSERT INTO outbox_topics AS t (topic, partitions) VALUES (${topic}, ${found}::int4)
            ON CONFLICT (topic) DO UPDATE SET partitions = t.partitions
            RETURNING t.partitions`)
          return partitions
        }, Effect.orDie)
      })
    })
  )
}
