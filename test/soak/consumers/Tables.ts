/** The rows that the four subscribers have written, in the shape of {@link Books}, and how they differ from the expected ones. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { Books } from "./Books.ts"
import { stock } from "./OrderHistories.ts"

export const consumers = ["receipts", "inventory", "billing", "analytics"] as const

/** The most differences of a kind that are printed in full: a few hundred look alike. */
const told = 5

type Rows = ReadonlyMap<string, string>

/** Every key whose rows differ, as sentences. */
const differences = (what: string, expected: Rows, found: Rows): ReadonlyArray<string> => {
  const all = [...new Set([...expected.keys(), ...found.keys()])].flatMap((key) => {
    const [wanted, had] = [expected.get(key), found.get(key)]
    return wanted === had
      ? []
      : [`${what} ${key}: the topic says ${wanted ?? "there is none"}, the table ${had ?? "has none"}`]
  })
  return all.length > told ? [...all.slice(0, told), `${what}: and ${all.length - told} more differences`] : all
}

/** One text column as key, one as value. */
const rows = (found: ReadonlyArray<{ readonly key: string; readonly value: string }>): Rows =>
  new Map(found.map(({ key, value }) => [key, value]))

/** Lists the scarce skus. */
export const listStock = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    INSERT INTO inventory_stock (sku, available)
    SELECT * FROM unnest(${[...stock.keys()]}::text[], ${[...stock.values()].map(BigInt)}::int8[])`
})

type Row = { readonly key: string; readonly value: string }

/** Compares the reservations. For a scarce sku it checks only that each order was decided, and that the stock adds up. */
const inventory = Effect.fnUntraced(function* (books: Books) {
  const sql = yield* SqlClient.SqlClient
  const found = yield* sql<Row & { readonly sku: string; readonly status: string; readonly counted: boolean }>`
    SELECT order_id || ' ' || sku AS key, quantity || CASE status WHEN 'released' THEN ' free' ELSE ' held' END AS value, sku, status, counted
    FROM inventory_reservations`
  const soldOut = new Set(found.filter(({ status }) => status === "out_of_stock").map(({ key }) => key))
  const decided = (value: string, key: string) => (soldOut.has(key) ? value.replace(/ \w+$/, " sold out") : value)
  const problems = [
    ...differences(
      "reservation",
      new Map([...books.reservations].map(([key, value]) => [key, decided(value, key)])),
      new Map(found.map(({ key, value }) => [key, decided(value, key)]))
    ),
    ...found
      .filter(
        ({ counted, sku, status }) => counted !== stock.has(sku) || (status === "out_of_stock" && !stock.has(sku))
      )
      .map(
        ({ key, status }) => `reservation ${key}: ${status}, though its sku is ${stock.has(key) ? "" : "not "}scarce`
      )
  ]
  const left = yield* sql<Row>`
    SELECT sku AS key, (available + coalesce((SELECT sum(quantity) FROM inventory_reservations AS r
                          WHERE r.sku = s.sku AND r.counted AND r.status = 'reserved'), 0))::text AS value
    FROM inventory_stock AS s`
  const total = new Map([...stock].map(([sku, count]) => [sku, String(count)]))
  return [...problems, ...differences("stock (left and reserved) of", total, rows(left))]
})

/** Every difference between the tables and the topic. */
export const compare = Effect.fnUntraced(function* (books: Books) {
  const sql = yield* SqlClient.SqlClient
  const problems = [...books.problems, ...(yield* inventory(books))]
  const ledger = yield* sql<Row>`
    SELECT event_id::text AS key,
           concat_ws(' ', order_id, payment_id, debit_account, credit_account, amount_minor, currency) AS value
    FROM billing_ledger`
  problems.push(...differences("ledger", books.ledger, rows(ledger)))
  const balance = yield* sql<{ readonly currency: string }>`
    SELECT currency FROM billing_balances GROUP BY currency HAVING sum(balance_minor) <> 0`
  problems.push(...balance.map(({ currency }) => `the books do not balance in ${currency}`))
  const revenue = yield* sql<Row>`
    SELECT day || ' ' || currency AS key, amount_minor::text AS value FROM revenue_daily`
  problems.push(...differences("revenue of", books.revenue, rows(revenue)))
  const mails = yield* sql<Row & { readonly tasks: number }>`
    SELECT idempotency_key AS key, min((payload ->> 'kind') || ' ' || split_part(payload ->> 'to', '@', 1) || '@') AS value,
           count(*)::int4 AS tasks
    FROM outbox_tasks WHERE task_type = 'email' GROUP BY idempotency_key`
  problems.push(...differences("mail for", books.mails, rows(mails)))
  problems.push(...mails.filter(({ tasks }) => tasks > 1).map(({ key, tasks }) => `${tasks} mails for ${key}`))
  for (const consumer of consumers) {
    const applied = yield* sql<Row>`
      SELECT event_id::text AS key, '' AS value FROM processed_events WHERE consumer_name = ${consumer}`
    const events = new Map([...books.applied.keys()].map((id) => [id, ""]))
    problems.push(...differences(`${consumer}: mark of`, events, rows(applied)))
    const cursors = yield* sql<Row>`
      SELECT aggregate_id AS key, version::text AS value FROM consumer_cursors WHERE consumer_name = ${consumer}`
    problems.push(...differences(`${consumer}: cursor of`, books.cursors, rows(cursors)))
    const dead = yield* sql<Row>`
      SELECT event_id AS key, aggregate_id AS value FROM inbox_dead_letters WHERE consumer_name = ${consumer} AND status = 'dead'`
    problems.push(...differences(`${consumer}: dead letter`, books.dead, rows(dead)))
    const parked = yield* sql<Row>`
      SELECT event_id AS key, aggregate_id AS value FROM inbox_parked WHERE consumer_name = ${consumer}`
    problems.push(...differences(`${consumer}: parked`, books.parked, rows(parked)))
    const holds = yield* sql<Row>`
      SELECT aggregate_id AS key, event_id || ' ' || status AS value FROM inbox_holds WHERE consumer_name = ${consumer}`
    const held = new Map([...books.dead].map(([id, aggregate]) => [aggregate, `${id} dead`]))
    problems.push(...differences(`${consumer}: hold on`, held, rows(holds)))
  }
  return problems
})
