/** Reads a topic of the embedded broker from its table, beside the service: it joins nothing, and leaves no offset behind. */
import { PgClient } from "@effect/sql-pg"
import { Array, Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"
import { BrokerUnavailable, TopicUnavailable } from "../Broker.ts"
import { sliceSize, TopicReader, type TopicSlice } from "../TopicReader.ts"
import * as EmbeddedLog from "./EmbeddedLog.ts"

/** Statements here take milliseconds, so this long means that Postgres hangs. */
const askMillis = 10_000

const ask = <A>(statement: Effect.Effect<A, SqlError.SqlError>) =>
  statement.pipe(
    Effect.timeout(askMillis),
    Effect.mapError((cause) => new BrokerUnavailable({ operation: "read topic", cause }))
  )

/** See {@link TopicReader}. Partitions are read one after another. */
export const layer: Layer.Layer<TopicReader, never, PgClient.PgClient> = Layer.effect(
  TopicReader,
  Effect.gen(function* () {
    const log = EmbeddedLog.make(yield* PgClient.PgClient)
    return TopicReader.of({
      read: <E, R>(topic: string, handle: (slice: TopicSlice) => Effect.Effect<void, E, R>) =>
        Effect.gen(function* () {
          const partitions = yield* ask(log.bounds(topic))
          if (partitions.length === 0) return yield* new TopicUnavailable({ topic, reason: "it does not exist" })
          const ofAll = partitions.reduce((sum, { end, start }) => sum + Number(end - start), 0)
          for (const { end, partition, start } of partitions) {
            let next = start
            while (next < end) {
              const { records } = yield* ask(log.fetch({ topic, partition }, next, sliceSize))
              const fresh = records.filter(({ offset }) => offset < end)
              // Retention may drop records meanwhile.
              if (!Array.isReadonlyArrayNonEmpty(fresh)) break
              yield* handle({ partition, records: fresh, ofAll })
              next = fresh.at(-1)!.offset + 1n
            }
          }
        })
    })
  })
)
