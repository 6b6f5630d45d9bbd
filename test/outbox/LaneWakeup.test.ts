/** Wake-ups are hints: they make delivery faster, and no guarantee depends on them. Each process here has its own sessions. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Redacted, Schedule, Scope, SubscriptionRef } from "effect"
import { SqlClient } from "effect/sql"
import { laneCount } from "../../src/outbox/Lane.ts"
import { LaneOwnership } from "../../src/outbox/LaneOwnership.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import * as Outbox from "../../src/outbox/Outbox.ts"
import { LaneWakeup } from "../../src/outbox/LaneWakeup.ts"
import { Ids } from "../../src/platform/Ids.ts"
import { ControlConnection, ControlSettings } from "../../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { Ownership } from "../../src/platform/Ownership.ts"
import { slotClassOf, unsigned } from "../../src/platform/OwnershipLocks.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Wakeups, WakeupSettings } from "../../src/platform/Wakeups.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { WatchSettings } from "../../src/postgres/fast/LaneWatch.ts"
import * as QuietWakeups from "../../src/postgres/fast/QuietWakeups.ts"
import { watchClass } from "../../src/postgres/fast/WatchedLanes.ts"
import * as Counters from "../support/Counters.ts"
import * as Ledger from "../support/Ledger.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** An hour, so that no event is delivered by the poll. */
const never = 3_600_000
const soon = 50

const pollEvery = (pollMillis: number) => Layer.succeed(LaneWorkersSettings, { pollMillis })

const database = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestDatabase.layerPool),
  Layer.provideMerge(TestProcess.quiet)
)

/** Like TestProcess.platform, but the control connection may use another address of the same database. */
const platform = (controlUrl: Redacted.Redacted, sessionTimeoutMillis: number) =>
  Layer.unwrap(
    TestDatabase.useSync(({ url }) =>
      Ownership.layer.pipe(
        Layer.provideMerge(Wakeups.layer),
        Layer.provideMerge(ControlConnection.layer.pipe(Layer.provide(DatabaseSettings.layerOf({ url: controlUrl })))),
        Layer.provideMerge(Ids.layer),
        Layer.provideMerge(Layer.mergeAll(Database.layer, Fibers.layer)),
        Layer.provideMerge(DatabaseSettings.layerOf({ url, maxConnections: 4 })),
        Layer.provide(Layer.succeed(ControlSettings, { sessionTimeoutMillis, heartbeatMillis: 200 }))
      )
    )
  )

/** A process whose control connection goes through a proxy. Every wake-up of it passes `wakeup`. */
const startProcess = (options: {
  readonly dispatches: boolean
  readonly wakeup?: Layer.Layer<LaneWakeup>
  readonly sessionTimeoutMillis?: number
}) =>
  Effect.gen(function* () {
    const { proxy, url } = yield* TcpProxy.makePostgres((yield* TestDatabase).url)
    const outbox = Outbox.Outbox.layer.pipe(
      Layer.provideMerge(options.wakeup ?? QuietWakeups.layer),
      Layer.provideMerge(platform(url, options.sessionTimeoutMillis ?? 1_000))
    )
    const dispatcher = options.dispatches ? TestProcess.dispatcher : Layer.empty
    const context = yield* Layer.build(Layer.fresh(dispatcher.pipe(Layer.provideMerge(outbox))))
    return { context, proxy, control: Context.get(context, ControlConnection) }
  })
type Process = Effect.Success<ReturnType<typeof startProcess>>

const write = ({ context }: Process, id: string) => Effect.provide(Transaction.run(Ledger.append(id)), context)

const allOwned = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* Counters.eventually(
    "all lanes to be owned",
    Effect.map(
      sql<{ readonly count: number }>`
        SELECT count(*)::int4 AS count FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND classid = ${String(unsigned(slotClassOf(LaneOwnership.group)))}::int8::oid
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      ([row]) => row?.count === laneCount
    )
  )
})

/** Asserts that every committed event is in the topic, in order. */
const assertDelivered = Effect.gen(function* () {
  yield* Counters.drained
  const { committed, problems } = Ledger.check(yield* Ledger.deliveredEmbedded, yield* Ledger.committed)
  assert.deepStrictEqual(problems, [])
  assert.isAbove(committed, 0)
})

/** Writes one event after the other, each when the previous one has arrived. */
const oneByOne = Effect.fnUntraced(function* (process: Process) {
  for (let index = 0; index < 30; index++) {
    yield* write(process, `ledger-${index % 7}`)
    yield* Counters.drained
  }
  yield* assertDelivered
})

it.live("a wake-up in the same process delivers without the poll, also with OUTBOX_NOTIFY off", () =>
  Effect.gen(function* () {
    const process = yield* startProcess({ dispatches: true })
    yield* allOwned
    yield* oneByOne(process)
  }).pipe(
    Effect.scoped,
    Effect.provide(Layer.mergeAll(pollEvery(never), Layer.succeed(WakeupSettings, { crossProcess: false }))),
    Effect.provide(database)
  )
)

it.live("a wake-up from another process delivers without the poll, whichever dispatcher owns the lane", () =>
  Effect.gen(function* () {
    // No session may end because the machine stands still for a moment. A wake-up without a session is lost, and here no poll repeats it.
    const sessionTimeoutMillis = 60_000
    const process = yield* startProcess({ dispatches: false, sessionTimeoutMillis })
    yield* Effect.replicateEffect(startProcess({ dispatches: true, sessionTimeoutMillis }), 2)
    yield* allOwned
    yield* oneByOne(process)
  }).pipe(Effect.scoped, Effect.provide(pollEvery(never)), Effect.provide(database))
)

/** The lanes that dispatchers watch. */
const watchedLanes = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly count: number }>`
    SELECT count(*)::int4 AS count FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND classid = ${String(unsigned(watchClass))}::int8::oid
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
  return row!.count
})

const writeSome = (process: Process) =>
  Effect.forEach(
    Array.from({ length: 20 }, (_, index) => index),
    (index) => write(process, `ledger-${index}`),
    { concurrency: 4, discard: true }
  )

/** Writes until all lanes are watched. */
const untilWatched = (process: Process) =>
  Counters.eventually(
    "all lanes to be watched",
    Effect.andThen(
      writeSome(process),
      Effect.map(watchedLanes, (count) => count === laneCount)
    )
  )

/** A watch begins with two wake-ups of another process within a fifth of a second, and ends with a fifth of a second without events. */
const watchesSoon = Layer.merge(
  pollEvery(never),
  Layer.succeed(WatchSettings, { beginsAt: 2, endsBelow: 1, backOffMillis: 0 })
)
/** No session may end because the machine stands still for a moment. */
const patient = { sessionTimeoutMillis: 60_000 }

it.live("while its lanes are watched, and right after that, no event of another process waits for the poll", () =>
  Effect.gen(function* () {
    const process = yield* startProcess({ dispatches: false, ...patient })
    yield* startProcess({ dispatches: true, ...patient })
    yield* allOwned
    for (let round = 0; round < 2; round++) {
      yield* untilWatched(process)
      yield* oneByOne(process)
      yield* Counters.eventually(
        "no lane to be watched",
        Effect.map(watchedLanes, (count) => count === 0)
      )
      yield* oneByOne(process)
    }
  }).pipe(Effect.scoped, Effect.provide(watchesSoon), Effect.provide(database))
)

it.live("the next owner of watched lanes delivers without the poll, too", () =>
  Effect.gen(function* () {
    const process = yield* startProcess({ dispatches: false, ...patient })
    const scope = yield* Scope.make()
    yield* Effect.provideService(startProcess({ dispatches: true, ...patient }), Scope.Scope, scope)
    yield* startProcess({ dispatches: true, ...patient })
    yield* allOwned
    yield* untilWatched(process)
    const stopping = yield* Effect.forkChild(Scope.close(scope, Exit.void))
    yield* oneByOne(process)
    yield* Fiber.join(stopping)
    yield* oneByOne(process)
  }).pipe(Effect.scoped, Effect.provide(watchesSoon), Effect.provide(database))
)

it.live(
  "events that were written before a dispatcher owned their lanes are delivered at once, and not by the poll",
  () =>
    Effect.gen(function* () {
      const process = yield* startProcess({ dispatches: false })
      for (let index = 0; index < 20; index++) yield* write(process, `ledger-${index}`)
      yield* startProcess({ dispatches: true })
      yield* assertDelivered
    }).pipe(Effect.scoped, Effect.provide(pollEvery(never)), Effect.provide(database))
)

/** Goes on writing while `trouble` happens, and a little longer. */
const writeDuring = <E, R>(process: Process, trouble: Effect.Effect<unknown, E, R>) =>
  Effect.gen(function* () {
    const writing = yield* Effect.forkChild(
      Effect.forever(Effect.andThen(write(process, "ledger"), Effect.sleep("5 millis")))
    )
    yield* trouble
    yield* Fiber.interrupt(writing)
    yield* write(process, "ledger")
    yield* assertDelivered
  })

it.live("with OUTBOX_NOTIFY off, events of other processes are delivered by the poll", () =>
  Effect.gen(function* () {
    const process = yield* startProcess({ dispatches: false })
    yield* startProcess({ dispatches: true })
    yield* allOwned
    yield* writeDuring(process, Effect.sleep("200 millis"))
  }).pipe(
    Effect.scoped,
    Effect.provide(Layer.mergeAll(pollEvery(soon), Layer.succeed(WakeupSettings, { crossProcess: false }))),
    Effect.provide(database)
  )
)

it.live("with every wake-up dropped, in every process, everything is delivered by the poll", () =>
  Effect.gen(function* () {
    const dropped = { count: 0 }
    const drops = Layer.succeed(
      LaneWakeup,
      LaneWakeup.of({ wake: () => Effect.sync(() => void dropped.count++), onWake: () => Effect.void })
    )
    const process = yield* startProcess({ dispatches: true, wakeup: drops })
    yield* startProcess({ dispatches: true, wakeup: drops })
    yield* allOwned
    yield* writeDuring(process, Effect.sleep("200 millis"))
    assert.isAbove(dropped.count, 0)
  }).pipe(Effect.scoped, Effect.provide(pollEvery(soon)), Effect.provide(database))
)

it.live("with the LISTEN connections killed again and again, everything is delivered", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const process = yield* startProcess({ dispatches: false })
    const dispatcher = yield* startProcess({ dispatches: true })
    yield* allOwned
    const kill = ({ control }: Process) =>
      Effect.gen(function* () {
        const session = yield* SubscriptionRef.get(control.session)
        yield* sql`SELECT pg_terminate_backend(${session?.backendPid ?? 0})`
        yield* Counters.eventually(
          "another session",
          Effect.map(SubscriptionRef.get(control.session), (next) => next !== undefined && next.id !== session?.id)
        )
      })
    yield* writeDuring(process, Effect.andThen(kill(process), kill(dispatcher)).pipe(Effect.repeat(Schedule.recurs(2))))
  }).pipe(Effect.scoped, Effect.provide(pollEvery(soon)), Effect.provide(database))
)

for (const whose of ["writer's", "dispatcher's"] as const) {
  it.live(`with the ${whose} LISTEN connection half-open, everything is delivered`, () =>
    Effect.gen(function* () {
      const process = yield* startProcess({ dispatches: false })
      const dispatcher = yield* startProcess({ dispatches: true })
      yield* allOwned
      const { control, proxy } = whose === "writer's" ? process : dispatcher
      yield* writeDuring(
        process,
        Effect.gen(function* () {
          // Postgres' messages are dropped without an error.
          yield* proxy.blackHole("responses")
          yield* Counters.eventually(
            "the loss to be noticed",
            Effect.map(SubscriptionRef.get(control.session), (session) => session === undefined)
          )
          yield* proxy.pass
        })
      )
      yield* allOwned
    }).pipe(Effect.scoped, Effect.provide(pollEvery(soon)), Effect.provide(database))
  )
}
