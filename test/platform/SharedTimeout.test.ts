import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import * as SharedTimeout from "../../src/platform/SharedTimeout.ts"

/** A wait, with its end in the test's hands. */
const waiting = Effect.fnUntraced(function* (within: SharedTimeout.WithinLimit) {
  const answer = Promise.withResolvers<string>()
  const fiber = yield* Effect.forkChild(Effect.result(Effect.tryPromise(() => within(answer.promise))), {
    startImmediately: true
  })
  return { ...answer, fiber, ended: () => fiber.pollUnsafe() !== undefined }
})

const message = (result: Result.Result<string, { readonly cause?: unknown }>) =>
  Result.match(result, { onSuccess: (text) => text, onFailure: ({ cause }) => String(cause) })

/** Promises settle and fibers look while the test lets go of the loop. */
const settle = Effect.promise(() => new Promise((done) => setImmediate(done)))

describe("a shared time limit", () => {
  it.effect("ends each wait at its own limit, and no other one", () =>
    Effect.gen(function* () {
      const within = yield* SharedTimeout.make(1_000)
      yield* settle
      const first = yield* waiting(within)
      yield* TestClock.adjust(400)
      const answered = yield* waiting(within)
      const second = yield* waiting(within)
      answered.resolve("in time")
      assert.strictEqual(message(yield* Fiber.join(answered.fiber)), "in time")
      yield* TestClock.adjust(599)
      yield* settle
      assert.isFalse(first.ended())
      yield* TestClock.adjust(1)
      assert.strictEqual(message(yield* Fiber.join(first.fiber)), "Error: no answer within 1000 ms")
      yield* TestClock.adjust(399)
      yield* settle
      assert.isFalse(second.ended())
      yield* TestClock.adjust(1)
      assert.strictEqual(message(yield* Fiber.join(second.fiber)), "Error: no answer within 1000 ms")
    }).pipe(Effect.scoped)
  )

  it.effect("holds for a wait that begins long after the last one, and passes a rejection on", () =>
    Effect.gen(function* () {
      const within = yield* SharedTimeout.make(1_000)
      const refused = yield* waiting(within)
      refused.reject(new Error("refused"))
      assert.strictEqual(message(yield* Fiber.join(refused.fiber)), "Error: refused")
      yield* TestClock.adjust(60_000)
      yield* settle
      const late = yield* waiting(within)
      yield* settle
      yield* TestClock.adjust(999)
      yield* settle
      assert.isFalse(late.ended())
      yield* TestClock.adjust(1)
      assert.strictEqual(message(yield* Fiber.join(late.fiber)), "Error: no answer within 1000 ms")
    }).pipe(Effect.scoped)
  )

  it.effect("costs nothing while nobody waits", () =>
    Effect.gen(function* () {
      let looks = 0
      const clock = yield* Clock.Clock
      const counting: Clock.Clock = Object.assign(Object.create(clock), {
        monotonicTimeNanosUnsafe: () => {
          looks++
          return clock.monotonicTimeNanosUnsafe()
        }
      })
      const within = yield* Effect.provideService(SharedTimeout.make(1_000), Clock.Clock, counting)
      const answered = yield* waiting(within)
      answered.resolve("in time")
      yield* Fiber.join(answered.fiber)
      yield* TestClock.adjust(10_000)
      yield* settle
      const before = looks
      for (let round = 0; round < 100; round++) yield* settle
      assert.strictEqual(looks, before)
    }).pipe(Effect.scoped)
  )

  it.effect("ends what still waits when its scope closes", () =>
    Effect.gen(function* () {
      const late = yield* Effect.scoped(Effect.flatMap(SharedTimeout.make(1_000), waiting))
      assert.strictEqual(message(yield* Fiber.join(late.fiber)), "Error: no answer within 1000 ms")
      // What comes afterwards is ignored.
      late.resolve("too late")
      yield* settle
    }).pipe(Effect.scoped)
  )
})
