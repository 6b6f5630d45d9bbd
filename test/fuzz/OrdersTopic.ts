/** The orders topic of either broker, for a writer that is none of ours. */
import { Effect, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { Kafka, logLevel } from "kafkajs"
import { consumerNames } from "../../src/main/Names.ts"
import { topicEnds } from "../support/topicEnds.ts"

export interface HostileRecord {
  readonly key: string | null
  readonly value: Buffer | null
  readonly headers: Readonly<Record<string, string>>
}

export interface OrdersTopic {
  /** Writes the record to the partition, and returns its offset. */
  readonly append: (partition: number, record: HostileRecord) => Effect.Effect<bigint>
  /** A record that is in the partition, if there is one. `number` picks it. */
  readonly existing: (partition: number, number: number) => Effect.Effect<HostileRecord | undefined>
  /** Each consumer that has not come to the end of a partition, as a sentence. */
  readonly stalled: Effect.Effect<ReadonlyArray<string>>
}

export const partitions = 8
const topic = "orders"

/** The log in Postgres. It is written as the broker does, under the lock of the partition's row. It has no records without key or value. */
export const embedded: Effect.Effect<OrdersTopic, never, SqlClient.SqlClient> = Effect.map(
  SqlClient.SqlClient,
  (sql) => ({
    append: (partition, { headers, key, value }) =>
      sql<{ readonly offset: bigint }>`
      WITH target AS (
        UPDATE broker_partitions SET next_offset = next_offset + 1 WHERE topic = ${topic} AND partition = ${partition}::int4
        RETURNING next_offset - 1 AS base)
      INSERT INTO broker_log (topic, partition, record_offset, record_key, record_value, record_headers, appended_at)
      SELECT ${topic}, ${partition}::int4, base, ${key ?? ""}, ${value ?? Buffer.alloc(0)}, ${JSON.stringify(headers)}::text::json, clock_now()
      FROM target
      RETURNING record_offset AS "offset"`.pipe(
        Effect.map((rows) => rows[0]!.offset),
        Effect.orDie
      ),
    existing: (partition, number) =>
      sql<{ readonly key: string; readonly value: Uint8Array; readonly headers: Readonly<Record<string, string>> }>`
      SELECT record_key AS key, record_value AS value, record_headers AS headers FROM broker_log
      WHERE topic = ${topic} AND partition = ${partition}::int4 ORDER BY record_offset
      OFFSET ${number}::int8 % (SELECT greatest(count(*), 1) FROM broker_log WHERE topic = ${topic} AND partition = ${partition}::int4)
      LIMIT 1`.pipe(
        Effect.map(([row]) => row && { ...row, value: Buffer.from(row.value) }),
        Effect.orDie
      ),
    stalled: sql<{ readonly sentence: string }>`
    SELECT o.consumer_group || ' has stopped at ' || o.next_offset || ' of ' || p.next_offset || ' in partition ' || p.partition AS sentence
    FROM broker_partitions AS p LEFT JOIN broker_offsets AS o USING (topic, partition)
    WHERE p.topic = ${topic} AND coalesce(o.next_offset, 0) < p.next_offset`.pipe(
      Effect.map((rows) => rows.map(({ sentence }) => sentence)),
      Effect.orDie
    )
  })
)

/** A topic of a real Kafka, written and watched by a plain kafkajs. */
export const kafka = (servers: string, prefix: string): Effect.Effect<OrdersTopic, never, Scope.Scope> =>
  Effect.gen(function* () {
    const client = new Kafka({ clientId: "fuzzer", brokers: servers.split(","), logLevel: logLevel.NOTHING })
    const producer = client.producer()
    const admin = client.admin()
    yield* Effect.acquireRelease(
      Effect.promise(() => Promise.all([producer.connect(), admin.connect()])),
      () => Effect.promise(() => Promise.all([producer.disconnect(), admin.disconnect()]))
    )
    const written: Array<HostileRecord> = []
    return {
      append: (partition, record) =>
        Effect.promise(async () => {
          written.push(record)
          const [sent] = await producer.send({ topic: prefix + topic, acks: -1, messages: [{ ...record, partition }] })
          return BigInt(sent?.baseOffset ?? -1)
        }),
      existing: (_, number) => Effect.sync(() => written[number % Math.max(written.length, 1)]),
      stalled: Effect.gen(function* () {
        const ends = yield* topicEnds(client, prefix + topic)
        const groups = yield* Effect.promise(() =>
          Promise.all(
            consumerNames.map(async (name) => ({
              name,
              offsets: (await admin.fetchOffsets({ groupId: prefix + name, topics: [prefix + topic] })).flatMap(
                (one) => one.partitions
              )
            }))
          )
        )
        return groups.flatMap(({ name, offsets }) =>
          ends.flatMap(({ end, partition }) => {
            const at = BigInt(offsets.find((one) => one.partition === partition)?.offset ?? 0)
            return at < end ? [`${name} has stopped at ${at} of ${end} in partition ${partition}`] : []
          })
        )
      })
    }
  })
