/**
 * The four subscribers in service processes, over a Kafka of three nodes with two replicas of every write. Events of orders arrive while
 * faults strike the processes, the brokers and the database. Then all faults stop, and the tables are compared with the books of an
 * independent reader.
 */
import { Duration, Effect, Fiber, Layer, Random, Redacted, Schedule, Schema, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { type Admin, Kafka, logLevel } from "kafkajs"
import * as ServiceProcess from "../../../src/cli/ServiceProcess.ts"
import { ordersTopic } from "../../../src/domain/Events.ts"
import { type BrokerRecord, TopicSettings } from "../../../src/brokers/Broker.ts"
import { laneOf, partitionOf } from "../../../src/outbox/Lane.ts"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import * as Database from "../../../src/postgres/Database.ts"
import * as KafkaMember from "../../brokers/kafkajs/KafkaMember.ts"
import { compileCache } from "../../support/Fleet.ts"
import * as LocalKafka from "../../support/LocalKafka.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import { topicEnds } from "../../support/topicEnds.ts"
import * as Blows from "./Blows.ts"
import * as Books from "./Books.ts"
import * as OrderHistories from "./OrderHistories.ts"
import * as Tables from "./Tables.ts"

/** Short, since a run often waits for it. Long enough for a machine that also runs three brokers. */
const sessionTimeoutMillis = 4_000

/** Events that are sent at once, over all partitions. */
const batch = 400

/** The number of bursts in which the events arrive. */
const bursts = 20

/** How long nothing may change before the run fails: above all timeouts of a consumer in a row. */
const stuckMillis = 90_000

/** The run fails with all broken promises. */
export class SoakFailed extends Schema.TaggedError<SoakFailed>()("SoakFailed", {
  reasons: Schema.Array(Schema.String),
  report: Schema.Json
}) {
  override get message() {
    return [...this.reasons, JSON.stringify(this.report)].join("\n")
  }
}

export interface SoakReport {
  readonly events: number
  readonly records: number
  readonly poison: number
  readonly parked: number
  readonly effects: {
    readonly reservations: number
    readonly ledger: number
    readonly revenue: number
    readonly mails: number
  }
  readonly blows: Readonly<Record<string, number>>
  readonly publishedSeconds: number
  readonly restSeconds: number
  /** The longest time for which this process did not run: a stopped or overloaded machine does the same to all processes. */
  readonly stillSeconds: number
}

export interface Options {
  readonly url: Redacted.Redacted
  readonly events: number
  readonly consumers: number
  /** One event in this many is poison. */
  readonly poisonEvery: number
  /** How long random faults strike. Otherwise each of these strikes once, and the next one after the system has recovered. */
  readonly blows: { readonly minutes: number } | { readonly once: ReadonlyArray<Blows.Name> }
  readonly log?: (line: string) => void
}

/** Measures how late a timer of 100 ms was at most. */
const watchStandstill = Effect.gen(function* () {
  let longest = 0
  const look = Effect.map(Effect.timed(Effect.sleep("100 millis")), ([took]) => {
    longest = Math.max(longest, Duration.toMillis(took) - 100)
  })
  yield* Effect.forkScoped(Effect.forever(look))
  return () => longest
})

/** Waits until the consumers have read all records and nothing is due. Fails with what does not come to rest. */
const rest = Effect.fnUntraced(function* (client: Kafka, admin: Admin, prefix: string) {
  const sql = yield* SqlClient.SqlClient
  const look = Effect.gen(function* () {
    const ends = yield* topicEnds(client, prefix + ordersTopic)
    const lags = yield* Effect.tryPromise(() =>
      Promise.all(
        Tables.consumers.map(async (name) => {
          const [found] = await admin.fetchOffsets({ groupId: prefix + name, topics: [prefix + ordersTopic] })
          const places = new Map(found?.partitions.map(({ offset, partition }) => [partition, Number(offset)]))
          const lag = ends.reduce(
            (sum, { end, partition }) => sum + Number(end) - Math.max(0, places.get(partition) ?? 0),
            0
          )
          return { what: `records that ${name} has not passed`, count: lag }
        })
      )
    ).pipe(Effect.retry(Schedule.spaced("200 millis")))
    const held = yield* sql<{ readonly what: string; readonly count: number }>`
      SELECT consumer_name || ' holds that are ' || status AS what, count(*)::int4 AS count FROM inbox_holds
      WHERE status <> 'dead' GROUP BY 1`
    return [...lags, ...held].filter(({ count }) => count > 0).map(({ count, what }) => `${count} ${what}`)
  })
  let before = ""
  let sinceMillis = performance.now()
  while (true) {
    const found = yield* look
    if (found.length === 0) return []
    if (found.join() !== before) sinceMillis = performance.now()
    before = found.join()
    if (performance.now() - sinceMillis > stuckMillis) return found.map((what) => `${what}, for ever`)
    yield* Effect.sleep("250 millis")
  }
})

/** Runs on a migrated database. */
export const soak = Effect.fnUntraced(function* (options: Options): Effect.fn.Return<SoakReport, unknown, Scope.Scope> {
  const { blows, events, log = () => {}, poisonEvery, url } = options
  const pool = yield* Layer.build(
    Database.layer.pipe(Layer.provide(DatabaseSettings.layerOf({ url, maxConnections: 4, applicationName: "soak" })))
  )
  const kafka = yield* LocalKafka.make({
    nodes: 3,
    // A leader returns to its preferred broker when that is back, so leaders move twice for each fault. By default the return takes five
    // minutes.
    properties: { "leader.imbalance.check.interval.seconds": "3" }
  })
  const servers = kafka.bootstrapServers
  const client = new Kafka({ clientId: "witness", brokers: servers.split(","), logLevel: logLevel.NOTHING })
  const admin = yield* KafkaMember.admin(servers)
  const prefix = "soak-"
  const { broker } = yield* KafkaMember.makeDirect({ brokers: servers.split(","), prefix, replication: 3 })
  const { partitions } = yield* TopicSettings
  yield* broker.ensureTopic(ordersTopic, partitions)

  /** A consumer process, as a user would start it. */
  const launch = Effect.fnUntraced(function* (faults: string) {
    const service = yield* ServiceProcess.start({
      roles: "consumers",
      env: {
        DATABASE_URL: Redacted.value(url),
        DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
        NODE_COMPILE_CACHE: compileCache,
        KAFKA_BROKERS: servers,
        KAFKA_PREFIX: prefix,
        KAFKA_REPLICATION: "3",
        CONSUMER_SESSION_TIMEOUT_MILLIS: String(sessionTimeoutMillis),
        LOG_LEVEL: "Error",
        FAULTS: faults
      }
    })
    // A frozen process would not get SIGTERM, and at the end nothing has to be stopped cleanly.
    yield* Effect.addFinalizer(() => service.signal("SIGKILL"))
    return service
  })

  return yield* Effect.provide(
    Effect.gen(function* () {
      yield* Tables.listStock
      const histories = OrderHistories.make(yield* Random.Random, poisonEvery)
      const context = yield* Effect.context<SqlClient.SqlClient | Scope.Scope>()
      const world = yield* Blows.make({
        admin,
        brokers: kafka.brokers,
        consumers: options.consumers,
        groups: Tables.consumers.map((name) => prefix + name),
        launch: (faults) => Effect.provide(launch(faults), context),
        sessionTimeoutMillis,
        wireTopic: prefix + ordersTopic
      })

      const startedMillis = performance.now()
      const longestStillMillis = yield* watchStandstill
      const seconds = () => Math.round((performance.now() - startedMillis) / 100) / 10
      /** The events that may be sent by now: some at the start, the others in bursts, so that slices are full and partitions lag. */
      const due =
        "minutes" in blows
          ? () =>
              Math.ceil(
                (events * Math.min(bursts, 1 + Math.floor((bursts * seconds()) / (blows.minutes * 60)))) / bursts
              )
          : () => Math.ceil((events * (world.fallen() + 1)) / blows.once.length)
      const send = (partition: number, records: ReadonlyArray<BrokerRecord>) =>
        // Like the dispatcher: a batch that may have arrived is sent again as a whole.
        broker.publish({ topic: ordersTopic, partition, records: [records[0]!, ...records.slice(1)] }).pipe(
          Effect.retry({
            while: ({ _tag }) => _tag !== "MessageRejected",
            schedule: Schedule.spaced("100 millis")
          })
        )
      const sendAll = (records: ReadonlyArray<BrokerRecord>) =>
        Effect.forEach(
          Map.groupBy(records, ({ key }) => partitionOf(laneOf(key), partitions)),
          ([partition, part]) => send(partition, part),
          { concurrency: "unbounded", discard: true }
        )
      const publish = Effect.gen(function* () {
        while (histories.events() < events) {
          const room = Math.min(batch, Math.floor(due()) - histories.events())
          yield* room > 0 ? sendAll(histories.take(room)) : Effect.sleep("20 millis")
        }
        yield* sendAll(histories.rest())
      })
      const publisher = yield* Effect.forkChild(publish)
      yield* "minutes" in blows ? world.rain(blows.minutes * 60_000) : world.each(blows.once)
      yield* Fiber.join(publisher)
      const publishedSeconds = seconds()
      log(`${publishedSeconds} s: ${histories.events()} events are published, and the blows are over`)
      yield* world.calm

      const unrest = yield* rest(client, admin, prefix)
      const restSeconds = Math.round((seconds() - publishedSeconds) * 10) / 10
      const books = yield* Books.read(servers, prefix + ordersTopic, ordersTopic)
      yield* world.stop
      const reasons = [...world.problems(), ...unrest, ...(yield* Tables.compare(books))]
      const report: SoakReport = {
        events: histories.events(),
        records: books.records,
        poison: books.dead.size,
        parked: books.parked.size,
        effects: {
          reservations: books.reservations.size,
          ledger: books.ledger.size,
          revenue: books.revenue.size,
          mails: books.mails.size
        },
        blows: world.counts(),
        publishedSeconds,
        restSeconds,
        stillSeconds: Math.round(longestStillMillis() / 100) / 10
      }
      if (reasons.length > 0) return yield* new SoakFailed({ reasons, report: { ...report } })
      return report
    }),
    pool
  )
})
