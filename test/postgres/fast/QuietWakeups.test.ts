/** Which wake-ups a process does not send, as another process hears it. Each process has sessions of its own. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Scope, SubscriptionRef } from "effect"
import { allLanes, type Lane } from "../../../src/outbox/Lane.ts"
import { LaneWakeup } from "../../../src/outbox/LaneWakeup.ts"
import { ControlConnection } from "../../../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import { Ids } from "../../../src/platform/Ids.ts"
import * as Monotonic from "../../../src/platform/Monotonic.ts"
import { Fibers } from "../../../src/platform/Supervised.ts"
import { Wakeups } from "../../../src/platform/Wakeups.ts"
import * as Database from "../../../src/postgres/Database.ts"
import * as QuietWakeups from "../../../src/postgres/fast/QuietWakeups.ts"
import * as WatchedLanes from "../../../src/postgres/fast/WatchedLanes.ts"
import { eventually } from "../../support/Counters.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

const startProcess = Effect.flatMap(TestDatabase, ({ url }) =>
  Layer.build(
    Layer.fresh(
      QuietWakeups.layer.pipe(
        Layer.provideMerge(Wakeups.layer),
        Layer.provideMerge(ControlConnection.layer),
        Layer.provide(Layer.mergeAll(Fibers.layer, Layer.provide(Ids.layer, Database.layer))),
        Layer.provide(DatabaseSettings.layerOf({ url }))
      )
    )
  )
)

const isConnected = (process: Context.Context<ControlConnection>) =>
  Effect.map(
    Effect.result(Context.get(process, ControlConnection).query("SELECT 1")),
    (result) => result._tag === "Success"
  )

const [watched, other] = [allLanes[5]!, allLanes[6]!]

/** A sender, a watcher, and a listener that hears what the sender sends. */
const start = Effect.gen(function* () {
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const sender = yield* startProcess
  const listener = yield* startProcess
  const watcher = yield* Effect.provideService(startProcess, Scope.Scope, scope)
  yield* eventually(
    "all to be connected",
    Effect.map(Effect.all([sender, listener, watcher].map(isConnected)), (all) => !all.includes(false))
  )
  const heard: Array<Lane> = []
  yield* Context.get(listener, LaneWakeup).onWake((lanes) => void heard.push(...lanes))
  const wake = (lane: Lane) => Context.get(sender, LaneWakeup).wake(lane)
  return {
    sender,
    watcher,
    wake,
    watch: WatchedLanes.make(Context.get(watcher, ControlConnection)),
    endWatcher: Scope.close(scope, Exit.void),
    isHeard: eventually(
      "the lane's wake-ups to be sent",
      Effect.gen(function* () {
        heard.length = 0
        yield* wake(watched)
        yield* Effect.sleep("5 millis")
        return heard.includes(watched)
      })
    ),
    /** The lane is woken all the time, and for a whole tenth of a second nothing is heard of it, while another lane is heard. */
    isQuiet: eventually(
      "the lane's wake-ups not to be sent",
      Effect.gen(function* () {
        heard.length = 0
        const until = (yield* Monotonic.millis) + 100
        while ((yield* Monotonic.millis) < until) yield* Effect.andThen(wake(watched), Effect.sleep("2 millis"))
        yield* wake(other)
        yield* eventually(
          "the other lane",
          Effect.sync(() => heard.includes(other))
        )
        return !heard.includes(watched)
      })
    )
  }
})

it.live("wake-ups of a watched lane are not sent, and are again when the watch has ended", () =>
  Effect.gen(function* () {
    const { isHeard, isQuiet, watch } = yield* start
    yield* isHeard
    yield* watch([watched])
    yield* isQuiet
    yield* watch([])
    yield* isHeard
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("they are sent again when the watcher's process has ended", () =>
  Effect.gen(function* () {
    const { endWatcher, isHeard, isQuiet, watch } = yield* start
    yield* watch([watched])
    yield* isQuiet
    yield* endWatcher
    yield* isHeard
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("they are sent again when the watcher's session has ended, until it says anew what it watches", () =>
  Effect.gen(function* () {
    const { isHeard, isQuiet, watch, watcher } = yield* start
    yield* watch([watched])
    yield* isQuiet
    const { query, session } = Context.get(watcher, ControlConnection)
    const before = yield* SubscriptionRef.get(session)
    yield* Effect.ignore(query("SELECT pg_terminate_backend(pg_backend_pid())"))
    yield* eventually(
      "another session",
      Effect.map(SubscriptionRef.get(session), (now) => now !== undefined && now.id !== before?.id)
    )
    yield* isHeard
    yield* watch([watched])
    yield* isQuiet
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("a lane that this process owns is woken here, whoever watches it", () =>
  Effect.gen(function* () {
    const { isQuiet, sender, wake, watch } = yield* start
    yield* watch([watched])
    yield* isQuiet
    const woken: Array<readonly [Lane, boolean]> = []
    yield* Context.get(sender, LaneWakeup).onWake(
      ([lane], isHere) => void woken.push([lane!, isHere]),
      (lane) => lane === watched
    )
    yield* wake(watched)
    assert.deepStrictEqual(woken, [[watched, true]])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)
