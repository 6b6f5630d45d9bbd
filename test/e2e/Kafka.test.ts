import { Effect } from "effect"
import { randomUUID } from "node:crypto"
import { inject } from "vitest"
import { describe } from "@effect/vitest"
import { readTopic } from "../support/readTopic.ts"
import { endToEnd, type TopicRecord } from "./EndToEnd.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of e2e/Kafka.test.ts ran (the whole path over a real Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

/** The topic as EndToEnd.ts wants to see it. */
const recordsOf = (servers: string, topic: string) => (count: number) =>
  Effect.map(readTopic(servers, topic), (records) => {
    const seen = records.map(({ message, partition }): TopicRecord => ({
      key: String(message.key),
      value: String(message.value),
      headers: Object.fromEntries(Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)])),
      partition,
      offset: BigInt(message.offset)
    }))
    const events = new Set(seen.map(({ headers }) => headers["event-id"])).size
    if (events < count) throw new Error(`the topic holds ${events} events where ${count} were expected`)
    return seen
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
        readTopic: recordsOf(servers, `${prefix}orders`)
      }
    })
  )
})
