import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Exit, Fiber, Logger, Ref, Result } from "effect"
import { TestClock } from "effect/testing"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { faultPoints } from "../../src/FaultPoints.ts"
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
    for (const wrong of [
      "a.b=explode",
      "ab=crash",
      "a.b=crash:0",
      "a.b=crash:0x2",
      "a.b=crash:1e3",
      "a.b=crash:1:5",
      "a.b=delay",
      "a.b=delay:2",
      "a.b=delay:1:-5",
      "a.b=delay:1:600001",
      "a.b=fail:1:1:1",
      "a.b",
      "=crash"
    ]) {
      const result = FaultInjection.parse(`x.y=fail,${wrong}`)
      assert.isTrue(Result.isFailure(result) && result.failure.includes(`"${wrong}"`), wrong)
    }
  })
})

describe("FaultInjection.parse with the service's points", () => {
  const refusal = (text: string) => {
    const result = FaultInjection.parse(text, faultPoints)
    return Result.isFailure(result) ? result.failure : "accepted"
  }

  it("a list without a fault is refused, and an empty text arms none", () => {
    for (const list of [",", " , "]) assert.match(refusal(list), /^a list without a fault is not point=action/)
    for (const none of ["", " "]) assert.deepStrictEqual(Result.getOrThrow(FaultInjection.parse(none, faultPoints)), [])
  })

  it("a point that does not exist is refused, and the nearest one is named with all others", () => {
    assert.match(
      refusal("task.after-clam=crash"),
      /^there is no fault point task\.after-clam \(task\.after-claim\?\); /
    )
    assert.include(refusal("task.after-clam=crash"), "dispatcher.before-publish")
    assert.match(refusal("moon.phase=crash"), /^there is no fault point moon\.phase; there are pay\.after-intent, /)
  })

  it("an action that a point does not have is refused, and so is a point that is there twice", () => {
    assert.strictEqual(
      refusal("pay.after-charge=lose-ack"),
      "pay.after-charge has no action lose-ack; it has crash, fail, delay"
    )
    assert.strictEqual(refusal("dispatcher.before-publish=lose-ack:3"), "accepted")
    assert.strictEqual(refusal("pay.after-charge=crash,pay.after-charge=fail"), "pay.after-charge is there twice")
  })
})

it.effect("a fault that is set, strikes or is cleared is a line in the log", () =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    const logger = Logger.make(({ message }) => void lines.push(String(message)))
    yield* Effect.gen(function* () {
      const { clear, set } = yield* FaultInjection.FaultControl
      const faults = yield* Faults
      yield* set("a.b", { action: "fail", times: 2, delayMillis: 0 })
      yield* Effect.exit(faults.at("a.b"))
      yield* clear("a.b")
      yield* faults.at("a.b")
    }).pipe(Effect.provide(FaultInjection.layer()), Effect.provide(Logger.layer([logger])))
    assert.deepStrictEqual(lines, [
      "a fault is set: a.b=fail, 2 times",
      "a fault strikes on purpose: a.b=fail",
      "the fault at a.b is cleared"
    ])
  })
)

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
