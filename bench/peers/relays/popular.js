/**
 * The loop of the popular articles, in their sixty lines: rows that nobody else has locked, one send for each, a flag, and a pause.
 *
 * One process keeps an aggregate's order. Two reorder it: SKIP LOCKED hands a later event to the second one while the first still sends.
 */
import { connect, kafka } from "../Connections.js"
import { toMessage } from "../Record.js"

/** Articles say 10 to 100 rows and 1 to 5 s. A pause that short is the loop at its best. */
const batchSize = 100
const pollMillis = 50

export const tables = async (client) => {
  await client.query(`
    CREATE TABLE IF NOT EXISTS popular_outbox (
      id           uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
      topic        text        NOT NULL,
      payload      jsonb       NOT NULL,
      created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
      published_at timestamptz
    );
    CREATE INDEX IF NOT EXISTS popular_outbox_unpublished ON popular_outbox (created_at) WHERE published_at IS NULL;`)
}

const insert = { name: "write", text: "INSERT INTO popular_outbox (topic, payload) VALUES ($1, $2)" }

export const openWriter = async () => (client, topic, event) =>
  client.query({ ...insert, values: [topic, JSON.stringify(event)] })

export const fill = (client, topic, events) =>
  client.query("INSERT INTO popular_outbox (topic, payload) SELECT $1, unnest($2::jsonb[])", [
    topic,
    events.map((event) => JSON.stringify(event))
  ])

export const relay = async () => {
  const client = await connect()
  const producer = kafka.producer()
  await producer.connect()
  const stop = new AbortController()

  const drainOnce = async () => {
    await client.query("BEGIN")
    const { rows } = await client.query(
      `SELECT id, topic, payload FROM popular_outbox WHERE published_at IS NULL
       ORDER BY created_at LIMIT ${batchSize} FOR UPDATE SKIP LOCKED`
    )
    for (const { payload, topic } of rows) await producer.send({ topic, acks: -1, messages: [toMessage(payload)] })
    if (rows.length > 0) {
      await client.query("UPDATE popular_outbox SET published_at = now() WHERE id = ANY ($1)", [
        rows.map(({ id }) => id)
      ])
    }
    await client.query("COMMIT")
    return rows.length
  }

  const run = async () => {
    while (!stop.signal.aborted) {
      if ((await drainOnce()) < batchSize) await new Promise((resolve) => setTimeout(resolve, pollMillis))
    }
  }
  const running = run()
  return async () => {
    stop.abort()
    await running
    await producer.disconnect()
    await client.end()
  }
}
