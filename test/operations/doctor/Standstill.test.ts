/** What stands still and what hangs: after an outage a healthy reader waits for up to half a minute before it asks the broker again. The doctor itself does not. */
import { assert, it } from "@effect/vitest"
import { Clock, Deferred, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { GroupProgress } from "../../../src/brokers/GroupProgress.ts"
import { type Check, runAll, told } from "../../../src/operations/doctor/Check.ts"
import { Doctor } from "../../../src/operations/doctor/Doctor.ts"
import { consumers } from "../../../src/operations/doctor/FlowChecks.ts"
import { PauseDecisions } from "../../../src/operations/pauses/PauseDecisions.ts"
import { ConsumerLag } from "../../../src/operations/reports/ConsumerLag.ts"

/** What the doctor finds of a reader that goes on after so long. */
const foundOf = (movesAfterMillis: number) =>
  Effect.gen(function* () {
    const looking = yield* Effect.forkChild(consumers.run)
    yield* TestClock.adjust("2 minutes")
    const outcome = yield* Fiber.join(looking)
    assert.strictEqual(outcome._tag, "Told")
    return outcome._tag === "Told" ? outcome.findings.map(({ problem }) => problem) : []
  }).pipe(
    Effect.provide(
      ConsumerLag.layer([{ name: "billing", topic: "orders" }]).pipe(
        Layer.provide(
          Layer.succeed(GroupProgress, {
            of: () =>
              Effect.map(Clock.currentTimeMillis, (millis) => {
                const committed = millis < movesAfterMillis ? 3n : 4n
                return [{ partition: 0, end: 5n, committed, lag: Number(5n - committed), owner: "7@here" }]
              })
          })
        ),
        Layer.merge(
          Layer.succeed(PauseDecisions, {
            all: Effect.succeed([]),
            pause: () => Effect.never,
            resume: () => Effect.never
          })
        )
      )
    )
  )

it.effect("a reader that waits after an outage, and then goes on, is not told to hang", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* foundOf(29_000), [])
  })
)

it.effect("a reader that stands still for longer than any healthy one is told", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* foundOf(100_000), [
      "billing is 2 records behind in partition 0 of orders, and 7@here does not move"
    ])
  })
)

it.effect("however many checks hang, the report comes within the two minutes that the console waits", () =>
  Effect.gen(function* () {
    const hangs = (name: string): Check => ({ group: "a group", name, run: Effect.never })
    const last: Check = { group: "a group", name: "last", run: Effect.succeed(told("well")) }
    const running = yield* Effect.forkChild(runAll([...Array.from({ length: 9 }, (_, n) => hangs(`check ${n}`)), last]))
    yield* TestClock.adjust("119 seconds")
    const { checks, notChecked } = yield* Fiber.join(running)
    assert.strictEqual(notChecked, 10)
    assert.strictEqual(checks.at(-1)!.told, "the checks before it took 110 s, the time of all")
  })
)

it.effect("whoever asks while an examination runs is told its report, and the next one looks anew", () =>
  Effect.gen(function* () {
    const begun: Array<Deferred.Deferred<void>> = []
    const examine = Effect.gen(function* () {
      const end = yield* Deferred.make<void>()
      const number = begun.push(end)
      yield* Deferred.await(end)
      return { checks: [], findings: number, notChecked: 0 }
    })
    const doctor = yield* Doctor.make(examine)
    const asked = yield* Effect.forEach([1, 2, 3], () => Effect.forkChild(doctor.run, { startImmediately: true }))
    // One who leaves does not end it for the others.
    yield* Fiber.interrupt(asked[0]!)
    yield* Effect.yieldNow
    yield* Deferred.succeed(begun[0]!, undefined)
    const reports = yield* Effect.forEach(asked.slice(1), Fiber.join)
    assert.deepStrictEqual(
      reports.map(({ findings }) => findings),
      [1, 1]
    )
    const next = yield* Effect.forkChild(doctor.run, { startImmediately: true })
    yield* Effect.yieldNow
    yield* Deferred.succeed(begun[1]!, undefined)
    assert.strictEqual((yield* Fiber.join(next)).findings, 2)
    assert.strictEqual(begun.length, 2)
  }).pipe(Effect.scoped)
)
