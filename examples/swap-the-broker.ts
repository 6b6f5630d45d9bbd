/**
 * The service of `minimal-outbox.ts` over Apache Kafka: only the broker's layer differs.
 *
 *   npm run kafka                                                          (prints the address of a Kafka that it starts)
 *   KAFKA_BROKERS=localhost:9092 npm run example examples/swap-the-broker.ts
 */
import { PgClient } from "@effect/sql-pg"
import { Console, Effect, Layer } from "effect"
import * as KafkaBroker from "paid-once/brokers/kafkajs/KafkaBroker"
import * as Plain from "paid-once/plain/Plain"
import { location } from "./Location.ts"
import { program, service } from "./minimal-outbox.ts"

const kafka = (brokers: ReadonlyArray<string>) =>
  KafkaBroker.layer.pipe(
    Layer.provide(
      Layer.succeed(KafkaBroker.KafkaSettings, {
        brokers,
        clientId: "swap-the-broker",
        // A prefix of each topic's and group's name, so that several services can share a Kafka.
        prefix: process.env["KAFKA_PREFIX"] ?? "example.",
        createTopics: true,
        replication: -1,
        sendTimeoutMillis: 3_000,
        sessionTimeoutMillis: 10_000
      })
    )
  )

const overKafka = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const account = yield* program
  const records = yield* sql`SELECT FROM broker_log WHERE record_key = ${account}`
  yield* Console.log(`The events went through Kafka: ${records.length} of them are in the embedded broker's log.`)
})

const brokers = process.env["KAFKA_BROKERS"]

await Effect.runPromise(
  brokers === undefined
    ? Console.log("KAFKA_BROKERS names no Kafka. npm run kafka starts one and prints its address.")
    : Effect.provide(
        overKafka,
        service.pipe(
          Layer.provideMerge(kafka(brokers.split(","))),
          Layer.provideMerge(Plain.database()),
          Layer.provide(location)
        )
      )
)
