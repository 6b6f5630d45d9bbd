/** A writer for our relay that is as plain as the simplest's: a transaction with the append's own statement, and its NOTIFY. */
import { randomUUID } from "node:crypto"
import { appendText, encodeEvent, valuesOf } from "../../src/outbox/EventRows.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { channel } from "../../src/platform/ControlConnection.ts"
import { answerWriter } from "../outside/OpenLoop.ts"
import { connect } from "./Connections.js"

const write = {
  name: "write",
  text: `WITH written AS (${appendText(true)}) SELECT pg_notify('${channel}', 'outbox ' || $1::int2) FROM written`
}

const hex = (uuid) => uuid.replaceAll("-", "")

/** A UUIDv7: the relay reads the time of an event from its id. */
const nextId = () => {
  const millis = Date.now().toString(16).padStart(12, "0")
  return `${millis.slice(0, 8)}-${millis.slice(8)}-7${randomUUID().slice(15)}`
}

/** Far above the load's. */
const maxEventBytes = 900_000

answerWriter(async () => {
  const client = await connect()
  return async ({ aggregateId, aggregateType, data, topic, version }, isKept) => {
    const aggregate = { topic, aggregateType, aggregateId }
    const row = encodeEvent({ eventType: "Measured", schemaVersion: 1, data }, aggregate, maxEventBytes, nextId)
    const trace = { traceId: hex(randomUUID()), spanId: hex(randomUUID()).slice(0, 16) }
    await client.query("BEGIN")
    await client.query({
      ...write,
      values: [...valuesOf(aggregate, laneOf(aggregateId), [row.success], trace), version]
    })
    await client.query(isKept ? "COMMIT" : "ROLLBACK")
  }
})
