/**
 * The expected events, to compare with the published ones. Every event carries a token, and the same transaction inserts the token into a
 * table. A transaction that rolled back leaves no token there.
 */
import { Duration, Effect, Random, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { Outbox } from "../../src/outbox/Outbox.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { eventually } from "./Counters.ts"
import { readTopic } from "./readTopic.ts"

export const topic = "ledger"

/** An event that committed. */
export interface Committed {
  readonly id: string
  readonly version: number
  readonly token: string
}

/** A record of the topic, as a reader that shares no code with the dispatcher sees it. */
export interface Delivered extends Committed {
  readonly partition: number
  readonly offset: bigint
}

export const makeTables = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE ledger_heads (id text PRIMARY KEY, version int NOT NULL)`
  yield* sql`CREATE TABLE ledger (id text, version int, token text, PRIMARY KEY (id, version))`
})

/** Appends `count` events to the aggregate, inside the surrounding transaction. */
export const append = Effect.fnUntraced(function* (id: string, count = 1, onTopic = topic) {
  const { sql } = yield* Transaction
  const outbox = yield* Outbox
  const event = (token: string) => ({ eventType: "Entered", schemaVersion: 1, data: { token } })
  const tokens = Array.from({ length: count }, () => randomUUID())
  const [first = randomUUID(), ...rest] = tokens
  const { version } = yield* outbox.save(
    { topic: onTopic, aggregateType: "Ledger", aggregateId: id },
    [event(first), ...rest.map(event)],
    sql<{ readonly version: number }>`
      INSERT INTO ledger_heads VALUES (${id}, ${count}::int4)
      ON CONFLICT (id) DO UPDATE SET version = ledger_heads.version + ${count}::int4
      RETURNING version`
  )
  yield* sql`
    INSERT INTO ledger
    SELECT ${id}, ${version - count}::int4 + position, token FROM unnest(${tokens}::text[]) WITH ORDINALITY AS entry(token, position)`
})

class RolledBack extends Schema.TaggedError<RolledBack>()("RolledBack", {}) {}

/** The longest wait of a late committer: long compared with a batch, which takes some milliseconds. */
const latestMillis = 100

/**
 * One transaction of a busy system, with one to three events of one aggregate, or of two. Some transactions commit late, and some roll back
 * after they have appended.
 */
export const step = Effect.fnUntraced(function* (aggregates: number) {
  const pick = Effect.map(Random.nextIntBetween(1, aggregates), (index) => `ledger-${String(index).padStart(4, "0")}`)
  const dice = yield* Random.nextIntBetween(0, 99)
  const ids = dice < 10 ? [...new Set([yield* pick, yield* pick])].toSorted() : [yield* pick]
  const count = yield* Random.nextIntBetween(1, 3)
  yield* Transaction.run(
    Effect.gen(function* () {
      for (const id of ids) yield* append(id, count)
      if (dice >= 85) yield* Effect.sleep(Duration.millis(yield* Random.nextIntBetween(0, latestMillis)))
      if (dice >= 93) return yield* new RolledBack()
    })
  ).pipe(Effect.catchTag("RolledBack", () => Effect.void))
})

export const committed = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<Committed>`SELECT id, version, token FROM ledger ORDER BY id, version`
})

/** The result of the comparison. No problems: no event is missing, none was published without a commit, and none overtook another. */
export interface Verdict {
  readonly problems: ReadonlyArray<string>
  readonly committed: number
  readonly delivered: number
  readonly duplicates: number
}

/** A broken run would print thousands of problems; a few are enough to understand it. */
const problemsShown = 10

/**
 * Compares the topic's versions with the committed ones. `delivered` is in offset order within each partition.
 */
export const check = (delivered: ReadonlyArray<Delivered>, truth: ReadonlyArray<Committed>): Verdict => {
  const expected = new Map(truth.map((event) => [`${event.id} v${event.version}`, event.token]))
  const reached = new Map<string, number>()
  const partitions = new Map<string, number>()
  const problems: Array<string> = []
  for (const { id, offset, partition, token, version } of delivered) {
    const place = `${id} v${version} (partition ${partition}, offset ${offset})`
    if (expected.get(`${id} v${version}`) !== token) problems.push(`${place} was not committed`)
    if ((partitions.get(id) ?? partition) !== partition) problems.push(`${place} is in a second partition`)
    partitions.set(id, partition)
    const last = reached.get(id) ?? 0
    if (version > last + 1) problems.push(`${place} overtook v${last + 1}`)
    if (version === last + 1) reached.set(id, version)
  }
  const missing = truth.filter(({ id, version }) => version > (reached.get(id) ?? 0))
  problems.push(...missing.map(({ id, version }) => `${id} v${version} is missing, or was overtaken`))
  return {
    problems: problems.slice(0, problemsShown),
    committed: truth.length,
    delivered: delivered.length,
    duplicates: delivered.length - (truth.length - missing.length)
  }
}

/** The topic of the embedded broker, read past its code. */
export const deliveredEmbedded = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<Delivered>`
    SELECT record_key AS id, (value ->> 'aggregateVersion')::int4 AS version, value -> 'data' ->> 'token' AS token,
           partition, record_offset AS "offset"
    FROM broker_log, LATERAL (SELECT convert_from(record_value, 'UTF8')::json AS value) AS decoded
    WHERE topic = ${topic} ORDER BY partition, record_offset`
})

/** How many records the embedded broker holds. */
export const countEmbedded = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly count: number }>`
    SELECT coalesce(sum(next_offset), 0)::int4 AS count FROM broker_partitions WHERE topic = ${topic}`
  return rows[0]?.count ?? 0
})

/** How many events the archive holds. */
export const archived = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly count: number }>`SELECT count(*)::int4 AS count FROM event_log`
  return rows[0]?.count ?? 0
})

/** Waits until every event that is in the queue now has left it. Later events may stay. */
export const presentDrained = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [last] = yield* sql<{ readonly seq: bigint | null }>`SELECT max(seq) AS seq FROM outbox_events`
  yield* eventually(
    "the events queued now to be published",
    Effect.map(
      sql`SELECT 1 AS one FROM outbox_events WHERE seq <= ${last?.seq ?? 0n}::int8 LIMIT 1`,
      (rows) => rows.length === 0
    )
  )
})

const Value = Schema.fromJsonString(
  Schema.Struct({ aggregateVersion: Schema.Int, data: Schema.Struct({ token: Schema.String }) })
)
const decodeValue = Schema.decodeUnknownSync(Value)

/** The topic of a real Kafka. */
export const deliveredKafka = (servers: string, wireTopic: string) =>
  Effect.map(readTopic(servers, wireTopic), (records) =>
    records.map(({ message, partition }): Delivered => {
      const { aggregateVersion, data } = decodeValue(String(message.value))
      return {
        id: String(message.key),
        version: aggregateVersion,
        token: data.token,
        partition,
        offset: BigInt(message.offset)
      }
    })
  )
