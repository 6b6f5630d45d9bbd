/** Records in the topic, as another database's outbox has sent them. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Envelope from "../../src/brokers/Envelope.ts"

/** Appends records to the only partition of the embedded broker's topic `orders`. */
export const inTopic = (events: ReadonlyArray<Envelope.StoredEvent>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO broker_topics (topic, partitions) VALUES ('orders', 1) ON CONFLICT DO NOTHING`
    yield* sql`INSERT INTO broker_partitions (topic, partition) VALUES ('orders', 0) ON CONFLICT DO NOTHING`
    for (const event of events) {
      const { headers, key, value } = Envelope.toRecord(event)
      yield* sql`
        WITH target AS (UPDATE broker_partitions SET next_offset = next_offset + 1 RETURNING next_offset - 1 AS record_offset)
        INSERT INTO broker_log SELECT 'orders', 0, record_offset, ${key}, ${Buffer.from(value)}, ${JSON.stringify(headers)}::text::json, clock_now() FROM target`
    }
  })
