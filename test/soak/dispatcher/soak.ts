/**
 * npm run soak [-- --minutes 10 --dispatchers 4 --writers 2 --seed 1 --kafka]: dispatchers and writers as real processes, which are killed,
 * frozen, cut off and replaced at random until the time is over. Then the queue is drained, and topic and ledger are compared version by
 * version.
 *
 * The seed decides the order of the faults, but not the moment of each. So a failing seed can't be replayed exactly.
 */
import { PgClient } from "@effect/sql-pg"
import { Console, Effect, Layer, Random, Redacted, References, type Scope } from "effect"
import type { SqlError } from "effect/sql"
import { randomInt } from "node:crypto"
import { parseArgs } from "node:util"
import * as Counters from "../../support/Counters.ts"
import * as Fleet from "../../support/Fleet.ts"
import * as KafkaSource from "../../support/KafkaSource.ts"
import * as Ledger from "../../support/Ledger.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as TcpProxy from "../../support/TcpProxy.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

const { values: flags } = parseArgs({
  options: {
    minutes: { type: "string", default: "10" },
    dispatchers: { type: "string", default: "4" },
    writers: { type: "string", default: "2" },
    seed: { type: "string", default: String(randomInt(1_000_000)) },
    kafka: { type: "boolean", default: false }
  }
})
const seed = Number(flags.seed)
const endsAt = performance.now() + Number(flags.minutes) * 60_000

/** The wait between two faults. Some faults begin while the system still recovers from the last one. */
const calmMillis = [200, 3_000] as const

/** How long a process is frozen or cut off: from less than its session's timeout to more. */
const troubleMillis = [500, 5_000] as const

/** A writer lives long enough to write more than its start costs. */
const writerLifeMillis = [2_000, 20_000] as const

const faultPoints = ["after-acquire", "after-fetch", "before-publish", "after-publish", "after-mark"]

/** A few hundred transactions a second, over few aggregates, so that they often wait for each other. */
const startWriter = Fleet.startWriter({ writers: 8, pauseMillis: 10, aggregates: 100 })

interface Slot {
  member: Fleet.Member
  readonly postgres: TcpProxy.TcpProxy
  readonly kafka: TcpProxy.KafkaProxy | undefined
}

const between = ([low, high]: readonly [number, number]) => Random.nextIntBetween(low, high)
const pick = <A>(from: ReadonlyArray<A>) =>
  Effect.map(Random.nextIntBetween(0, from.length - 1), (index) => from[index]!)

/** The migrated database of this run. */
const database = Layer.unwrap(
  Effect.gen(function* () {
    const server = yield* Postgres.acquire
    const name = yield* Postgres.migrated(server)
    const url = Redacted.make(Postgres.withDatabase(server, name))
    return PgClient.layer({ url, maxConnections: 4 }).pipe(
      Layer.provideMerge(Layer.succeed(TestDatabase, { name, url }))
    )
  })
)

const program = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const kafka = flags.kafka ? (yield* KafkaSource.acquire).bootstrapServers.split(",")[0]! : null
  yield* Ledger.makeTables
  const counts: Record<string, number> = {}
  const count = (what: string) => (counts[what] = (counts[what] ?? 0) + 1)
  const target = new URL(Redacted.value((yield* TestDatabase).url))
  const common = { kafka, kafkaPrefix: `soak-${seed}-` }

  const launch = Effect.fnUntraced(function* (slot: Pick<Slot, "postgres" | "kafka">, faults = "") {
    const url = new URL(target)
    url.host = `${slot.postgres.host}:${slot.postgres.port}`
    return yield* Fleet.startDispatcher({
      ...common,
      faults,
      databaseUrl: url.toString(),
      kafkaProxyPort: slot.kafka?.port ?? null
    })
  })
  const slots = yield* Effect.replicateEffect(
    Effect.gen(function* () {
      const [host = "", port = ""] = (kafka ?? "").split(":")
      const proxies = {
        postgres: yield* TcpProxy.make({ upstream: { host: target.hostname, port: Number(target.port) } }),
        kafka: kafka === null ? undefined : yield* TcpProxy.makeKafka({ upstream: { host, port: Number(port) } })
      }
      const slot: Slot = { ...proxies, member: yield* launch(proxies) }
      return slot
    }),
    Number(flags.dispatchers),
    { concurrency: "unbounded" }
  )
  const writers = yield* Effect.replicateEffect(
    Effect.map(startWriter, (member) => ({ member })),
    Number(flags.writers),
    { concurrency: "unbounded" }
  )

  const wait = Effect.flatMap(between(troubleMillis), (millis) => Effect.sleep(millis))
  const replace = Effect.fnUntraced(function* (slot: Slot, signal: NodeJS.Signals) {
    yield* slot.member.signal(signal)
    yield* slot.member.exit
    slot.member = yield* launch(slot)
  })
  const troubles: Record<
    string,
    (slot: Slot) => Effect.Effect<unknown, SqlError.SqlError, Scope.Scope | TestDatabase | PgClient.PgClient>
  > = {
    "kill -9": (slot) => replace(slot, "SIGKILL"),
    SIGTERM: (slot) => replace(slot, "SIGTERM"),
    "SIGSTOP, SIGCONT": (slot) =>
      slot.member.signal("SIGSTOP").pipe(Effect.andThen(wait), Effect.andThen(slot.member.signal("SIGCONT"))),
    "crash at a fault point": (slot) =>
      Effect.gen(function* () {
        yield* slot.member.signal("SIGKILL")
        yield* slot.member.exit
        const point = yield* pick(faultPoints)
        slot.member = yield* launch(slot, `dispatcher.${point}=crash`)
        yield* Effect.timeoutOption(slot.member.exit, "10 seconds")
        yield* replace(slot, "SIGKILL")
      }),
    "Postgres swallows": ({ postgres }) =>
      postgres.blackHole().pipe(Effect.andThen(wait), Effect.andThen(postgres.pass)),
    "Postgres resets": ({ postgres }) => postgres.reset,
    "sessions terminated": (slot) => sql`SELECT pg_terminate_backend(${Fleet.beliefOf(slot.member).backendPid ?? 0})`,
    ...(kafka === null
      ? {}
      : {
          "Kafka swallows": (slot) =>
            slot.kafka!.blackHole().pipe(Effect.andThen(wait), Effect.andThen(slot.kafka!.pass)),
          "Kafka late": (slot) => slot.kafka!.hold().pipe(Effect.andThen(wait), Effect.andThen(slot.kafka!.pass)),
          "Kafka resets": (slot) => slot.kafka!.reset,
          "answer lost": (slot) => slot.kafka!.dropNextResponse({ apiKey: TcpProxy.ApiKey.Produce })
        })
  }

  /** Strikes this dispatcher again and again. Two dispatchers may be struck at once. */
  const strike = (slot: Slot) =>
    Effect.gen(function* () {
      while (performance.now() < endsAt) {
        const name = yield* pick(Object.keys(troubles))
        count(name)
        yield* troubles[name]!(slot)
        yield* Effect.sleep(yield* between(calmMillis))
      }
    })
  yield* Console.log(
    `seed ${seed}: ${slots.length} dispatchers, ${writers.length} writers, ${kafka === null ? "the embedded broker" : "Kafka"}, ${flags.minutes} minutes`
  )
  /** Kills a writer in the middle of its transactions, and starts another one. */
  const strikeWriter = (writer: { member: Fleet.Member }) =>
    Effect.gen(function* () {
      while (performance.now() < endsAt) {
        yield* Effect.sleep(yield* between(writerLifeMillis))
        count("kill -9 of a writer")
        yield* writer.member.signal("SIGKILL")
        yield* writer.member.exit
        writer.member = yield* startWriter
      }
    })
  yield* Effect.all(
    [
      Effect.forEach(slots, strike, { concurrency: "unbounded", discard: true }),
      Effect.forEach(writers, strikeWriter, { concurrency: "unbounded", discard: true })
    ],
    { concurrency: "unbounded" }
  )

  const quietSince = performance.now()
  yield* Effect.forEach(writers, ({ member }) => Effect.andThen(member.signal("SIGTERM"), member.exit), {
    discard: true
  })
  yield* Fleet.divided(slots.map(({ member }) => member))
  yield* Counters.drained
  const drainedSeconds = (performance.now() - quietSince) / 1_000
  const delivered =
    kafka === null
      ? yield* Ledger.deliveredEmbedded
      : yield* Ledger.deliveredKafka(kafka, `${common.kafkaPrefix}${Ledger.topic}`)
  const { problems, ...figures } = Ledger.check(delivered, yield* Ledger.committed)
  yield* Console.log(
    JSON.stringify(
      { seed, troubles: counts, ...figures, drainedSeconds: Math.round(drainedSeconds * 10) / 10, problems },
      null,
      2
    )
  )
  return problems.length === 0 ? 0 : 1
})

const code = await Effect.runPromise(
  program.pipe(
    Effect.provide(database),
    Random.withSeed(seed),
    Effect.provideService(References.MinimumLogLevel, "Error"),
    Effect.scoped,
    Effect.orDie
  )
)
// kafkajs sometimes leaves a socket behind, which would keep this process alive.
process.exit(code)
