/** Which lanes a fetch takes. */
import { assert, it } from "@effect/vitest"
import { Cause, Effect } from "effect"
import { TestClock } from "effect/testing"
import * as Flights from "../../src/outbox/Flights.ts"
import { allLanes, type Lane } from "../../src/outbox/Lane.ts"
import * as StoppedLanes from "../../src/outbox/StoppedLanes.ts"

const make = Effect.gen(function* () {
  const stopped = yield* StoppedLanes.make({ owns: () => true, wakeAfter: () => Effect.void })
  return yield* Flights.make({ owns: () => true, enter: () => true, leave: () => undefined, stopped })
})

/** Flights that count the users of each lane, as its ownership does. A lane of `leaving` takes no new ones. */
const counted = Effect.gen(function* () {
  const users = new Map<Lane, number>()
  const leaving = new Set<Lane>()
  const stopped = yield* StoppedLanes.make({ owns: () => true, wakeAfter: () => Effect.void })
  const add = (lane: Lane, count: number) => void users.set(lane, (users.get(lane) ?? 0) + count)
  const flights = yield* Flights.make({
    owns: () => true,
    enter: (lane) => {
      if (leaving.has(lane)) return false
      add(lane, 1)
      return true
    },
    leave: (lane) => add(lane, -1),
    stopped
  })
  return { flights, leaving, stopped, usersOf: (lane: Lane) => users.get(lane) ?? 0 }
})

const bounds = { batchBytes: 1_000, batchSize: 10 }

it.effect("a fetch takes few of the lanes with a backlog, by turns, and every other lane that is ready", () =>
  Effect.gen(function* () {
    const flights = yield* make
    const deep = allLanes.slice(0, 2 * Flights.deepLimit)
    const [first, second] = [deep.slice(0, Flights.deepLimit), deep.slice(Flights.deepLimit)]
    const fresh = allLanes.slice(40, 60)
    flights.wake(deep)
    flights.board()
    // It left events behind: they are ready again.
    flights.fetched(deep, { batches: [], cut: new Set(deep) }, bounds)
    flights.close(deep)
    flights.wake(fresh)
    yield* flights.isReady.close
    assert.deepStrictEqual(flights.board(), [...first, ...fresh])
    // The others stay ready, and the next turn does not wait for another wake-up.
    assert.isTrue(flights.isReady.isOpen())
    // A lane that is free again comes after those that have waited.
    flights.close(first)
    flights.wake(first)
    assert.deepStrictEqual(flights.board(), second)
    assert.deepStrictEqual(flights.board(), first)
    yield* flights.isReady.close
    assert.deepStrictEqual(flights.board(), [])
    assert.isFalse(flights.isReady.isOpen())
  })
)

it.effect("a wake-up of a lane in flight makes it ready when it is free", () =>
  Effect.gen(function* () {
    const flights = yield* make
    const lane = allLanes[0]!
    flights.wake([lane])
    flights.board()
    flights.wake([lane])
    assert.deepStrictEqual(flights.board(), [])
    flights.close([lane])
    assert.deepStrictEqual(flights.board(), [lane])
  })
)

it.effect("a lane that waits for its mark alone is fetched again, and is not given up before the mark", () =>
  Effect.gen(function* () {
    const { flights, leaving, usersOf } = yield* counted
    const lane = allLanes[0]!
    flights.wake([lane])
    flights.board()
    flights.owe([lane])
    flights.wake([lane])
    assert.deepStrictEqual(flights.board(), [], "its batch is in flight")
    flights.close([lane])
    assert.isTrue(flights.isReady.isOpen())
    assert.deepStrictEqual(flights.board(), [lane])
    flights.settle([lane])
    assert.strictEqual(usersOf(lane), 1)
    // The next batch is acknowledged, and the lane is to go to another process.
    flights.owe([lane])
    leaving.add(lane)
    flights.wake([lane])
    flights.close([lane])
    assert.deepStrictEqual(flights.board(), [])
    assert.strictEqual(usersOf(lane), 1, "the new owner would send what is not marked")
    flights.settle([lane])
    assert.strictEqual(usersOf(lane), 0)
  })
)

it.effect("a lane that has failed is not fetched again before its mark", () =>
  Effect.gen(function* () {
    const { flights, stopped, usersOf } = yield* counted
    const lane = allLanes[0]!
    flights.wake([lane])
    flights.board()
    flights.owe([lane])
    flights.of(lane).isFailed = true
    yield* stopped.failed(lane, Cause.die("on purpose"))
    flights.wake([lane])
    flights.close([lane])
    yield* TestClock.adjust("1 minute")
    flights.wake([lane])
    assert.deepStrictEqual(flights.board(), [])
    flights.settle([lane])
    assert.strictEqual(usersOf(lane), 0)
    assert.deepStrictEqual(stopped.list(), [{ lane, attempt: 1 }])
    assert.deepStrictEqual(flights.board(), [lane])
  })
)

it.effect("a lane that fails in each round waits longer each time, though part of each round is marked", () =>
  Effect.gen(function* () {
    const { flights, stopped } = yield* counted
    const lane = allLanes[0]!
    for (const attempt of [1, 2]) {
      flights.wake([lane])
      assert.deepStrictEqual(flights.board(), [lane])
      // One topic's batch is acknowledged and marked, while that of another topic is still being sent.
      flights.owe([lane])
      flights.settle([lane])
      flights.of(lane).isFailed = true
      yield* stopped.failed(lane, Cause.die("on purpose"))
      flights.close([lane])
      assert.deepStrictEqual(stopped.list(), [{ lane, attempt }])
      yield* TestClock.adjust("1 minute")
    }
  })
)

it.effect("a lane that was ready again before its mark failed waits", () =>
  Effect.gen(function* () {
    const { flights, stopped } = yield* counted
    const lane = allLanes[0]!
    flights.wake([lane])
    flights.board()
    flights.owe([lane])
    flights.close([lane])
    flights.wake([lane])
    flights.of(lane).isFailed = true
    yield* stopped.failed(lane, Cause.die("on purpose"))
    flights.settle([lane])
    assert.deepStrictEqual(flights.board(), [])
  })
)

it.effect("a lane that is never without a batch is healthy after a mark", () =>
  Effect.gen(function* () {
    const { flights, stopped } = yield* counted
    const lane = allLanes[0]!
    yield* stopped.failed(lane, Cause.die("on purpose"))
    yield* TestClock.adjust("1 minute")
    flights.wake([lane])
    flights.board()
    flights.owe([lane])
    flights.wake([lane])
    flights.close([lane])
    assert.deepStrictEqual(flights.board(), [lane])
    flights.settle([lane])
    assert.deepStrictEqual(stopped.list(), [])
  })
)
