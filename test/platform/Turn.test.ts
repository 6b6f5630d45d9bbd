import { assert, it } from "@effect/vitest"
import { Effect, Semaphore } from "effect"
import * as Turn from "../../src/platform/Turn.ts"

it.live("between two turns the event loop comes round, so that sockets are read and health is answered", () =>
  Effect.gen(function* () {
    let rounds = 0
    let isOver = false
    const count = () => {
      rounds++
      if (!isOver) setImmediate(count)
    }
    setImmediate(count)
    const turns = Semaphore.makeUnsafe(8)
    const begun: Array<number> = []
    const begins = Effect.sync(() => void begun.push(rounds))
    yield* Effect.replicateEffect(
      Turn.take(turns, Effect.andThen(begins, Turn.aside(Effect.void)).pipe(Effect.andThen(begins))),
      50,
      { concurrency: "unbounded" }
    )
    isOver = true
    assert.strictEqual(new Set(begun).size, 100)
  })
)
