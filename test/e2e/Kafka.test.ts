import { Effect } from "effect"
import { Kafka, logLevel } from "kafkajs"
import { randomUUID } from "node:crypto"
import { inject } from "vitest"
import { describe } from "@effect/vitest"
import { endToEnd, type TopicRecord } from "./EndToEnd.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of e2e/Kafka.test.ts ran (the whole path over a real Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

/** A plain kafkajs consumer, which shares no code with the service. A group of its own sees the whole topic. */
const readTopic = (servers: string, topic: string) => (count: number) =>
  Effect.promise(async () => {
    const client = new Kafka({ clientId: "witness", brokers: servers.split(","), logLevel: logLevel.NOTHING })
    const consumer = client.consumer({ groupId: `witness-${randomUUID()}` })
    const seen: Array<TopicRecord> = []
    const ids = new Set<string>()
    try {
      await consumer.connect()
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      const admin = client.admin()
      await admin.connect()
      const ends = new Map(
        (await admin.fetchTopicOffsets(topic)).map(({ high, partition }) => [partition, BigInt(high)])
      )
      await admin.disconnect()
      const left = new Set([...ends].filter(([, end]) => end > 0n).map(([partition]) => partition))
      await new Promise<void>((resolve, reject) => {
        const finish = () => {
          if (left.size > 0) return
          if (ids.size >= count) resolve()
          else reject(new Error(`the topic holds ${ids.size} events where ${count} were expected`))
        }
        consumer
          .run({
            eachMessage: async ({ message, partition }) => {
              const headers = Object.fromEntries(
                Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)])
              )
              seen.push({
                key: String(message.key),
                value: String(message.value),
                headers,
                partition,
                offset: BigInt(message.offset)
              })
              ids.add(headers["event-id"] ?? "")
              if (BigInt(message.offset) >= (ends.get(partition) ?? 0n) - 1n) left.delete(partition)
              finish()
            }
          })
          .catch(reject)
      })
      return seen.toSorted((a, b) => a.partition - b.partition || Number(a.offset - b.offset))
    } finally {
      await consumer.disconnect()
    }
  })

describe.skipIf(brokers === null)("with a real Kafka", () => {
  const servers = brokers ?? ""
  endToEnd(
    "Kafka",
    Effect.sync(() => {
      // Topics and groups of its own, on a cluster that other tests use too.
      const prefix = `e2e-${randomUUID()}-`
      return {
        env: { KAFKA_BROKERS: servers, KAFKA_PREFIX: prefix, CONSUMER_SESSION_TIMEOUT_MILLIS: "6000" },
        readTopic: readTopic(servers, `${prefix}orders`)
      }
    })
  )
})
