import { assert, it } from "@effect/vitest"
import { Clock, Effect, Semaphore } from "effect"
import * as Turn from "../../src/platform/Turn.ts"

/** The rounds of the event loop in which fifty handlers begin, and go on after a wait. Each of their parts takes so long. */
const roundsOf = Effect.fnUntraced(function* (millis: number) {
  // The last round of another test, by another clock, is over.
  yield* Effect.callback<void>((resume) => void setImmediate(() => resume(Effect.void)))
  let rounds = 0
  let isOver = false
  const count = () => {
    rounds++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  let nanos = 0n
  const clock = Object.create(yield* Clock.Clock, { monotonicTimeNanosUnsafe: { value: () => nanos } })
  const turns = Semaphore.makeUnsafe(8)
  const begun: Array<number> = []
  const part = Effect.sync(() => {
    begun.push(rounds)
    nanos += BigInt(millis * 1e6)
  })
  yield* Effect.replicateEffect(
    Turn.take(turns, Effect.andThen(part, Turn.aside(Effect.void)).pipe(Effect.andThen(part))),
    50,
    { concurrency: "unbounded" }
  ).pipe(Effect.provideService(Clock.Clock, clock))
  isOver = true
  return begun
})

it.live("between two long turns the event loop comes round, so that sockets are read and health is answered", () =>
  Effect.map(roundsOf(1), (begun) => assert.strictEqual(new Set(begun).size, 100))
)

it.live("short turns share a round of the event loop", () =>
  Effect.map(roundsOf(0.1), (begun) => {
    const sizes = [...Map.groupBy(begun, (round) => round).values()].map(({ length }) => length)
    assert.strictEqual(begun.length, 100)
    // Ten fill a round. The rounds are counted beside them, once before the turns of a round and once behind them.
    assert.isAtMost(Math.max(...sizes), 20)
    assert.isAtMost(sizes.length, 20)
  })
)
