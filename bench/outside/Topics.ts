/** The topics of a run, through a plain kafkajs client. */
import { Effect, Schedule } from "effect"
import { Kafka, logLevel } from "kafkajs"
import { partitions } from "../Service.ts"
import { sampleEvent } from "../Workload.ts"
import { toRecord } from "../../src/brokers/Envelope.ts"

/** Ten seconds at least: a new topic has its leaders within one, as a rule. */
const leaderTries = 100

/** See {@link connect}. */
export type Topics = Effect.Success<ReturnType<typeof connect>>

/** An admin and a producer, which close with the scope. */
export const connect = Effect.fnUntraced(function* (brokers: string) {
  // Quiet: a new topic is asked about until it has its leaders, and each call rejects with its error.
  const kafka = new Kafka({ clientId: "outside", brokers: brokers.split(","), logLevel: logLevel.NOTHING })
  const admin = kafka.admin()
  const producer = kafka.producer({ allowAutoTopicCreation: false })
  yield* Effect.acquireRelease(
    Effect.promise(() => Promise.all([admin.connect(), producer.connect()])),
    () => Effect.promise(() => Promise.all([admin.disconnect(), producer.disconnect()]))
  )

  const create = (topic: string) =>
    Effect.promise(() =>
      admin.createTopics({
        // kafkajs' own wait gives up at once where the broker does not know the topic yet.
        waitForLeaders: false,
        topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }]
      })
    ).pipe(
      Effect.andThen(
        Effect.tryPromise(() => admin.fetchTopicOffsets(topic)).pipe(
          Effect.retry({ schedule: Schedule.spaced("100 millis"), times: leaderTries }),
          Effect.orDie
        )
      )
    )

  return {
    /** Makes a topic, which is dropped with the scope. */
    acquire: (topic: string) =>
      Effect.acquireRelease(create(topic), () => Effect.promise(() => admin.deleteTopics({ topics: [topic] }))),
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
