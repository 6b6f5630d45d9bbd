/** The end offsets of a topic of a real Kafka. */
import { Effect, Schedule } from "effect"
import type { Kafka } from "kafkajs"

/**
 * The offset after the last record of each partition. Each call makes a client of its own. After a move a broker may name a leader that
 * does not know of its leadership yet, and a client that was told so would ask that broker for five minutes.
 */
export const topicEnds = (
  client: Kafka,
  topic: string
): Effect.Effect<ReadonlyArray<{ readonly partition: number; readonly end: bigint }>> =>
  Effect.tryPromise(async () => {
    const admin = client.admin()
    try {
      await admin.connect()
      return await admin.fetchTopicOffsets(topic)
    } finally {
      await admin.disconnect()
    }
  }).pipe(
    // At least a minute, plus the time of the attempts.
    Effect.retry({ schedule: Schedule.spaced("100 millis"), times: 600 }),
    Effect.orDie,
    Effect.map((offsets) =>
      offsets
        .map(({ high, partition }) => ({ partition, end: BigInt(high) }))
        .toSorted((one, other) => one.partition - other.partition)
    )
  )
