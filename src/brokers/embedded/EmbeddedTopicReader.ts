/** Reads a topic of the embedded broker from its table, beside the service: it joins nothing, and leaves no offset behind. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"
import { BrokerUnavailable, TopicUnavailable } from "../Broker.ts"
import { sliceSize, TopicReader } from "../TopicReader.ts"
import * as EmbeddedLog from "./EmbeddedLog.ts"

/** Statements here take milliseconds, so this long means that Postgres hangs. */
const askMillis = 10_000

const ask = <A>(statement: Effect.Effect<A, SqlError.SqlError>) =>
  statement.pipe(
    Effect.timeout(askMillis),
    Effect.mapError((cause) => new BrokerUnavailable({ operation: "read topic", cause }))
  )

/** See {@link TopicReader}. */
export const layer: Layer.Layer<TopicReader, never, PgClient.PgClient> = Layer.effect(
  TopicReader,
  Effect.gen(function* () {
    const log = EmbeddedLog.make(yield* PgClient.PgClient)
    return TopicReader.make((topic) =>
      Effect.succeed({
        bounds: Effect.filterOrFail(
          ask(log.bounds(topic)),
          (partitions) => partitions.length > 0,
          () => new TopicUnavailable({ topic, reason: "it does not exist" })
        ),
        fetch: (partition, offset) =>
          Effect.map(ask(log.fetch({ topic, partition }, offset, sliceSize)), ({ records }) => ({
            records,
            next: (records.at(-1)?.offset ?? offset - 1n) + 1n
          }))
      })
    )
  })
)
