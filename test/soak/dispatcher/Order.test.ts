/** The four rules with real processes: whatever dies, freezes or commits late, first deliveries come in version order without gaps. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Path from "node:path"
import { ServiceProcessFailed } from "../../../src/cli/ServiceProcess.ts"
import * as Counters from "../../support/Counters.ts"
import * as Fleet from "../../support/Fleet.ts"
import * as Ledger from "../../support/Ledger.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"

const database = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestDatabase.layerPool),
  Layer.provideMerge(TestProcess.quiet)
)

const faultPoints = [
  "dispatcher.after-acquire",
  "dispatcher.after-fetch",
  "dispatcher.before-publish",
  "dispatcher.after-publish",
  "dispatcher.after-mark"
]

/** Some aggregates in each lane, so that a dispatcher finds work to crash in, whichever lanes it gets. */
const aggregates = 400

/** Kills the writers at any moment, and waits until all that they committed is published. */
const finish = Effect.fnUntraced(function* (writers: ReadonlyArray<Fleet.Member>) {
  yield* Effect.forEach(writers, (writer) => Effect.andThen(writer.signal("SIGTERM"), writer.exit), {
    concurrency: "unbounded"
  })
  yield* Counters.drained
  return Ledger.check(yield* Ledger.deliveredEmbedded, yield* Ledger.committed)
})

it.live(
  "with one to eight dispatchers, a crash at every fault point, frozen ones that wake up, and late committers, the order holds",
  () =>
    Effect.gen(function* () {
      const directory = yield* Fleet.temporaryDirectory
      const everybody: Array<Fleet.Member> = []
      let started = 0
      // The session of a killed process ends at once. The living must keep theirs however long the machine stands still, since the test
      // asserts that no lane has two workers.
      const start = (faults = "", sessionTimeoutMillis = 60_000) =>
        Effect.suspend(() =>
          Fleet.startDispatcher({
            faults,
            sessionTimeoutMillis,
            witnessFile: Path.join(directory, String(started++))
          })
        ).pipe(Effect.tap((member) => Effect.sync(() => everybody.push(member))))
      /** The end of a dispatcher that crashes at this point: it may come before the process says that it has started. */
      const crashedAt = (point: string) =>
        start(`${point}=crash`).pipe(
          Effect.flatMap(({ exit }) => exit),
          Effect.catchDefect((defect) =>
            defect instanceof ServiceProcessFailed ? Effect.succeed(defect.code) : Effect.die(defect)
          )
        )
      const writers = yield* Effect.replicateEffect(Fleet.startWriter({ aggregates }), 2, { concurrency: "unbounded" })
      // One at a time, so that each dispatcher finds only what the killed one left.
      for (const point of faultPoints) assert.strictEqual(yield* crashedAt(point), "SIGKILL", point)

      const living = [yield* start()]
      for (const target of [2, 4, 8]) {
        yield* Effect.forEach(
          faultPoints.slice(0, Math.min(2, target / 2)),
          (_, index) => crashedAt(faultPoints[(index + target) % faultPoints.length]!),
          { concurrency: "unbounded" }
        )
        const more = yield* Effect.replicateEffect(start(), target - living.length, { concurrency: "unbounded" })
        living.push(...more)
        yield* Fleet.divided(living)
      }

      // It freezes between fetch and send, so its batch is old when it thaws.
      const zombie = yield* start("dispatcher.before-publish=delay:1000:1000", 2_000)
      yield* Fleet.inMidBatch(zombie)
      yield* zombie.signal("SIGSTOP")
      yield* Fleet.divided(living)
      const sent = yield* Ledger.countEmbedded
      yield* Counters.eventually(
        "the others to go on",
        Effect.map(Ledger.countEmbedded, (count) => count > sent)
      )
      yield* zombie.signal("SIGCONT")
      yield* Fleet.divided([...living, zombie])
      const verdict = yield* finish(writers)
      console.info(verdict)
      assert.deepStrictEqual(verdict.problems, [])
      assert.isAbove(verdict.duplicates, 0, "crashes after a publish and the zombie have repeated something")
      assert.deepStrictEqual(Fleet.overlaps(everybody.filter((member) => member !== zombie)), [])
    }).pipe(Effect.scoped, Effect.provide(database)),
  // Thirty processes start here one after the other, on a machine that may have a single busy core. Each wait has its own bound.
  600_000
)
