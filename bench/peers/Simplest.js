/**
 * The simplest relay that loses nothing and keeps an aggregate's order: one leader, and one transaction around the send.
 *
 *     BEGIN → DELETE up to 1,000 rows in order (and INSERT them into the archive) → send → COMMIT
 *
 * `PEER_ARCHIVE=on` keeps the published rows, in the same statement. `PEER_NOTIFY=on` listens for the writers' NOTIFY. Without it the relay
 * polls.
 *
 * It is tuned as its user would tune it: prepared statements, an asynchronous commit of the delete, one request to Kafka for all partitions, and
 * a vacuum that suits a queue. It has no holds: one event that the broker refuses stops everything. A second
 * process only waits. A transaction stays open across each send.
 */
import { Partitioners } from "kafkajs"
import { connect, kafka } from "./Connections.js"

const hasArchive = process.env.PEER_ARCHIVE === "on"
const hasNotify = process.env.PEER_NOTIFY === "on"

/** Rows in one transaction and one send. */
const batchSize = 1_000
/** Between two looks at the queue while it is empty; with NOTIFY the net for a notification that was lost. */
const pollMillis = 5
/** Any number, the same in each process: its lock makes the leader. */
const leaderLock = 7_210_022

const columns = `id, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
  to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS occurred_at, trace_id, span_id, data::text AS data`
const first = `DELETE FROM peer_outbox WHERE id = ANY (ARRAY(SELECT id FROM peer_outbox ORDER BY id LIMIT ${batchSize}))`
const take = {
  name: "take",
  text: hasArchive
    ? `WITH gone AS (${first} RETURNING *) INSERT INTO peer_archive SELECT *, now() FROM gone RETURNING ${columns}`
    : `${first} RETURNING ${columns}`
}

/** The same record as the service's: Envelope.ts. */
const toMessage = (row) => ({
  key: row.aggregate_id,
  value:
    `{"eventId":"${row.event_id}","eventType":${JSON.stringify(row.event_type)},"schemaVersion":${row.schema_version}` +
    `,"occurredAt":"${row.occurred_at}","traceId":"${row.trace_id}","aggregateType":${JSON.stringify(row.aggregate_type)}` +
    `,"aggregateId":${JSON.stringify(row.aggregate_id)},"aggregateVersion":${row.aggregate_version},"data":${row.data}}`,
  headers: {
    "event-id": row.event_id,
    outbox_id: row.event_id,
    "event-type": row.event_type,
    "schema-version": String(row.schema_version),
    traceparent: `00-${row.trace_id}-${row.span_id}-01`
  }
})

// A crash of Postgres that loses the delete repeats its events. By its statistics the queue is empty, and worth no index.
const client = await connect("-c synchronous_commit=off -c enable_seqscan=off -c enable_bitmapscan=off")
const listener = await connect()
// One request at a time: with retries after it, the order holds.
const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, maxInFlightRequests: 1 })
await producer.connect()

/** Publishes the next rows. Returns how many there were. */
const drainOnce = async () => {
  await client.query("BEGIN")
  const { rows } = await client.query(take)
  if (rows.length > 0) {
    // A DELETE returns its rows in no order.
    rows.sort((one, other) => one.id - other.id)
    const topicMessages = [...Map.groupBy(rows, ({ topic }) => topic)].map(([topic, ofTopic]) => ({
      topic,
      messages: ofTopic.map(toMessage)
    }))
    await producer.sendBatch({ acks: -1, topicMessages })
  }
  await client.query("COMMIT")
  return rows.length
}

const stop = new AbortController()
let isWoken = false
let wake = () => {}
listener.on("notification", () => {
  isWoken = true
  wake()
})
const pause = () =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, pollMillis)
    wake = () => {
      clearTimeout(timer)
      resolve()
    }
  })
let isLeader = false
process.on("SIGTERM", () => {
  if (!isLeader) process.exit(0)
  stop.abort()
  wake()
})

// Also a process that waits for the leader's end is ready: to take over.
console.log(JSON.stringify({ ready: true, url: null }))
await listener.query("SELECT pg_advisory_lock($1)", [leaderLock])
isLeader = true
if (hasNotify) await listener.query("LISTEN peer_outbox")

// An error ends the process, and whoever runs it starts it anew: the transaction has rolled back.
while (!stop.signal.aborted) {
  isWoken = false
  const count = await drainOnce()
  if (count < batchSize && !isWoken && !stop.signal.aborted) await pause()
}
await producer.disconnect()
await client.end()
await listener.end()
