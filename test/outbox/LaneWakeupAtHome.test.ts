import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Layer, SubscriptionRef } from "effect"
import { Lane } from "../../src/outbox/Lane.ts"
import { LaneWakeup } from "../../src/outbox/LaneWakeup.ts"
import { ControlConnection } from "../../src/platform/ControlConnection.ts"
import * as Counters from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** A process's wake-ups, once its control connection is up. */
const startProcess = Effect.gen(function* () {
  const database = yield* TestDatabase
  const context = yield* Layer.build(
    Layer.fresh(TestProcess.outbox.pipe(Layer.provide(Layer.succeed(TestDatabase, database))))
  )
  const { session } = yield* Effect.provide(ControlConnection, context)
  yield* Counters.eventually(
    "a session",
    Effect.map(SubscriptionRef.get(session), (current) => current !== undefined)
  )
  return yield* Effect.provide(LaneWakeup, context)
})

it.live("a lane is woken where it is owned, and only there", () =>
  Effect.gen(function* () {
    const here = yield* startProcess
    const there = yield* startProcess
    const [owned, foreign] = [Lane.make(7), Lane.make(8)]
    const heardHere: Array<number> = []
    const heardThere: Array<number> = []
    const done = yield* Deferred.make<void>()
    yield* here.onWake(
      (lanes) => void heardHere.push(...lanes),
      (lane) => lane === owned
    )
    yield* there.onWake((lanes) => {
      heardThere.push(...lanes)
      if (lanes.includes(foreign)) Deferred.doneUnsafe(done, Effect.void)
    })
    // Notifications of one session arrive in order: the second one shows that the first one was not sent.
    yield* here.wake(owned)
    yield* here.wake(foreign)
    yield* Deferred.await(done)
    assert.deepStrictEqual(heardThere, [foreign])
    assert.include(heardHere, owned)
  }).pipe(Effect.scoped, Effect.provide(Layer.provideMerge(TestDatabase.layer, TestProcess.quiet)))
)
