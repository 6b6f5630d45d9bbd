/** The retry policies, by their delays. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Random } from "effect"
import { TestClock } from "effect/testing"
import { readdirSync, readFileSync } from "node:fs"
import * as Path from "node:path"
import * as Backoff from "../../src/platform/Backoff.ts"
import * as Monotonic from "../../src/platform/Monotonic.ts"
import { page } from "../support/BackoffPage.ts"

/** Every random draw returns this number. */
const drawing = (value: number) =>
  Effect.provideService(Random.Random, { nextIntUnsafe: () => 0, nextDoubleUnsafe: () => value })

const delays = (policy: Backoff.Policy, failures: number, random: number) =>
  drawing(random)(Backoff.delaysMillis(policy, failures))

/** The times of the runs of an effect that always fails, counted from the first run. */
const retried = (policy: Backoff.Policy, forMillis: number, runMillis: (attempt: number) => number = () => 0) =>
  Effect.gen(function* () {
    const startedMillis: Array<number> = []
    const attempt = Effect.flatMap(Monotonic.millis, (now) => {
      startedMillis.push(now)
      return Effect.delay(Effect.fail("down"), runMillis(startedMillis.length))
    })
    yield* Effect.forkChild(Effect.retry(attempt, policy))
    yield* TestClock.adjust(forMillis)
    return startedMillis.map((millis) => millis - startedMillis[0]!)
  })

describe("Backoff", () => {
  it.effect("full jitter is random(0, min(cap, base · 2ⁿ))", () =>
    Effect.gen(function* () {
      const policy = Backoff.fullJitter(100, 1_000)
      assert.deepStrictEqual(yield* delays(policy, 6, 0), [0, 0, 0, 0, 0, 0])
      assert.deepStrictEqual(yield* delays(policy, 6, 0.5), [50, 100, 200, 400, 500, 500])
      assert.deepStrictEqual(yield* delays(policy, 6, 1), [100, 200, 400, 800, 1_000, 1_000])
      const drawn = yield* Backoff.delaysMillis(policy, 60)
      assert.isAbove(new Set(drawn).size, 55)
      assert.isAtMost(Math.max(...drawn), 1_000)
    })
  )

  it.effect("Effect.retry waits these delays", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(
        yield* retried(Backoff.fullJitter(100, 1_000), 2_000),
        [0, 50, 150, 350, 750, 1_250, 1_750]
      )
    }).pipe(drawing(0.5))
  )

  it.effect("a stored count of failures gives the delay that the same failure in one fiber would have waited", () =>
    Effect.gen(function* () {
      const policy = Backoff.fullJitter(100, 1_000)
      for (const [index, millis] of (yield* delays(policy, 10, 0.25)).entries()) {
        assert.strictEqual(yield* drawing(0.25)(Backoff.millisAfter(policy, index + 1)), millis)
      }
      // After weeks of failures the delay must not take one computing step for each of them.
      assert.strictEqual(yield* drawing(0.25)(Backoff.millisAfter(policy, 1_000_000)), 250)
      assert.strictEqual(yield* drawing(1)(Backoff.millisAfter(Backoff.hold(1), 1_000_000)), 86_400_000)
    })
  )

  it.effect("a staircase gives its delays, a fifth more or less, and ends", () =>
    Effect.gen(function* () {
      const policy = Backoff.staircase([1_000, 60_000, 5_000])
      assert.deepStrictEqual(yield* delays(policy, 9, 0.5), [1_000, 60_000, 5_000])
      assert.deepStrictEqual(yield* delays(policy, 9, 0), [800, 48_000, 4_000])
      assert.deepStrictEqual(yield* delays(policy, 9, 1), [1_200, 72_000, 6_000])
      assert.strictEqual(yield* drawing(0.5)(Backoff.millisAfterOrEnd(policy, 3)), 5_000)
      assert.isUndefined(yield* Backoff.millisAfterOrEnd(policy, 4))
      assert.isUndefined(yield* Backoff.millisAfterOrEnd(Backoff.staircase([]), 1))
      // The highest number of delays that a setting may have.
      const long = Array.from({ length: 50 }, (_, index) => index + 1)
      assert.strictEqual(yield* drawing(0.5)(Backoff.millisAfterOrEnd(Backoff.staircase(long), 50)), 50)
      assert.isUndefined(yield* Backoff.millisAfterOrEnd(Backoff.staircase(long), 51))
    })
  )

  it.effect("a run that was longer than the limit begins the schedule anew", () =>
    Effect.gen(function* () {
      const policy = Backoff.capped(100, 10_000).pipe(Backoff.resetAfter(1_000))
      // The third wait is a second, which is not above the limit; the fifth one is a millisecond longer.
      const longRuns = new Map([
        [3, 1_000],
        [5, 1_001]
      ])
      const started = yield* retried(policy, 6_000, (attempt) => longRuns.get(attempt) ?? 0)
      const waits = started.slice(1).map((millis, index) => millis - started[index]! - (longRuns.get(index + 1) ?? 0))
      assert.deepStrictEqual(waits.slice(0, 6), [100, 200, 400, 800, 100, 200])
    })
  )

  it.effect("a transaction is retried eight times at most, within a second each", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* delays(Backoff.transaction, 20, 1), [10, 20, 40, 80, 160, 320, 640, 1_000])
    })
  )

  it.effect(
    "the head of a hold waits random(0, base · 2ⁿ) after its n-th attempt, n from 1, and never more than a day",
    () =>
      Effect.gen(function* () {
        const waits = yield* delays(Backoff.hold(Backoff.outboxHoldBaseMillis), 20, 1)
        assert.deepStrictEqual(waits.slice(0, 3), [4_000, 8_000, 16_000])
        assert.strictEqual(waits.at(-1), 86_400_000)
      })
  )
})

it.effect("docs/backoff.md shows the policies as they are (npm run docs:backoff writes it)", () =>
  Effect.gen(function* () {
    const path = Path.resolve(import.meta.dirname, "../../docs/backoff.md")
    assert.strictEqual(readFileSync(path, "utf8"), yield* page)
  })
)

it("no other file computes a backoff", () => {
  const src = Path.resolve(import.meta.dirname, "../../src")
  const computes =
    /Schedule\.(exponential|fibonacci|jittered|modifyDelay|addDelay)|\* 2 (\*\*|\^)|Math\.pow|Random\.next\b/
  const found = readdirSync(src, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !name.endsWith("platform/Backoff.ts"))
    .flatMap((name) =>
      readFileSync(Path.join(src, name), "utf8")
        .split("\n")
        .flatMap((line, index) => (computes.test(line) ? [`${name}:${index + 1}: ${line.trim()}`] : []))
    )
  assert.deepStrictEqual(found, [])
})
