/** A real topic whose `max.message.bytes` is lowered under traffic, and raised again. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Ref } from "effect"
import { SqlClient } from "effect/sql"
import kafkajs from "kafkajs"
import { randomUUID } from "node:crypto"
import { inject } from "vitest"
import * as KafkaBroker from "../../../src/brokers/kafkajs/KafkaBroker.ts"
import { HoldSettings } from "../../../src/outbox/holds/Parking.ts"
import { LaneWorkersSettings } from "../../../src/outbox/LaneWorkers.ts"
import { Outbox } from "../../../src/outbox/Outbox.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import * as Counters from "../../support/Counters.ts"
import * as Refusals from "../../support/Refusals.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"
import * as KafkaMember from "./KafkaMember.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of RefusedEvents.test.ts ran (a topic that refuses events): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

/** Above the lowered limit of the topic, and far below its limit before and after. */
const largeBytes = 60_000
const loweredBytes = 30_000
const usualBytes = 1_048_588

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const startDispatcher = (servers: string, prefix: string) =>
  Effect.gen(function* () {
    const database = yield* TestDatabase
    yield* Layer.build(
      Layer.fresh(
        TestProcess.dispatcherOver(() =>
          KafkaBroker.layer.pipe(
            Layer.provide(
              Layer.succeed(KafkaBroker.KafkaSettings, {
                brokers: servers.split(","),
                prefix,
                createTopics: true,
                replication: 1,
                sendTimeoutMillis: 10_000,
                sessionTimeoutMillis: KafkaMember.sessionTimeoutMillis,
                clientId: "test"
              })
            )
          )
        ).pipe(Layer.provideMerge(TestProcess.outbox), Layer.provide(Layer.succeed(TestDatabase, database)))
      )
    )
  })

/** Each aggregate's versions, read partition by partition by a client that shares no code with the service. */
const readTopic = (servers: string, topic: string, count: number) =>
  Effect.promise(async () => {
    const consumer = KafkaMember.kafkajs(servers).consumer({ groupId: `witness-${randomUUID()}` })
    const seen: Array<{ readonly id: string; readonly version: number }> = []
    const names = new Set<string>()
    try {
      await consumer.connect()
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      await new Promise<void>((resolve, reject) => {
        consumer
          .run({
            eachMessage: async ({ message }) => {
              const id = String(message.key)
              const { aggregateVersion } = JSON.parse(String(message.value)) as { readonly aggregateVersion: number }
              seen.push({ id, version: aggregateVersion })
              names.add(`${id}/${aggregateVersion}`)
              if (names.size >= count) resolve()
            }
          })
          .catch(reject)
      })
      return seen
    } finally {
      await consumer.disconnect()
    }
  })

describe.skipIf(brokers === null)("a topic whose size limit is lowered", () => {
  const servers = brokers ?? ""
  it.live(
    "refuses one aggregate's event and holds it; the others flow, and after the limit is raised it follows by itself, in order",
    () =>
      Effect.gen(function* () {
        const prefix = `holds-${randomUUID()}.`
        const topic = prefix + Counters.topic
        const admin = yield* KafkaMember.admin(servers)
        const setLimit = (bytes: number) =>
          Effect.promise(() =>
            admin.alterConfigs({
              validateOnly: false,
              resources: [
                {
                  type: kafkajs.ConfigResourceTypes.TOPIC,
                  name: topic,
                  configEntries: [{ name: "max.message.bytes", value: String(bytes) }]
                }
              ]
            })
          )
        const outbox = yield* Outbox
        const appendLarge = (version: number) =>
          Transaction.run(
            outbox.append({ topic: Counters.topic, aggregateType: "Counter", aggregateId: "poison" }, version, [
              { eventType: "Counted", schemaVersion: 1, data: "x".repeat(largeBytes) }
            ])
          )
        yield* startDispatcher(servers, prefix)
        yield* appendLarge(1)
        yield* Refusals.untilPublished("poison", 1)

        // Traffic during the whole test, in the lanes of the held aggregate and in others.
        const others = Array.from({ length: 20 }, (_, index) => `other-${index}`)
        const written = yield* Ref.make(0)
        const going = yield* Ref.make(true)
        const traffic = yield* Effect.forkScoped(
          Effect.gen(function* () {
            while (yield* Ref.get(going)) {
              const round = yield* Ref.getAndUpdate(written, (n) => n + 1)
              yield* Effect.forEach(others, (id) => Refusals.append(id, 2 * round + 1, 2), { discard: true })
            }
          })
        )
        yield* setLimit(loweredBytes)
        yield* Refusals.append("poison", 2, 1)
        // A broker applies a new limit after a moment, so one large event may still be accepted.
        let version = 3
        yield* Effect.gen(function* () {
          yield* appendLarge(version++)
          yield* Counters.eventually(
            "it to be taken or refused",
            Effect.map(Refusals.statesOf("poison"), (states) =>
              ["published", "retrying"].includes(states.at(-1)?.status ?? "")
            )
          )
          return (yield* Refusals.statesOf("poison")).at(-1)?.status
        }).pipe(Effect.repeat({ until: (status) => status === "retrying" }))
        yield* Refusals.append("poison", version++, 1)
        yield* Refusals.append("poison", version, 1)

        // The progress of the other aggregates since the refusal.
        const before = yield* Ref.get(written)
        yield* Effect.raceFirst(
          Counters.eventually(
            "the others to go on",
            Effect.map(Ref.get(written), (now) => now > before + 3)
          ),
          Fiber.join(traffic)
        )
        const then = yield* Ref.get(written)
        yield* Effect.forEach(others, (id) =>
          Counters.eventually(
            `${id} to be published as far as it was written`,
            Effect.map(
              Refusals.statesOf(id),
              (states) => states.filter((state) => state.status === "published").length >= 2 * then
            )
          )
        )
        assert.deepStrictEqual(
          (yield* Refusals.statesOf("poison")).slice(-3).map((state) => state.status),
          ["retrying", "parked", "parked"]
        )
        yield* setLimit(usualBytes)
        // Its retry delays have grown meanwhile.
        yield* Refusals.dueNow
        yield* Refusals.untilPublished("poison", version)
        yield* Ref.set(going, false)
        yield* Fiber.join(traffic)
        yield* Counters.drained

        const sql = yield* SqlClient.SqlClient
        const [log] = yield* sql<{ readonly count: number }>`SELECT count(*)::int4 AS count FROM event_log`
        const deliveries = Counters.firstDeliveries(yield* readTopic(servers, topic, log!.count))
        const upTo = (last: number) => Array.from({ length: last }, (_, index) => index + 1)
        assert.deepStrictEqual(deliveries.get("poison"), upTo(version))
        for (const id of others) assert.deepStrictEqual(deliveries.get(id), upTo(2 * (yield* Ref.get(written))), id)
      }).pipe(
        Effect.scoped,
        Effect.provide(writer),
        Effect.provide(
          Layer.mergeAll(
            // A delay is about as long as the refusals have lasted, so the event follows soon after the limit is raised.
            Layer.succeed(HoldSettings, { retryBaseMillis: 0.2, maxAttempts: 1_000, skipTopics: [] }),
            Layer.succeed(LaneWorkersSettings, { pollMillis: 100 })
          )
        )
      ),
    120_000
  )
})
