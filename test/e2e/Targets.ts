/** The brokers of the whole service's tests, and readers of their topics that share no code with the service. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { readTopic } from "../support/readTopic.ts"

/** A record as a reader that shares no code with the service sees it. */
export interface TopicRecord {
  readonly key: string
  readonly value: string
  readonly headers: Readonly<Record<string, string>>
  readonly partition: number
  readonly offset: bigint
}

/** The differences between the brokers. */
export interface Target {
  /** Variables that point the service at the broker. */
  readonly env: Readonly<Record<string, string>>
  /** Reads the orders topic, from its first record on, until it has seen `count` different events. */
  readonly readTopic: (count: number) => Effect.Effect<ReadonlyArray<TopicRecord>, never, SqlClient.SqlClient>
}

/** The log in Postgres. */
export const embedded: Target = {
  env: {},
  readTopic: Effect.fnUntraced(function* () {
    const sql = yield* SqlClient.SqlClient
    return yield* Effect.orDie(sql<TopicRecord>`
      SELECT record_key AS key, convert_from(record_value, 'UTF8') AS value, record_headers AS headers, partition,
             record_offset AS "offset"
      FROM broker_log WHERE topic = 'orders' ORDER BY partition, record_offset`)
  })
}

/** A real Kafka, with topics and groups of its own, on a cluster that other tests use too. */
export const kafka = (servers: string): Target => {
  const prefix = `e2e-${randomUUID()}-`
  return {
    env: {
      KAFKA_BROKERS: servers,
      KAFKA_PREFIX: prefix,
      CONSUMER_SESSION_TIMEOUT_MILLIS: "6000",
      // Long, so that no send is repeated because the machine stands still for some seconds.
      OUTBOX_SEND_TIMEOUT_MILLIS: "30000",
      OUTBOX_SESSION_TIMEOUT_MILLIS: "60000"
    },
    readTopic: (count) =>
      Effect.map(readTopic(servers, `${prefix}orders`), (records) => {
        const seen = records.map(({ message, partition }): TopicRecord => ({
          key: String(message.key),
          value: String(message.value),
          headers: Object.fromEntries(
            Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)])
          ),
          partition,
          offset: BigInt(message.offset)
        }))
        const events = new Set(seen.map(({ headers }) => headers["event-id"])).size
        if (events < count) throw new Error(`the topic holds ${events} events where ${count} were expected`)
        return seen
      })
  }
}
