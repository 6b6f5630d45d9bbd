/** The packets of a turn's statements, and the statements that wait for none of them. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Dispatching from "../../src/Dispatching.ts"
import { Lane, laneOf } from "../../src/outbox/Lane.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import { TurnConnection } from "../../src/outbox/TurnConnection.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Database from "../../src/postgres/Database.ts"
import * as Counters from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as Lanes from "../support/Lanes.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const lane = laneOf("counter")
const receipt = { partition: 0, baseOffset: 0n }

/** The queue of a dispatcher, and the packets that its connections write. */
const start = Effect.gen(function* () {
  const written: Array<string> = []
  const watch = Layer.succeed(Database.SocketSetup, (socket) => {
    const write = socket.write.bind(socket)
    socket.write = (chunk: Uint8Array, ...rest: ReadonlyArray<never>) => {
      written.push(Buffer.from(chunk).toString("latin1"))
      return write(chunk, ...rest)
    }
  })
  const context = yield* Layer.build(
    Layer.fresh(
      Layer.effectContext(Effect.context<Queue>()).pipe(
        Layer.provide(Queue.layer),
        Layer.provide(Dispatching.dispatcherDatabase),
        Layer.provide(watch)
      )
    )
  )
  return { context, queue: Context.get(context, Queue), written }
})

it.live("a mark and a fetch of one moment share a packet", () =>
  Effect.gen(function* () {
    yield* Transaction.run(Counters.create("counter"))
    const { context, queue, written } = yield* start
    yield* Effect.gen(function* () {
      const events = yield* Lanes.fetch(queue, lane, [])
      // Both statements are prepared then.
      yield* queue.mark([{ lane: Lane.make((lane + 1) % 64), topic: "", events: [], receipt }])
      const before = written.length
      const mark = queue.mark([{ lane, topic: events[0]!.topic, events, receipt }])
      const [, found] = yield* Effect.all([mark, Lanes.fetch(queue, lane, [])], { concurrency: 2 })
      assert.strictEqual(written.length - before, 1)
      assert.deepStrictEqual(found, [], "Postgres runs them in their order")
    }).pipe(Effect.provideContext(context))
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("polls and late marks wait for no statement of a turn", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* Transaction.run(Counters.create("counter"))
    const { context, queue } = yield* start
    yield* Effect.gen(function* () {
      const events = yield* Lanes.fetch(queue, lane, [])
      const locked = yield* Transaction.run(
        Effect.gen(function* () {
          yield* Transaction.use((own) => own.sql`SELECT 1 AS one FROM outbox_events FOR UPDATE`)
          const mark = yield* Effect.forkDetach(Lanes.mark(queue, lane, events, receipt))
          yield* Counters.eventually(
            "the mark to wait for the lock",
            Effect.map(sql`SELECT FROM pg_locks WHERE NOT granted`, (waiting) => waiting.length > 0)
          )
          assert.deepStrictEqual(yield* queue.ready([{ lane }]), [lane])
          const other = Lane.make((lane + 1) % 64)
          yield* Effect.provideService(
            queue.mark([{ lane: other, topic: "", events: [], receipt }]),
            TurnConnection,
            undefined
          )
          return mark
        })
      )
      yield* Fiber.join(locked)
      assert.deepStrictEqual(yield* Lanes.fetch(queue, lane, []), [])
    }).pipe(Effect.provideContext(context))
  }).pipe(Effect.scoped, Effect.provide(writer))
)
