import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Exit, Fiber, Ref, Result } from "effect"
import { TestClock } from "effect/testing"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { Faults } from "../../src/platform/Faults.ts"

const once = (action: FaultInjection.FaultAction, delayMillis = 0) => ({ action, times: 1, delayMillis })

layer(FaultInjection.layer([], Effect.die("crashed")))("Faults", (it) => {
  it.effect("a point does what is set, as often as it is set, and then nothing", () =>
    Effect.gen(function* () {
      const { list, set } = yield* FaultInjection.FaultControl
      const faults = yield* Faults
      yield* set("a.b", { action: "fail", times: 2, delayMillis: 0 })
      assert.isTrue(Exit.isFailure(yield* Effect.exit(faults.at("a.b"))))
      assert.deepStrictEqual(yield* list, [{ point: "a.b", action: "fail", times: 1, delayMillis: 0 }])
      assert.isTrue(Exit.isFailure(yield* Effect.exit(faults.at("a.b"))))
      assert.isTrue(Exit.isSuccess(yield* Effect.exit(faults.at("a.b"))))
    })
  )

  it.effect("duplicate does the operation twice; lose-ack does it and reports a failure; crash does not do it", () =>
    Effect.gen(function* () {
      const { set } = yield* FaultInjection.FaultControl
      const faults = yield* Faults
      const done = yield* Ref.make(0)
      const run = faults.around(
        "a.b",
        Ref.updateAndGet(done, (n) => n + 1),
        () => "lost" as never
      )
      assert.strictEqual(yield* run, 1)
      yield* set("a.b", once("duplicate"))
      assert.strictEqual(yield* run, 3)
      yield* set("a.b", once("lose-ack"))
      assert.strictEqual(yield* Effect.flip(run), "lost")
      assert.strictEqual(yield* Ref.get(done), 4)
      yield* set("a.b", once("crash"))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(run)))
      assert.strictEqual(yield* Ref.get(done), 4)
    })
  )

  it.effect("delay waits, and clear takes a fault back", () =>
    Effect.gen(function* () {
      const { clear, set } = yield* FaultInjection.FaultControl
      const faults = yield* Faults
      yield* set("a.b", once("delay", 5_000))
      const fiber = yield* Effect.forkChild(faults.at("a.b"))
      yield* TestClock.adjust(4_999)
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* Fiber.join(fiber)
      yield* set("a.b", once("fail"))
      yield* clear("a.b")
      yield* faults.at("a.b")
    })
  )
})

describe("FaultInjection.parse", () => {
  it("reads points with their actions", () => {
    assert.deepStrictEqual(
      Result.getOrThrow(FaultInjection.parse("dispatcher.after-fetch=crash, pay.after-charge=delay:3:250")),
      [
        ["dispatcher.after-fetch", { action: "crash", times: 1, delayMillis: 0 }],
        ["pay.after-charge", { action: "delay", times: 3, delayMillis: 250 }]
      ]
    )
  })

  it("says which part is wrong", () => {
    for (const wrong of ["a.b=explode", "ab=crash", "a.b=crash:0", "a.b=delay:1:-5", "a.b", "=crash"]) {
      const result = FaultInjection.parse(`x.y=fail,${wrong}`)
      assert.isTrue(Result.isFailure(result) && result.failure.includes(`"${wrong}"`), wrong)
    }
  })
})

it.effect("without the layer, a point is nothing at all", () =>
  Effect.gen(function* () {
    const faults = yield* Faults
    assert.strictEqual(faults.at("a.b"), Effect.void)
    const operation = Effect.succeed(1)
    assert.strictEqual(
      faults.around("a.b", operation, () => undefined as never),
      operation
    )
  })
)
