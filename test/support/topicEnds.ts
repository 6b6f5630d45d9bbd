/** Where the partitions of a topic of a real Kafka end. */
import { Effect, Schedule } from "effect"
import type { Kafka } from "kafkajs"

/**
 * The offset behind the last record of each partition, in their order. Each look is made by a client of its own: one that was told of a leader
 * who does not know it yet, as one may be for a moment after a move, would go on asking that one for five minutes.
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
    // A minute at least, with what the looks take.
    Effect.retry({ schedule: Schedule.spaced("100 millis"), times: 600 }),
    Effect.orDie,
    Effect.map((offsets) =>
      offsets
        .map(({ high, partition }) => ({ partition, end: BigInt(high) }))
        .toSorted((one, other) => one.partition - other.partition)
    )
  )
