/** Consumers as real processes over a real Kafka: killed, frozen past their session and woken, stopped and joined by others, under load. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Random } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { inject } from "vitest"
import * as Counters from "../../support/Counters.ts"
import { garbage, record, type Sent } from "../../support/Deliveries.ts"
import * as Fleet from "../../support/Fleet.ts"
import { readTopic } from "../../support/readTopic.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"
import * as KafkaMember from "./KafkaMember.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of kafka/Consumers.test.ts ran (rebalance storms and frozen consumers): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

const database = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestDatabase.layerPool),
  Layer.provideMerge(TestProcess.quiet)
)

const partitions = 6
const aggregates = 60
/** The failures of members, in order. */
const blows = ["freeze", "kill", "stop", "freeze", "join", "kill", "freeze", "stop"] as const

describe.skipIf(brokers === null)("consumers over a real Kafka", () => {
  const servers = brokers ?? ""

  it.live(
    "members that join, leave, die and freeze past their session under load: each effect once and in order, as the topic says",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const kafkaPrefix = `storm-${randomUUID()}-`
        const wireTopic = kafkaPrefix + Counters.topic
        const admin = yield* KafkaMember.admin(servers)
        yield* Effect.promise(() =>
          admin.createTopics({ topics: [{ topic: wireTopic, numPartitions: partitions }], waitForLeaders: true })
        )
        const producer = yield* KafkaMember.foreignProducer(servers)
        const load = { on: true, sent: 0 }
        /** Events of all aggregates: some twice, some before their predecessor, and sometimes a record that is no event. */
        const publish = Effect.gen(function* () {
          const versions = new Map<string, number>()
          while (load.on) {
            const records: Array<Sent> = []
            for (let index = 0; index < 20; index++) {
              const id = `id-${yield* Random.nextIntBetween(0, aggregates)}`
              const version = (versions.get(id) ?? 0) + 1
              const dice = yield* Random.next
              records.push(
                ...(dice < 0.05
                  ? [record(id, version + 1), record(id, version)]
                  : dice < 0.15
                    ? [record(id, version), record(id, version)]
                    : [record(id, version)])
              )
              versions.set(id, dice < 0.05 ? version + 1 : version)
              if (dice > 0.999) records.push(garbage(`garbage-${index}`))
            }
            load.sent += records.length
            yield* Effect.promise(() =>
              producer.send({
                topic: wireTopic,
                acks: -1,
                messages: records.map(({ headers, key, value }) => ({ headers, key, value: Buffer.from(value!) }))
              })
            )
            yield* Effect.sleep("50 millis")
          }
          return versions
        })
        const writer = yield* Effect.forkScoped(publish)
        const start = Fleet.startConsumer({ kafka: servers, kafkaPrefix, batchSize: 50, sessionTimeoutMillis: 4_000 })
        const members = yield* Effect.forEach([1, 2, 3], () => start, { concurrency: "unbounded" })
        const joined = (count: number) =>
          Counters.eventually(
            `a stable group of ${count}`,
            Effect.promise(async () => {
              const { groups } = await admin.describeGroups([`${kafkaPrefix}one`])
              return groups[0]?.state === "Stable" && groups[0].members.length === count
            })
          )
        const effects = Effect.map(
          sql<{ readonly count: number }>`SELECT count(*)::int4 AS count FROM effects`,
          ([row]) => row?.count ?? 0
        )
        /** No consumer stands still for long. */
        const moreThan = (before: number) =>
          Counters.eventually(
            `more effects than ${before}`,
            Effect.map(effects, (now) => now > before)
          )
        // Checked while there is work: a writer that died must not look like a consumer that stands still.
        const progress = Effect.raceFirst(Effect.flatMap(effects, moreThan), Fiber.join(writer))
        yield* joined(3)
        for (const blow of blows) {
          yield* progress
          const victim = members.shift()!
          if (blow === "join") members.push(victim, yield* start)
          else if (blow === "freeze") {
            yield* victim.signal("SIGSTOP")
            // The other members own its partitions, and it believes that it still owns them.
            yield* joined(members.length)
            yield* progress
            yield* victim.signal("SIGCONT")
            members.push(victim)
          } else {
            yield* victim.signal(blow === "kill" ? "SIGKILL" : "SIGTERM")
            yield* victim.exit
            members.push(yield* start)
          }
          yield* joined(members.length)
        }
        load.on = false
        const versions = yield* Fiber.join(writer)
        const expected = [...versions.values()].reduce((sum, version) => sum + version, 0)
        // On a busy machine they may be far behind, but they progress.
        for (let done = yield* effects; done < expected; done = yield* effects) yield* moreThan(done)

        // The expected result comes from a client that shares no code with the consumer.
        const truth = new Map<string, Set<number>>()
        const all = yield* readTopic(servers, wireTopic)
        for (const { message } of all) {
          const text = message.value?.toString() ?? ""
          if (text.startsWith("{broken")) continue
          const event = JSON.parse(text) as { readonly aggregateId: string; readonly aggregateVersion: number }
          truth.set(event.aggregateId, (truth.get(event.aggregateId) ?? new Set()).add(event.aggregateVersion))
        }
        // A producer without a response in time may have sent a batch twice.
        assert.isAtLeast(all.length, load.sent)
        const rows = yield* sql<{ readonly id: string; readonly version: number }>`
          SELECT id, version FROM effects ORDER BY position`
        const applied = Map.groupBy(rows, ({ id }) => id)
        assert.strictEqual(applied.size, truth.size)
        for (const [id, events] of truth) {
          assert.deepStrictEqual(
            applied.get(id)?.map(({ version }) => version),
            [...events].toSorted((a, b) => a - b),
            id
          )
        }
        const [left] = yield* sql<{ readonly gaps: number }>`
          SELECT count(*) FILTER (WHERE status = 'gap')::int4 AS gaps FROM inbox_holds`
        assert.strictEqual(left?.gaps, 0)
        console.info({ records: all.length, effects: rows.length })
      }).pipe(Effect.scoped, Effect.provide(database)),
    600_000
  )
})
