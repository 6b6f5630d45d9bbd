import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Layer, Ref, References } from "effect"
import { TestClock } from "effect/testing"
import * as Monotonic from "../../src/platform/Monotonic.ts"
import * as Supervised from "../../src/platform/Supervised.ts"

const quiet = Layer.succeed(References.MinimumLogLevel, "None")

layer(Layer.mergeAll(Supervised.Fibers.layer, quiet))("Supervised", (it) => {
  it.effect("a step that fails or dies is run again, and its success counts as progress", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const { states } = yield* Supervised.Fibers
        const attempts = yield* Ref.make(0)
        const succeeded = yield* Deferred.make<void>()
        yield* Supervised.forkLoop(
          "flaky",
          Effect.flatMap(
            Ref.updateAndGet(attempts, (n) => n + 1),
            (n) => {
              if (n === 1) return Effect.fail("first")
              if (n === 2) return Effect.die(new Error("second"))
              return Effect.andThen(Deferred.succeed(succeeded, undefined), Effect.sleep("1 hour"))
            }
          )
        )
        yield* TestClock.adjust("1 minute")
        yield* Deferred.await(succeeded)
        const [state] = yield* states
        assert.deepInclude(state, { name: "flaky", restarts: 2 })
        assert.include(state?.lastError, "second")
      })
    )
  )

  it.effect("success resets the backoff: the next failure is retried soon", () =>
    Effect.scoped(
      Effect.gen(function* () {
        for (const recovery of ["a success", "a long run"]) {
          const startedMillis: Array<number> = []
          yield* Supervised.forkLoop(
            recovery,
            Effect.flatMap(Monotonic.millis, (now) => {
              const attempt = startedMillis.push(now)
              // Fifteen failures in a row reach the cap of half a minute; then comes the recovery, and then one more failure.
              if (attempt === 16)
                return recovery === "a success" ? Effect.void : Effect.delay(Effect.fail("over"), "1 hour")
              return attempt <= 17 ? Effect.fail("down") : Effect.never
            })
          )
          yield* TestClock.adjust("3 hours")
          assert.strictEqual(startedMillis.length, 18)
          // The first wait after a recovery is at most the base; without the reset it is some seconds, and hardly ever below.
          const waitMillis = startedMillis[17]! - startedMillis[16]!
          assert.isAtMost(waitMillis, recovery === "a success" ? 100 : 200)
        }
      })
    )
  )

  it.effect("a loop that is to be back soon never waits longer than it says", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const startedMillis: Array<number> = []
        yield* Supervised.forkLoop(
          "impatient",
          () =>
            Effect.flatMap(Monotonic.millis, (now) => {
              startedMillis.push(now)
              return Effect.fail("down")
            }),
          { restartCapMillis: 1_000 }
        )
        yield* TestClock.adjust("1 minute")
        const waits = startedMillis.slice(1).map((millis, attempt) => millis - startedMillis[attempt]!)
        assert.isAbove(waits.length, 60)
        assert.isAtMost(Math.max(...waits), 1_000)
      })
    )
  )

  it.effect("a fiber that ends its scope is no longer reported", () =>
    Effect.gen(function* () {
      const { states } = yield* Supervised.Fibers
      yield* Effect.scoped(Supervised.forkLoop("short", Effect.never))
      assert.deepStrictEqual(
        (yield* states).filter((state) => state.name === "short"),
        []
      )
    })
  )

  it.effect("a long step shows progress through its stamp", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const { states } = yield* Supervised.Fibers
        yield* Supervised.forkLoop("long", (stamp) => Effect.forever(Effect.andThen(Effect.sleep("1 second"), stamp)))
        yield* TestClock.adjust("5 minutes")
        const state = (yield* states).find(({ name }) => name === "long")
        assert.strictEqual(state?.lastProgressMillis, yield* Monotonic.millis)
      })
    )
  )
})
