/** Which lanes a fetch takes. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Flights from "../../src/outbox/Flights.ts"
import { allLanes, type Lane } from "../../src/outbox/Lane.ts"
import * as StoppedLanes from "../../src/outbox/StoppedLanes.ts"

const make = Effect.gen(function* () {
  const stopped = yield* StoppedLanes.make({ owns: () => true, wakeAfter: () => Effect.void })
  return yield* Flights.make({ owns: () => true, enter: () => true, leave: () => undefined, stopped })
})
const none: ReadonlySet<Lane> = new Set()

it.effect("a fetch takes few of the lanes with a backlog, by turns, and every other lane that is ready", () =>
  Effect.gen(function* () {
    const flights = yield* make
    const deep = new Set(allLanes.slice(0, 2 * Flights.deepLimit))
    const [first, second] = [[...deep].slice(0, Flights.deepLimit), [...deep].slice(Flights.deepLimit)]
    const fresh = allLanes.slice(40, 60)
    for (const lane of [...deep, ...fresh]) flights.wake(lane)
    yield* flights.isReady.close
    assert.deepStrictEqual(flights.board(deep), [...first, ...fresh])
    // The others stay ready, and the fetcher does not wait for another wake-up.
    assert.isTrue(flights.isReady.isOpen())
    // A lane that is free again comes after those that have waited.
    yield* flights.close(first)
    for (const lane of first) flights.wake(lane)
    assert.deepStrictEqual(flights.board(deep), second)
    assert.deepStrictEqual(flights.board(deep), first)
    yield* flights.isReady.close
    assert.deepStrictEqual(flights.board(deep), [])
    assert.isFalse(flights.isReady.isOpen())
  })
)

it.effect("a wake-up of a lane in flight makes it ready when it is free", () =>
  Effect.gen(function* () {
    const flights = yield* make
    const lane = allLanes[0]!
    flights.wake(lane)
    flights.board(none)
    flights.wake(lane)
    assert.deepStrictEqual(flights.board(none), [])
    yield* flights.close([lane])
    assert.deepStrictEqual(flights.board(none), [lane])
  })
)
