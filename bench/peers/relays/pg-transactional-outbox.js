/**
 * The library pg-transactional-outbox, by polling or, with `PEER_LISTENER=replication`, from the write-ahead log.
 *
 * An aggregate is a segment: the library sends a segment's messages one after the other. Tables, functions and the slot are made by its
 * own setup.
 */
import { createRequire } from "node:module"
import { Pool } from "pg"
import { kafka } from "../Connections.js"
import { toMessage } from "../Record.js"

// A CommonJS package.
const library = createRequire(import.meta.url)("pg-transactional-outbox")

const usesReplication = process.env.PEER_LISTENER === "replication"
/** As its own example. With 20 in work its messages lock each other out. */
const batchSize = 5
const pollMillis = 250

const names = { outboxOrInbox: "outbox", schema: "peer_library", table: usesReplication ? "logged" : "polled" }
const publication = "peer_library_publication"
const slot = `peer_library_${(process.env.DATABASE_URL ?? "").replaceAll(/.*\/|\?.*|\W/g, "").slice(-40)}`
const nextMessages = "next_outbox_messages"

export const tables = async (client) => {
  const setup = library.DatabaseSetup
  await client.query(setup.dropAndCreateTable(names))
  if (usesReplication) {
    await client.query(
      `CREATE PUBLICATION ${publication} FOR TABLE ${names.schema}.${names.table} WITH (publish = 'insert')`
    )
  } else {
    await client.query(
      setup.createPollingFunction({ ...names, nextMessagesSchema: names.schema, nextMessagesName: nextMessages })
    )
    await client.query(setup.setupPollingIndexes(names))
  }
}

const config = {
  outboxOrInbox: "outbox",
  dbListenerConfig: { connectionString: process.env.DATABASE_URL },
  settings: {
    dbSchema: names.schema,
    dbTable: names.table,
    // As its own example for an outbox.
    enableMaxAttemptsProtection: false,
    enablePoisonousMessageProtection: false,
    ...(usesReplication
      ? { dbPublication: publication, dbReplicationSlot: slot }
      : {
          nextMessagesFunctionSchema: names.schema,
          nextMessagesFunctionName: nextMessages,
          nextMessagesBatchSize: batchSize,
          nextMessagesPollingIntervalInMs: pollMillis
        })
  }
}

const print = (...parts) =>
  process.stderr.write(`${parts.map((part) => part?.stack ?? JSON.stringify(part)).join(" ")}\n`)
const logger = { ...library.getDisabledLogger(), fatal: print, error: print, warn: print }

const toStored = (topic, event) => ({
  id: event.eventId,
  aggregateType: event.aggregateType,
  aggregateId: event.aggregateId,
  messageType: event.eventType,
  segment: event.aggregateId,
  payload: event,
  metadata: { topic }
})

export const openWriter = async () => {
  const store = library.initializeMessageStorage(config, logger)
  return (client, topic, event) => store(toStored(topic, event), client)
}

export const fill = (client, topic, events) =>
  client.query(
    `INSERT INTO ${names.schema}.${names.table} (id, aggregate_type, aggregate_id, message_type, segment, payload, metadata)
     SELECT (event->>'eventId')::uuid, event->>'aggregateType', event->>'aggregateId', event->>'eventType', event->>'aggregateId', event,
            jsonb_build_object('topic', $1::text)
     FROM unnest($2::jsonb[]) AS event`,
    [topic, events.map((event) => JSON.stringify(event))]
  )

const once = async (text) => {
  const pool = new Pool(config.dbListenerConfig)
  await pool.query(text)
  await pool.end()
}

export const relay = async () => {
  const producer = kafka.producer()
  await producer.connect()
  const handler = {
    handle: async ({ metadata, payload }) => {
      await producer.send({ topic: metadata.topic, acks: -1, messages: [toMessage(payload)] })
    }
  }
  if (!usesReplication) {
    const [stop] = library.initializePollingMessageListener(config, handler, logger)
    return async () => {
      await stop()
      await producer.disconnect()
    }
  }
  // From here on: a slot that was left behind would bring the events of the run before.
  await once(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '${slot}'`)
  await once(`SELECT pg_create_logical_replication_slot('${slot}', 'pgoutput')`)
  const [stop] = library.initializeReplicationMessageListener(config, handler, logger, {
    concurrencyStrategy: library.createReplicationSegmentMutexConcurrencyController()
  })
  return async () => {
    await stop()
    await producer.disconnect()
    await once(`SELECT pg_drop_replication_slot('${slot}')`)
  }
}
