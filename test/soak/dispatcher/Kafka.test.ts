/** Dispatchers as real processes over a real Kafka, read by a plain kafkajs consumer afterwards. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { randomUUID } from "node:crypto"
import * as Path from "node:path"
import { inject } from "vitest"
import * as Counters from "../../support/Counters.ts"
import * as Fleet from "../../support/Fleet.ts"
import * as Ledger from "../../support/Ledger.ts"
import * as TcpProxy from "../../support/TcpProxy.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of dispatcher/Kafka.test.ts ran (zombies and clean stops over a real Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

const database = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestDatabase.layerPool),
  Layer.provideMerge(TestProcess.quiet)
)

const patience = "30 seconds"

describe.skipIf(brokers === null)("over a real Kafka", () => {
  const servers = brokers ?? ""
  const [host = "", port = ""] = servers.split(",")[0]!.split(":")

  const finish = Effect.fnUntraced(function* (writer: Fleet.Member, prefix: string) {
    yield* writer.signal("SIGTERM")
    yield* writer.exit
    yield* Counters.drained
    const verdict = Ledger.check(
      yield* Ledger.deliveredKafka(servers, `${prefix}${Ledger.topic}`),
      yield* Ledger.committed
    )
    console.info(verdict)
    assert.deepStrictEqual(verdict.problems, [])
    return verdict
  })

  it.live(
    "a zombie's batch that reaches the broker after its successor's duplicates and never overtakes",
    () =>
      Effect.gen(function* () {
        const directory = yield* Fleet.temporaryDirectory
        const common = { kafka: servers, kafkaPrefix: `zombie-${randomUUID()}-` }
        const proxy = yield* TcpProxy.makeKafka({ upstream: { host, port: Number(port) } })
        const zombie = yield* Fleet.startDispatcher({
          ...common,
          kafkaProxyPort: proxy.port,
          // It never gives up a send in flight, so the send can arrive as late as possible.
          sendTimeoutMillis: 60_000,
          witnessFile: Path.join(directory, "zombie")
        })
        const writer = yield* Fleet.startWriter(common)
        const produced = (counters: TcpProxy.Counters) => counters.requestFrames[TcpProxy.ApiKey.Produce] ?? 0
        yield* Effect.timeout(
          proxy.until((counters) => produced(counters) > 3),
          patience
        )
        // From here on its sends are on their way, and do not arrive.
        yield* proxy.hold("requests")
        yield* Fleet.inMidBatch(zombie)
        yield* zombie.signal("SIGSTOP")
        const before = produced(yield* proxy.counters)
        const successor = yield* Fleet.startDispatcher(common)
        yield* Fleet.divided([successor])
        // The successor has sent all events that the zombie had fetched: no older event is queued.
        yield* Ledger.presentDrained
        yield* proxy.pass
        yield* Effect.timeout(
          proxy.until((counters) => produced(counters) > before),
          patience
        )
        yield* zombie.signal("SIGCONT")
        yield* Fleet.divided([zombie, successor])
        const { duplicates } = yield* finish(writer, common.kafkaPrefix)
        assert.isAbove(duplicates, 0, "the late batches are in the log")
      }).pipe(Effect.scoped, Effect.provide(database)),
    300_000
  )

  it.live(
    "SIGTERM under load: the lanes have a new owner at once, and nothing is sent twice",
    () =>
      Effect.gen(function* () {
        const common = {
          kafka: servers,
          kafkaPrefix: `stop-${randomUUID()}-`,
          // No session expires in this test, so a lane can move only because it was given up.
          sessionTimeoutMillis: 600_000,
          sendTimeoutMillis: 10_000
        }
        const writer = yield* Fleet.startWriter(common)
        const [first, second] = yield* Effect.replicateEffect(Fleet.startDispatcher(common), 2, {
          concurrency: "unbounded"
        })
        yield* Fleet.divided([first!, second!])
        for (const [leaver, stayer] of [
          [first!, second!],
          [second!, undefined]
        ] as const) {
          yield* Counters.eventually(
            "some more events",
            Effect.map(Ledger.archived, (count) => count > 100)
          )
          const next = stayer ?? (yield* Fleet.startDispatcher(common))
          if (stayer === undefined) yield* Fleet.divided([leaver, next])
          yield* leaver.signal("SIGTERM")
          const seconds = yield* Fleet.divided([next])
          console.info(`after SIGTERM of one of two its lanes have moved within ${seconds.toFixed(2)} s`)
          yield* Effect.timeout(leaver.exit, patience)
        }
        const { duplicates } = yield* finish(writer, common.kafkaPrefix)
        assert.strictEqual(duplicates, 0)
      }).pipe(Effect.scoped, Effect.provide(database)),
    300_000
  )
})
