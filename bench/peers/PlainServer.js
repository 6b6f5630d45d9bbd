/** Orders with `node:http` and `pg` alone: the same rows in one transaction, and no checks, keys, traces, metrics, or limits. */
import { randomUUID } from "node:crypto"
import Http from "node:http"
import { answer } from "../outside/Child.ts"
import { bodyOf, listen, pool, transaction } from "./Plain.js"

const tables = `
  CREATE TABLE plain_orders (id uuid PRIMARY KEY, customer_id text NOT NULL, currency text NOT NULL, status text NOT NULL, version int NOT NULL,
                             total_amount_minor bigint NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL);
  CREATE INDEX plain_orders_customer ON plain_orders (customer_id, id);
  CREATE TABLE plain_lines (order_id uuid NOT NULL REFERENCES plain_orders, position int NOT NULL, sku text NOT NULL, quantity int NOT NULL,
                            unit_amount_minor bigint NOT NULL, PRIMARY KEY (order_id, position));
  CREATE TABLE plain_outbox (id uuid PRIMARY KEY, topic text NOT NULL, key text NOT NULL, type text NOT NULL, data json NOT NULL,
                             at timestamptz NOT NULL)`

const place = async ({ currency, customerId, lines }) => {
  const id = randomUUID()
  const total = lines.reduce((sum, { quantity, unitAmountMinor }) => sum + quantity * unitAmountMinor, 0)
  const order = { id, customerId, currency, status: "pending", version: 1, totalAmountMinor: total, lines }
  return transaction(async (client) => {
    await client.query({
      name: "order",
      text: "INSERT INTO plain_orders VALUES ($1, $2, $3, 'pending', 1, $4, clock_timestamp(), clock_timestamp())",
      values: [id, customerId, currency, total]
    })
    await client.query({
      name: "lines",
      text: `INSERT INTO plain_lines SELECT $1, ordinality, sku, quantity, amount
             FROM unnest($2::text[], $3::int[], $4::bigint[]) WITH ORDINALITY AS line(sku, quantity, amount, ordinality)`,
      values: [
        id,
        lines.map(({ sku }) => sku),
        lines.map(({ quantity }) => quantity),
        lines.map(({ unitAmountMinor }) => unitAmountMinor)
      ]
    })
    await client.query({
      name: "event",
      text: "INSERT INTO plain_outbox VALUES ($1, 'orders', $2, 'OrderPlaced', $3, clock_timestamp())",
      values: [randomUUID(), id, JSON.stringify(order)]
    })
    return order
  })
}

const read = async (id) => {
  const orders = await pool.query({ name: "read", text: "SELECT * FROM plain_orders WHERE id = $1", values: [id] })
  const text = "SELECT sku, quantity, unit_amount_minor FROM plain_lines WHERE order_id = $1 ORDER BY position"
  const lines = await pool.query({ name: "read lines", text, values: [id] })
  return { ...orders.rows[0], lines: lines.rows }
}

const server = Http.createServer((request, response) => {
  const send = (status, body) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
  const work = async () => {
    if (request.url === "/health/live") return send(200, { status: "live" })
    if (request.method === "GET") return send(200, await read(request.url.split("/")[2]))
    return send(201, await place(await bodyOf(request)))
  }
  work().catch((error) => send(500, { error: String(error) }))
})

answer({
  listen: async () => {
    await pool.query(tables)
    return listen(server)
  }
})
