/**
 * The reference for a drain: kafkajs alone, which sends the same records in the same batches with the same settings.
 */
import { Effect } from "effect"
import { Kafka, logLevel } from "kafkajs"
import * as Envelope from "../src/brokers/Envelope.ts"
import { laneCount, laneOf, partitionOf } from "../src/outbox/Lane.ts"
import { aggregates, sampleEvent } from "./Workload.ts"

/** A producer with the settings of KafkaProducer.ts; it closes with the scope. */
export const connect = Effect.fnUntraced(function* (brokers: string) {
  const kafka = new Kafka({ clientId: "bench", brokers: brokers.split(","), logLevel: logLevel.NOTHING })
  const producer = kafka.producer({
    idempotent: false,
    allowAutoTopicCreation: false,
    retry: { retries: 0 },
    createPartitioner:
      () =>
      ({ message }) =>
        message.partition!
  })
  return yield* Effect.acquireRelease(
    Effect.as(
      Effect.promise(() => producer.connect()),
      producer
    ),
    () => Effect.promise(() => producer.disconnect())
  )
})

/** One batch for each lane, of `size` records like the dispatcher's. */
export const batches = (size: number, partitions: number) => {
  const byLane = Map.groupBy(aggregates(), laneOf)
  return Array.from({ length: laneCount }, (_, lane) => {
    const ids = [...(byLane.entries().find(([key]) => key === lane)?.[1] ?? aggregates().slice(0, 1))]
    const partition = partitionOf(lane as never, partitions)
    const messages = Array.from({ length: size }, (_, index) => {
      const { headers, key, value } = Envelope.toRecord(sampleEvent(ids[index % ids.length]!, index + 1))
      return { key, value: Buffer.from(value), headers, partition }
    })
    return messages
  })
}

/** Sends `count` records from these batches in turn, with as many sends in flight as the dispatcher has. Returns how many were sent. */
export const send = Effect.fnUntraced(function* (
  producer: Effect.Success<ReturnType<typeof connect>>,
  topic: string,
  lanes: ReturnType<typeof batches>,
  count: number,
  inFlight: number
) {
  const size = lanes[0]!.length
  const sends = Math.ceil(count / size)
  yield* Effect.forEach(
    Array.from({ length: sends }, (_, index) => lanes[index % lanes.length]!),
    (messages) => Effect.promise(() => producer.send({ topic, acks: -1, messages })),
    { concurrency: inFlight, discard: true }
  )
  return sends * size
})
