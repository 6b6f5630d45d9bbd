/**
 * pg-boss as a relay: a job for each event, written in the business transaction, whose handler sends it to Kafka.
 *
 * Set as its documentation says for many small jobs and little delay: batches, LISTEN and NOTIFY, and no pause while batches are full.
 */
import { PgBoss } from "pg-boss"
import { kafka } from "../Connections.js"
import { toMessage } from "../Record.js"

const queue = "publish"
const batchSize = 200

const connectionString = process.env.DATABASE_URL

const open = async (options) => {
  const boss = new PgBoss({ connectionString, ...options })
  boss.on("error", (error) => process.stderr.write(`${error.stack}\n`))
  await boss.start()
  return boss
}

export const tables = async () => {
  const boss = await open({ supervise: false, schedule: false })
  await boss.createQueue(queue, { notify: true })
  await boss.stop({ graceful: false })
}

const within = (client) => ({ db: { executeSql: (text, values) => client.query(text, values) } })

export const openWriter = async () => {
  const boss = await open({ supervise: false, schedule: false, max: 1 })
  return (client, topic, event) => boss.send(queue, { topic, event }, within(client))
}

export const fill = async (client, topic, events) => {
  const boss = await open({ supervise: false, schedule: false, max: 1 })
  await boss.insert(
    queue,
    events.map((event) => ({ data: { topic, event } })),
    within(client)
  )
  await boss.stop({ graceful: false })
}

export const relay = async () => {
  const producer = kafka.producer()
  await producer.connect()
  const boss = await open({ useListenNotify: true })
  await boss.work(queue, { batchSize, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true }, async (jobs) => {
    const topicMessages = [...Map.groupBy(jobs, ({ data }) => data.topic)].map(([topic, ofTopic]) => ({
      topic,
      messages: ofTopic.map(({ data }) => toMessage(data.event))
    }))
    await producer.sendBatch({ acks: -1, topicMessages })
  })
  return async () => {
    await boss.stop({ graceful: true })
    await producer.disconnect()
  }
}
