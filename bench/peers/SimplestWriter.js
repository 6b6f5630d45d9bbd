/** The writer beside the simplest relay: a transaction with the event's plain INSERT, and its NOTIFY if `PEER_NOTIFY=on`. */
import { answerWriter } from "../outside/OpenLoop.ts"
import { connect } from "./Connections.js"

const insert = `INSERT INTO peer_outbox (topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, trace_id, span_id, data)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
const write = {
  name: "write",
  // In one statement, which saves a round trip.
  text:
    process.env.PEER_NOTIFY === "on"
      ? `WITH written AS (${insert} RETURNING 1) SELECT pg_notify('peer_outbox', '') FROM written`
      : insert
}

const hex = (uuid) => uuid.replaceAll("-", "")

answerWriter(async () => {
  const client = await connect()
  return async ({ aggregateId, aggregateType, data, topic, version }, isKept) => {
    const trace = hex(crypto.randomUUID())
    const span = hex(crypto.randomUUID()).slice(0, 16)
    await client.query("BEGIN")
    await client.query({
      ...write,
      values: [topic, "Measured", 1, aggregateType, aggregateId, version, trace, span, JSON.stringify(data)]
    })
    await client.query(isKept ? "COMMIT" : "ROLLBACK")
  }
})
