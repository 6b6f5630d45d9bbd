/** What stands still and what hangs: after an outage a healthy reader waits for up to half a minute before it asks the broker again. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { GroupProgress } from "../../../src/brokers/GroupProgress.ts"
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
