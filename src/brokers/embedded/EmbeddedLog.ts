/**
 * The tables of the embedded broker (migrations/mechanism/0110_embedded_broker.sql) and every statement on them.
 *
 * Each statement commits by itself, also where its caller has a transaction open: as with Kafka, an append and a group's offset are no
 * part of a business transaction.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Schema } from "effect"
import type { SqlError, Statement } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import { batchBytes } from "../Envelope.ts"
import type { Batch, ConsumedRecord, TopicInfo } from "../Broker.ts"

/** A group's offset in a partition, with the fencing token of the reader that claimed it. */
export interface Claim {
  readonly nextOffset: bigint
  readonly generation: bigint
}

/** A partition of a topic, as one group reads it. */
export interface GroupPartition {
  readonly group: string
  readonly topic: string
  readonly partition: number
}

/** The name under which the readers of a group divide a topic's partitions (Ownership.ts). */
export const memberGroup = (group: string, topic: string): string => `consume ${group} ${topic}`

/** The records of one fetch, and whether the log had more. */
export interface Fetched {
  readonly records: ReadonlyArray<ConsumedRecord>
  readonly more: boolean
}

/**
 * Bytes of the values of one fetch: Kafka's default for a partition (`max.partition.fetch.bytes`), so that the readers of four groups
 * with eight partitions stay small. The record that reaches the limit is still included, whatever its size.
 */
const maxFetchBytes = 1_048_576

const described = Rows.first(Schema.Struct({ partitions: Schema.Int, maxMessageBytes: Schema.Int }))
const claimed = Rows.one(Schema.Struct({ nextOffset: Schema.BigInt, generation: Schema.BigInt }))
const dropped = Rows.one(Schema.Struct({ dropped: Schema.Int, lastOffset: Schema.NullOr(Schema.BigInt) }))
const listed = Rows.all(Schema.Struct({ topic: Schema.String, partition: Schema.Int }))
const bounded = Rows.all(Schema.Struct({ partition: Schema.Int, start: Schema.BigInt, end: Schema.BigInt }))
const counted = Rows.one(Schema.Struct({ rows: Schema.Number }))

/** The log's statements. Those of every slice and batch (`append`, `fetch`, `commit`) read their rows undecoded. They fail with the driver's `SqlError`; {@link isRefusal} tells bad data from a bad connection. */
export const make = (client: PgClient.PgClient) => {
  /** Runs a statement on a connection of the pool, and never in the caller's transaction. */
  const alone = <A extends object>(
    statement: Statement.Statement<A>
  ): Effect.Effect<ReadonlyArray<A>, SqlError.SqlError> =>
    Effect.updateContext(statement, (context: Context.Context<never>) =>
      Context.omit(client.transactionService)(context)
    )

  return {
    /** Creates the topic with its partitions, unless it exists. */
    create: (topic: string, partitions: number) =>
      Effect.asVoid(
        alone(client`
        WITH made AS (
          INSERT INTO broker_topics (topic, partitions) VALUES (${topic}, ${partitions})
          ON CONFLICT DO NOTHING
          RETURNING topic, partitions
        )
        INSERT INTO broker_partitions (topic, partition)
        SELECT made.topic, partition FROM made, generate_series(0, made.partitions - 1) AS partition`)
      ),

    /** Describes the topic; `undefined` where it does not exist. */
    describe: (topic: string): Effect.Effect<TopicInfo | undefined, SqlError.SqlError> =>
      Effect.map(
        described(
          alone(client`
            SELECT partitions, max_message_bytes AS "maxMessageBytes" FROM broker_topics WHERE topic = ${topic}`)
        ),
        (row) =>
          row && {
            topic,
            ...row,
            retention: { compacts: false, millis: retentionDays * 86_400_000, segmentMillis: 0 }
          }
      ),

    /**
     * Appends the batch in one statement and returns its base offset. `undefined`, with nothing written, where the partition does not
     * exist or the batch is larger than the topic allows.
     */
    append: ({ partition, records, topic }: Batch): Effect.Effect<bigint | undefined, SqlError.SqlError> =>
      Effect.map(
        // The UPDATE comes first and locks the partition's row until the commit. Its RETURNING reads the clock under the lock, so times
        // rise with the offsets.
        // oxlint-disable-next-line paid-once/decoded-rows -- each append of a batch, and one column
        alone(client<{ readonly base_offset: bigint }>`
          WITH target AS (
            UPDATE broker_partitions AS p SET next_offset = p.next_offset + ${records.length}::int4
            FROM broker_topics AS t
            WHERE p.topic = ${topic} AND p.partition = ${partition}
              AND t.topic = p.topic AND t.max_message_bytes >= ${batchBytes(records)}::int8
            RETURNING p.topic, p.partition, p.next_offset - ${records.length}::int4 AS base_offset, clock_now() AS now
          ), appended AS (
            INSERT INTO broker_log (topic, partition, record_offset, record_key, record_value, record_headers, appended_at)
            SELECT target.topic, target.partition, target.base_offset + record.position - 1,
                   record.key, record.value, record.headers::json, target.now
            FROM target, unnest(
              ${records.map((record) => record.key)}::text[],
              ${records.map((record) => record.value)}::bytea[],
              ${records.map((record) => JSON.stringify(record.headers))}::text[]
            ) WITH ORDINALITY AS record(key, value, headers, position)
          )
          SELECT base_offset FROM target`),
        ([row]) => row?.base_offset
      ),

    /** Makes the caller the owner of the group's offset. Commits of the owner before are ignored from now on. */
    claim: ({ group, partition, topic }: GroupPartition): Effect.Effect<Claim, SqlError.SqlError> =>
      claimed(
        alone(client`
          INSERT INTO broker_offsets AS o (consumer_group, topic, partition, next_offset, generation)
          VALUES (${group}, ${topic}, ${partition}, 0, 1)
          ON CONFLICT (consumer_group, topic, partition) DO UPDATE SET generation = o.generation + 1
          RETURNING next_offset AS "nextOffset", generation`)
      ),

    /** The records from `fromOffset` on. Offsets that retention has dropped are skipped. */
    fetch: (
      { partition, topic }: Pick<GroupPartition, "partition" | "topic">,
      fromOffset: bigint,
      maxRecords: number
    ): Effect.Effect<Fetched, SqlError.SqlError> =>
      Effect.map(
        // Postgres knows a value's length without reading it, so the values beyond the limit cost nothing.
        // oxlint-disable-next-line paid-once/decoded-rows -- every record passes here
        alone(client<LogRow>`
          SELECT record_offset, record_key, record_value, record_headers, appended_at FROM (
            SELECT *, sum(octet_length(record_value)) OVER (ORDER BY record_offset) - octet_length(record_value) AS bytes_before
            FROM (
              SELECT record_offset, record_key, record_value, record_headers, appended_at FROM broker_log
              WHERE topic = ${topic} AND partition = ${partition} AND record_offset >= ${fromOffset}
              ORDER BY record_offset LIMIT ${maxRecords}
            ) AS head
          ) AS measured
          WHERE bytes_before < ${maxFetchBytes}
          ORDER BY record_offset`),
        (rows) => ({
          records: rows.map((row) => ({
            offset: row.record_offset,
            key: row.record_key,
            value: row.record_value,
            headers: row.record_headers,
            timestampMillis: row.appended_at.getTime()
          })),
          more:
            rows.length >= maxRecords ||
            rows.reduce((bytes, row) => bytes + row.record_value.length, 0) >= maxFetchBytes
        })
      ),

    /** Moves the group's offset forward to `nextOffset`; false, with nothing changed, where another reader has claimed it since. */
    commit: ({ group, partition, topic }: GroupPartition, generation: bigint, nextOffset: bigint) =>
      Effect.map(
        alone(client`
          UPDATE broker_offsets SET next_offset = greatest(next_offset, ${nextOffset})
          WHERE consumer_group = ${group} AND topic = ${topic} AND partition = ${partition} AND generation = ${generation}
          RETURNING generation`),
        (rows) => rows.length > 0
      ),

    /**
     * Deletes the partition's first records from `fromOffset` on that are older than `retentionDays`, at most `maxRecords`. Returns how
     * many, and the offset at which the next call starts.
     */
    dropHead: (
      { partition, topic }: Pick<GroupPartition, "partition" | "topic">,
      fromOffset: bigint,
      retentionDays: number,
      maxRecords: number
    ) =>
      Effect.map(
        dropped(
          alone(client`
          WITH bound AS MATERIALIZED (
            SELECT clock_now() - make_interval(hours => 24 * ${retentionDays}::int4) AS oldest_kept
          ), head AS MATERIALIZED (
            SELECT record_offset, appended_at FROM broker_log
            WHERE topic = ${topic} AND partition = ${partition} AND record_offset >= ${fromOffset}
            ORDER BY record_offset LIMIT ${maxRecords}
          ), dropped AS (
            DELETE FROM broker_log
            WHERE topic = ${topic} AND partition = ${partition} AND record_offset >= ${fromOffset}
              AND record_offset <= (SELECT max(record_offset) FROM head)
              -- Only up to the first record to keep: the log gets no holes, also where a clock was set back.
              AND record_offset < coalesce(
                (SELECT min(record_offset) FROM head, bound WHERE appended_at >= oldest_kept), 9223372036854775807)
            RETURNING record_offset
          )
          SELECT count(*)::int4 AS dropped, max(record_offset) AS "lastOffset" FROM dropped`)
        ),
        ({ dropped, lastOffset }) => ({ dropped, nextOffset: lastOffset === null ? fromOffset : lastOffset + 1n })
      ),

    /** The topic's partitions: the offsets of the first record that is left, and behind the last one. None where the topic does not exist. */
    bounds: (topic: string) =>
      bounded(
        alone(client`
          SELECT partition, next_offset AS "end", coalesce((
                   SELECT record_offset FROM broker_log AS l WHERE l.topic = p.topic AND l.partition = p.partition
                   ORDER BY record_offset LIMIT 1), next_offset) AS start
          FROM broker_partitions AS p WHERE topic = ${topic} ORDER BY partition`)
      ),

    /** Every partition of every topic. */
    partitions: listed(alone(client`SELECT topic, partition FROM broker_partitions ORDER BY topic, partition`))
  }
}

interface LogRow {
  readonly record_offset: bigint
  readonly record_key: string
  readonly record_value: Uint8Array
  readonly record_headers: Readonly<Record<string, string>>
  readonly appended_at: Date
}

/**
 * Whether Postgres refused the data itself, so that another attempt fails the same way. Class 22 is "data exception" (a NUL in a key, for
 * example), 23 a broken constraint, 54 a limit of the server.
 */
export const isRefusal = (error: SqlError.SqlError): boolean => {
  const cause: unknown = error.reason.cause
  const code: unknown = cause instanceof Error && "code" in cause ? cause.code : undefined
  return typeof code === "string" && /^(22|23|54)/.test(code)
}

/** How long the log keeps a record, in days: Kafka's default. */
export const retentionDays = 7

/** Rows of one delete. It takes a few milliseconds, so that retention does not delay writers. */
const maxDroppedAtOnce = 1_000

/**
 * Deletes the records that are older than `retentionDays`, read or not, and returns how many; 0 days keep everything.
 *
 * **Details**
 *
 * Records are deleted from each partition's lowest offset on, in bounded chunks that commit one by one, so a run may stop half-way.
 * Offsets are never used again. A group whose next record was dropped continues at the first record that is left.
 */
export const dropExpired: (retentionDays: number) => Effect.Effect<number, SqlError.SqlError, PgClient.PgClient> =
  Effect.fn("EmbeddedBroker.dropExpired")(function* (retentionDays: number) {
    if (retentionDays === 0) return 0
    const log = make(yield* PgClient.PgClient)
    let total = 0
    for (const partition of yield* log.partitions) {
      let dropped: number
      // Each chunk starts after the last one: vacuum may not yet have removed the dead rows of this run's deletes.
      let nextOffset = 0n
      do {
        ;({ dropped, nextOffset } = yield* log.dropHead(partition, nextOffset, retentionDays, maxDroppedAtOnce))
        total += dropped
      } while (dropped === maxDroppedAtOnce)
    }
    return total
  })

/** How many records {@link dropExpired} would delete. It reads the whole log, so it is for a dry run only. */
export const countExpired: (retentionDays: number) => Effect.Effect<number, SqlError.SqlError, PgClient.PgClient> =
  Effect.fn("EmbeddedBroker.countExpired")(function* (retentionDays: number) {
    const sql = yield* PgClient.PgClient
    const { rows } = yield* counted(sql`
      WITH oldest_kept AS (
        -- Records are deleted up to the first one to keep, as in dropHead.
        SELECT topic, partition, min(record_offset) AS record_offset FROM broker_log
        WHERE appended_at >= clock_now() - make_interval(hours => 24 * ${retentionDays}::int4) GROUP BY topic, partition
      )
      SELECT count(*)::float8 AS rows FROM broker_log LEFT JOIN oldest_kept AS kept USING (topic, partition)
      WHERE ${retentionDays}::int4 > 0 AND (kept.record_offset IS NULL OR broker_log.record_offset < kept.record_offset)`)
    return rows
  })
