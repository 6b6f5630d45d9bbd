/** The topics of a run, through a plain kafkajs client. */
import { Effect, Schedule } from "effect"
import { Kafka, logLevel } from "kafkajs"
import { partitions } from "../Service.ts"
import { sampleEvent } from "../Workload.ts"
import { toRecord } from "../../src/brokers/Envelope.ts"

/** Ten seconds at least: a new topic has its leaders within one, as a rule. */
const leaderTries = 100

/** Kafka writes an index entry with the first batch after 4 kB of a partition: the second send, if a send has eight records of some 700 bytes. */
const usedSends = 3
const usedRecordsOfSend = 8
/** Records that `use` writes to a topic, to make it one that was used before. */
export const usedRecords = partitions * usedSends * usedRecordsOfSend

const untilLed = <A>(request: Effect.Effect<A, unknown>): Effect.Effect<A> =>
  request.pipe(Effect.retry({ schedule: Schedule.spaced("100 millis"), times: leaderTries }), Effect.orDie)

/** See {@link connect}. */
export type Topics = Effect.Success<ReturnType<typeof connect>>

/** An admin and a producer, which close with the scope. */
export const connect = Effect.fnUntraced(function* (brokers: string) {
  // Quiet: a new topic is asked about until it has its leaders, and each call rejects with its error.
  const kafka = new Kafka({ clientId: "outside", brokers: brokers.split(","), logLevel: logLevel.NOTHING })
  const admin = kafka.admin()
  yield* Effect.acquireRelease(
    Effect.promise(() => admin.connect()),
    () => Effect.promise(() => admin.disconnect())
  )
  const connected = Effect.acquireRelease(
    Effect.promise(async () => {
      const producer = kafka.producer({ allowAutoTopicCreation: false })
      await producer.connect()
      return producer
    }),
    (producer) => Effect.promise(() => producer.disconnect())
  )
  const producer = yield* connected

  const create = (topic: string) =>
    Effect.promise(() =>
      admin.createTopics({
        // kafkajs' own wait gives up at once where the broker does not know the topic yet.
        waitForLeaders: false,
        topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }]
      })
    ).pipe(Effect.andThen(untilLed(Effect.tryPromise(() => admin.fetchTopicOffsets(topic)))))

  return {
    /** Makes a topic, which is dropped with the scope. */
    acquire: (topic: string) =>
      Effect.acquireRelease(create(topic), () => Effect.promise(() => admin.deleteTopics({ topics: [topic] }))),
    /**
     * Writes {@link usedRecords} records to the topic, so that a steady load does not measure a new topic. At the first index entry of a partition
     * the kernel reads two files of 10 MB that have no content. For eight partitions at once that kept Kafka busy for a quarter of a second.
     */
    use: (topic: string) =>
      Effect.scoped(
        Effect.gen(function* () {
          // Its own: kafkajs asks for all topics that a producer has ever sent to, and fails if one is gone.
          const producer = yield* connected
          const { headers, key, value } = toRecord(sampleEvent(crypto.randomUUID(), 1))
          const messages = Array.from({ length: partitions * usedRecordsOfSend }, (_, index) => ({
            key,
            value: Buffer.from(value),
            headers,
            partition: index % partitions
          }))
          yield* Effect.repeat(untilLed(Effect.tryPromise(() => producer.send({ topic, acks: -1, messages }))), {
            times: usedSends - 1
          })
        })
      ),
    /** How many records the topic has. */
    size: (topic: string) =>
      Effect.map(
        Effect.promise(() => admin.fetchTopicOffsets(topic)),
        (offsets) => offsets.reduce((sum, { high }) => sum + Number(high), 0)
      ),
    /** Fills the topic that readers warm up with. Its single sends also warm up Kafka. */
    warmUp: (topic: string, sends: number) =>
      Effect.promise(async () => {
        for (let index = 0; index < sends; index++) {
          const { headers, key, value } = toRecord(sampleEvent(crypto.randomUUID(), 1))
          await producer.send({ topic, acks: -1, messages: [{ key, value: Buffer.from(value), headers }] })
        }
      })
  }
})
