/** Reads a topic of a real Kafka with a plain kafkajs consumer, which shares no code with the service. */
import { Effect } from "effect"
import { Kafka, type KafkaMessage, logLevel } from "kafkajs"
import { randomUUID } from "node:crypto"

/** Everything that the topic holds at this moment, by partition and offset. */
export const readTopic = (
  servers: string,
  topic: string
): Effect.Effect<ReadonlyArray<{ readonly partition: number; readonly message: KafkaMessage }>> =>
  Effect.promise(async () => {
    const client = new Kafka({ clientId: "witness", brokers: servers.split(","), logLevel: logLevel.NOTHING })
    const admin = client.admin()
    // A group of its own sees the whole topic. A consumer leaves only when its last fetch has been answered.
    const consumer = client.consumer({ groupId: `witness-${randomUUID()}`, maxWaitTimeInMs: 100 })
    // By its place: a group that has to join anew, on a machine that stood still, is handed some records again.
    const seen = new Map<string, { readonly partition: number; readonly message: KafkaMessage }>()
    try {
      await admin.connect()
      // The end is asked first, so that "nothing more came for a while" is never taken for the end.
      const ends = new Map(
        (await admin.fetchTopicOffsets(topic)).map(({ high, partition }) => [partition, BigInt(high)])
      )
      const left = new Set([...ends].filter(([, end]) => end > 0n).map(([partition]) => partition))
      if (left.size === 0) return []
      await consumer.connect()
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      await new Promise<void>((resolve, reject) => {
        // It starts again by itself after what it thinks will pass.
        consumer.on(consumer.events.CRASH, ({ payload }) => (payload.restart ? undefined : reject(payload.error)))
        consumer
          .run({
            eachMessage: async ({ message, partition }) => {
              seen.set(`${partition}/${message.offset}`, { partition, message })
              if (BigInt(message.offset) >= (ends.get(partition) ?? 0n) - 1n) left.delete(partition)
              if (left.size === 0) resolve()
            }
          })
          .catch(reject)
      })
      return [...seen.values()].toSorted(
        (a, b) => a.partition - b.partition || Number(BigInt(a.message.offset) - BigInt(b.message.offset))
      )
    } finally {
      await consumer.disconnect()
      await admin.disconnect()
    }
  })
