/**
 * graphile-worker as a relay: a job for each event, added in the business transaction, whose task sends it to Kafka.
 *
 * Its workers run side by side, so an aggregate's events may overtake each other. Jobs of one named queue run one after the other:
 * `PEER_QUEUES=on` gives each aggregate a queue, and keeps its order.
 */
import { makeWorkerUtils, run, Logger } from "graphile-worker"
import { kafka } from "../Connections.js"
import { toMessage } from "../Record.js"

const connectionString = process.env.DATABASE_URL
const hasQueues = process.env.PEER_QUEUES === "on"
const concurrentJobs = 10

const logger = new Logger(() => (level, message) => {
  if (level === "error") process.stderr.write(`${message}\n`)
})

export const tables = async () => {
  const utils = await makeWorkerUtils({ connectionString, logger })
  await utils.migrate()
  await utils.release()
}

const queueOf = (event) => (hasQueues ? event.aggregateId : null)

export const openWriter = async () => (client, topic, event) =>
  client.query({
    name: "write",
    text: "SELECT graphile_worker.add_job('publish', $1::json, queue_name => $2)",
    values: [JSON.stringify({ topic, event }), queueOf(event)]
  })

export const fill = (client, topic, events) =>
  client.query(
    "SELECT graphile_worker.add_job('publish', payload, queue_name => queue) FROM unnest($1::json[], $2::text[]) AS job(payload, queue)",
    [events.map((event) => JSON.stringify({ topic, event })), events.map(queueOf)]
  )

export const relay = async () => {
  const producer = kafka.producer()
  await producer.connect()
  const runner = await run({
    connectionString,
    logger,
    noHandleSignals: true,
    concurrency: concurrentJobs,
    // What its manual recommends for small jobs: fetched and completed in batches.
    preset: { worker: { localQueue: { size: concurrentJobs + 1 }, completeJobBatchDelay: 0 } },
    taskList: {
      publish: async ({ event, topic }) => {
        await producer.send({ topic, acks: -1, messages: [toMessage(event)] })
      }
    }
  })
  return async () => {
    await runner.stop()
    await producer.disconnect()
  }
}
