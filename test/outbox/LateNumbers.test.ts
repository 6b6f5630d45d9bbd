/** A low-water mark is proposed in one round and set in a later one. A number that is drawn in between must stay above the mark. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { laneOf } from "../../src/outbox/Lane.ts"
import { LowWaterMarks } from "../../src/postgres/fast/LowWaterMarks.ts"
import { Queue, QueueSettings } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Lanes from "../support/Lanes.ts"

/** A writer and the queue, without a dispatcher. */
const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(LowWaterMarks.layerQueue),
  Layer.provideMerge(Queue.layer),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet),
  // Without an archive, which would already contain the row that the test puts back by hand.
  Layer.provide(Layer.succeed(QueueSettings, { batchSize: 1_000, batchBytes: 900_000, archive: false }))
)

const lane = laneOf("late")
/** Other aggregates of the same lane. */
const [neighbour, backlogged] = Array.from({ length: 20_000 }, (_, index) => `counter-${index}`).filter(
  (id) => laneOf(id) === lane
) as [string, string]

/** Appends the first event of `late` in a transaction that stays open until `commit`. */
const beginLate = Effect.gen(function* () {
  const appended = yield* Deferred.make<void>()
  const release = yield* Deferred.make<void>()
  const writing = yield* Effect.forkChild(
    Transaction.run(
      Counters.create("late").pipe(
        Effect.andThen(Deferred.succeed(appended, undefined)),
        Effect.andThen(Deferred.await(release))
      )
    )
  )
  yield* Deferred.await(appended)
  return { commit: Effect.andThen(Deferred.succeed(release, undefined), Fiber.join(writing)) }
})

for (const { floor, paused } of [
  { floor: "the lane's low-water mark", paused: [] },
  { floor: "the mark that leaves out a paused topic", paused: ["away"] }
]) {
  it.live(`a number that is drawn after the proposal and commits last stays above ${floor}`, () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const queue = yield* Queue
      const round = (yield* LowWaterMarks).raise([lane], () => paused)
      const idsInFetch = Effect.map(Lanes.fetch(queue, lane, paused), (events) =>
        events.map((event) => event.aggregateId)
      )
      yield* Refusals.append(backlogged, 1, 3, "away")
      // A row of a healthy topic below the expected mark: once a fetch no longer finds the row, the mark has been set.
      yield* sql`CREATE TABLE kept AS SELECT * FROM outbox_events ORDER BY seq OFFSET 1 LIMIT 1`
      const takeOut = sql`DELETE FROM outbox_events WHERE seq IN (SELECT seq FROM kept)`
      yield* paused.length > 0 ? takeOut : sql`DELETE FROM outbox_events`
      yield* sql`UPDATE kept SET topic = ${Counters.topic}`

      yield* round
      const late = yield* beginLate
      yield* Transaction.run(Counters.create(neighbour))
      // The mark also waits for transactions of the server's other databases, so one more round may not be enough.
      yield* Counters.eventually(
        `${floor} to be set`,
        Effect.gen(function* () {
          yield* round
          yield* sql`INSERT INTO outbox_events OVERRIDING SYSTEM VALUE SELECT * FROM kept`
          const isBelow = !(yield* idsInFetch).includes(backlogged)
          yield* takeOut
          return isBelow
        })
      )
      assert.deepStrictEqual(yield* idsInFetch, [neighbour])
      yield* late.commit
      assert.deepStrictEqual(yield* idsInFetch, ["late", neighbour])
    }).pipe(Effect.provide(writer))
  )
}
