/** Reads a topic of a real Kafka with a plain kafkajs consumer, which shares no code with the service. */
import { Effect } from "effect"
import { Kafka, type KafkaMessage, logLevel } from "kafkajs"
import { randomUUID } from "node:crypto"
import { topicEnds } from "./topicEnds.ts"

/** Everything that the topic holds at this moment, by partition and offset. */
export const readTopic = (
  servers: string,
  topic: string
): Effect.Effect<ReadonlyArray<{ readonly partition: number; readonly message: KafkaMessage }>> =>
  Effect.gen(function* () {
    const client = new Kafka({ clientId: "witness", brokers: servers.split(","), logLevel: logLevel.NOTHING })
    // The end is asked first, so that "nothing more came for a while" is never taken for the end.
    const ends = new Map((yield* topicEnds(client, topic)).map(({ end, partition }) => [partition, end]))
    return yield* Effect.promise(() => readUpTo(client, topic, ends))
  })

const readUpTo = async (client: Kafka, topic: string, ends: ReadonlyMap<number, bigint>) => {
  // A group of its own sees the whole topic. A consumer leaves only when its last fetch has been answered.
  const consumer = client.consumer({ groupId: `witness-${randomUUID()}`, maxWaitTimeInMs: 100 })
  // By its place: a group that has to join anew, on a machine that stood still, is handed some records again.
  const seen = new Map<string, { readonly partition: number; readonly message: KafkaMessage }>()
  try {
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
  }
}
