/** The smallest aggregate, a row with a version and a status, to measure a write with and without its event. */
import { Effect } from "effect"
import type { Statement } from "effect/sql"
import { Outbox } from "../src/outbox/Outbox.ts"
import { Transaction } from "../src/platform/Transaction.ts"
import { Side } from "./Environment.ts"
import { aggregates, dataOf, topic } from "./Workload.ts"

/** An event's data as an application has it. It is encoded at each write. */
const data: unknown = JSON.parse(dataOf(400))

/** Makes the table, and the rows that are updated. */
export const make = Effect.gen(function* () {
  const sql = yield* Side
  yield* sql`CREATE TABLE IF NOT EXISTS bench_aggregates (id text PRIMARY KEY, version int NOT NULL, status text NOT NULL) WITH (fillfactor = 50)`
  yield* sql`CREATE TABLE IF NOT EXISTS bench_usual_outbox (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text NOT NULL, key text NOT NULL, payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz)`
  yield* sql`CREATE TABLE IF NOT EXISTS bench_barest_outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data text NOT NULL)`
  const ids = aggregates()
  yield* sql`INSERT INTO bench_aggregates SELECT id, 1, 'new' FROM unnest(${ids}::text[]) AS id`
  return ids
})

const streamOf = (id: string) => ({ topic, aggregateType: "Bench", aggregateId: id })
const event = { eventType: "Measured", schemaVersion: 1, data }

const writeOn = (sql: Statement.Constructor, id: string) =>
  sql<{ readonly version: number }>`
    UPDATE bench_aggregates SET version = version + 1, status = 'changed' WHERE id = ${id} RETURNING version`

const write = (id: string) => Effect.map(Transaction, ({ sql }) => writeOn(sql, id))

/** The change alone, in the client's current transaction. */
export const updateOn = (sql: Statement.Constructor, id: string) => Effect.asVoid(writeOn(sql, id))

/** The change alone. */
export const update = Effect.fnUntraced(function* (id: string) {
  yield* yield* write(id)
})

/** The change with its event, in one statement. */
export const save = Effect.fnUntraced(function* (id: string) {
  const outbox = yield* Outbox
  yield* outbox.save(streamOf(id), [event], yield* write(id))
})

/** The change and then its event, in a second statement, as most articles do it. */
export const updateAndAppend = Effect.fnUntraced(function* (id: string) {
  const outbox = yield* Outbox
  const [row] = yield* yield* write(id)
  yield* outbox.append(streamOf(id), row?.version ?? 1, [event])
})

/** The change and a row as in most articles: no versions, no order, no lanes, no wake-up. */
export const updateAndUsual = Effect.fnUntraced(function* (id: string) {
  yield* yield* write(id)
  const { sql } = yield* Transaction
  yield* sql`INSERT INTO bench_usual_outbox (topic, key, payload) VALUES (${topic}, ${id}, ${JSON.stringify(data)}::text::jsonb)`
})

/** The change and the smallest possible outbox row, a number and a text, in one statement: the least cost of any outbox table. */
export const updateAndBarest = Effect.fnUntraced(function* (id: string) {
  const { sql } = yield* Transaction
  yield* sql`
    WITH written AS (${yield* write(id)})
    INSERT INTO bench_barest_outbox (data) SELECT ${JSON.stringify(data)} FROM written RETURNING id`
})

/** A new aggregate with its first event. */
export const create = Effect.fnUntraced(function* (id: string) {
  const outbox = yield* Outbox
  const { sql } = yield* Transaction
  yield* outbox.save(
    streamOf(id),
    [event],
    sql<{ readonly version: number }>`INSERT INTO bench_aggregates VALUES (${id}, 1, 'new') RETURNING version`
  )
})
