import { assert, it } from "@effect/vitest"
import { Clock, Effect, Semaphore } from "effect"
import * as Turn from "../../src/platform/Turn.ts"

/** A clock that `pass` alone moves. */
const heldClock = Effect.map(Clock.Clock, (real) => {
  let nanos = 0n
  const clock = Object.create(real, { monotonicTimeNanosUnsafe: { value: () => nanos } }) as typeof real
  return { clock, pass: (millis: number) => void (nanos += BigInt(millis * 1e6)) }
})

/** The last round of another test, by another clock, is over. */
const afterRound = Effect.callback<void>((resume) => void setImmediate(() => resume(Effect.void)))

/** The rounds of the event loop in which fifty handlers begin, and go on after a wait. Each of their parts takes so long. */
const roundsOf = Effect.fnUntraced(function* (millis: number) {
  yield* afterRound
  let rounds = 0
  let isOver = false
  const count = () => {
    rounds++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  const { clock, pass } = yield* heldClock
  const turns = Semaphore.makeUnsafe(8)
  const begun: Array<number> = []
  const part = Effect.sync(() => {
    begun.push(rounds)
    pass(millis)
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

it.live("turns begin in the order in which they came, also those that go on after a wait", () =>
  Effect.gen(function* () {
    yield* afterRound
    const { clock, pass } = yield* heldClock
    const turns = Semaphore.makeUnsafe(8)
    const begun: Array<string> = []
    const part = (name: string) =>
      Effect.sync(() => {
        begun.push(name)
        pass(1)
      })
    const handler = (name: string) =>
      Turn.take(turns, Effect.andThen(part(`${name}0`), Turn.aside(Effect.void)).pipe(Effect.andThen(part(`${name}1`))))
    yield* Effect.all(["A", "B", "C"].map(handler), { concurrency: "unbounded" }).pipe(
      Effect.provideService(Clock.Clock, clock)
    )
    // A goes on before the others have come.
    assert.deepStrictEqual(begun, ["A0", "A1", "B0", "C0", "B1", "C1"])
  })
)
