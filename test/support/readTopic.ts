/** Reads a topic of a real Kafka with a plain kafkajs consumer, which shares no code with the service. */
import { Effect } from "effect"
import { Kafka, type KafkaMessage, logLevel } from "kafkajs"
import { randomUUID } from "node:crypto"
import { topicEnds } from "./topicEnds.ts"

/** All records that the topic holds at this moment, by partition and offset. */
export const readTopic = (
  servers: string,
  topic: string
): Effect.Effect<ReadonlyArray<{ readonly partition: number; readonly message: KafkaMessage }>> =>
  Effect.gen(function* () {
    const client = new Kafka({ clientId: "witness", brokers: servers.split(","), logLevel: logLevel.NOTHING })
    // The end is read first, since a pause in the records does not show that there are no more.
    const ends = new Map((yield* topicEnds(client, topic)).map(({ end, partition }) => [partition, end]))
    return yield* Effect.promise(() => readUpTo(client, topic, ends))
  })

const readUpTo = async (client: Kafka, topic: string, ends: ReadonlyMap<number, bigint>) => {
  // A new group reads the whole topic. A consumer leaves only when its last fetch has been answered.
  const consumer = client.consumer({ groupId: `witness-${randomUUID()}`, maxWaitTimeInMs: 100 })
  // By partition and offset: a group that has to join again gets some records twice.
  const seen = new Map<string, { readonly partition: number; readonly message: KafkaMessage }>()
  try {
    const left = new Set([...ends].filter(([, end]) => end > 0n).map(([partition]) => partition))
    if (left.size === 0) return []
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise<void>((resolve, reject) => {
      // After a transient failure kafkajs restarts the consumer by itself.
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
