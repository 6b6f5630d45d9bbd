/** The pipeline when statements fail: acknowledgements that are not marked, a failed poll, and a stop without a database. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Logger, Random, References } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkers } from "../../src/outbox/LaneWorkers.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import { append, idIn, start, writer } from "../support/Dispatchers.ts"
import * as Ledger from "../support/Ledger.ts"
import * as ShortWaits from "../support/ShortWaits.ts"
import * as Ticking from "../support/Ticking.ts"

const lost = new SqlError.SqlError({
  reason: new SqlError.ConnectionError({ cause: new Error("lost"), message: "lost" })
})
/** Every wait is nearly as long as it may be. */
const longWaits = Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.99, nextIntUnsafe: () => 1 })

it.live("a lane whose marks fail for two topics, one after the other, sends neither again", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    let isBroken = true
    const sends: Array<string> = []
    const [asked, gate] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    yield* append(0, 2)
    // The second aggregate of the lane goes to another topic.
    yield* sql`UPDATE outbox_events SET topic = 'other', aggregate_type = 'other' WHERE aggregate_version = 2`
    yield* sql`UPDATE outbox_events SET aggregate_version = 1`
    const context = yield* start(
      (batch, broker) => {
        sends.push(batch.topic)
        return batch.topic === "other"
          ? Deferred.succeed(asked, undefined).pipe(
              Effect.andThen(Deferred.await(gate)),
              Effect.andThen(broker.publish(batch))
            )
          : Effect.andThen(Deferred.await(asked), broker.publish(batch))
      },
      (queue) => ({ mark: (runs) => (isBroken ? Effect.die(new Error("broken on purpose")) : queue.mark(runs)) })
    )
    const { stopped } = Context.get(context, LaneWorkers)
    yield* Counters.eventually(
      "the first mark to fail",
      Effect.map(stopped, ([first]) => first?.attempt === 1)
    )
    yield* Deferred.succeed(gate, undefined)
    yield* Counters.eventually(
      "the second one to fail",
      Effect.map(stopped, ([first]) => (first?.attempt ?? 0) >= 2)
    )
    isBroken = false
    yield* Counters.drained
    assert.strictEqual(sends.length, 2, `each is sent once: ${sends.join()}`)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("while no mark succeeds, nothing more is sent, though fetches do", () =>
  Effect.gen(function* () {
    let isDown = true
    let failures = 0
    let sends = 0
    yield* start(
      (batch, broker) => {
        sends++
        return broker.publish(batch)
      },
      (queue) => ({
        mark: (runs) =>
          Effect.suspend(() => {
            if (!isDown) return queue.mark(runs)
            failures++
            return Effect.die(lost)
          })
      })
    )
    const failed = (count: number) =>
      Counters.eventually(
        `${count} marks to fail`,
        Effect.sync(() => failures >= count)
      )
    yield* append(0)
    yield* failed(1)
    yield* append(8)
    yield* failed(failures + 2)
    assert.strictEqual(sends, 1)
    isDown = false
    yield* Counters.drained
    assert.strictEqual(sends, 2)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a stop without a database repeats the failed mark once, and not once for each lane", () =>
  Effect.gen(function* () {
    const [asked, gate] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    let sends = 0
    let marks = 0
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* start(
          (batch, broker) =>
            Effect.suspend(() => (++sends === 8 ? Deferred.succeed(asked, undefined) : Effect.void)).pipe(
              Effect.andThen(Deferred.await(gate)),
              Effect.andThen(broker.publish(batch))
            ),
          // While the first mark fails, all other batches are acknowledged.
          () => ({
            mark: () =>
              Effect.suspend(() => (++marks === 1 ? Effect.sleep("2 seconds") : Effect.void)).pipe(
                Effect.andThen(Effect.die(lost))
              )
          })
        )
        for (const lane of [0, 1, 2, 3, 4, 5, 6, 7]) yield* append(lane)
        yield* Deferred.await(asked)
        // The stop has begun when the gate opens.
        yield* Effect.forkDetach(Effect.andThen(Effect.sleep("200 millis"), Deferred.succeed(gate, undefined)))
      })
    )
    assert.isAtMost(marks, 4)
  }).pipe(Effect.provide(writer))
)

it.live("a poll that failed is repeated after the poll interval, however rarely it is due otherwise", () =>
  Effect.gen(function* () {
    let hasFailed = false
    yield* append(0)
    yield* start(
      (batch, broker) => broker.publish(batch),
      (queue) => ({
        ready: (views) =>
          Effect.suspend(() => {
            if (hasFailed) return queue.ready(views)
            hasFailed = true
            return Effect.die(lost)
          })
      })
    )
    yield* Counters.eventually(
      "the event to be published",
      Effect.map(Ledger.countEmbedded, (count) => count === 1),
      15
    )
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("after an outage of Postgres the poll is back as soon as the turns are, within five seconds", () =>
  Effect.gen(function* () {
    const waits: Array<number> = []
    const logger = Logger.make(({ message }) => {
      const [, millis] = /^dispatcher poll failed and will be restarted in (\d+) ms/.exec(String(message)) ?? []
      if (millis !== undefined) waits.push(Number(millis))
    })
    const ticking = yield* Ticking.start(
      start(
        (batch, broker) => broker.publish(batch),
        () => ({ ready: () => Effect.die(lost) })
      )
    ).pipe(Effect.provideService(References.MinimumLogLevel, "Debug"), Effect.provide(Logger.layer([logger])))
    yield* ticking.until(
      "the poll to have failed ten times",
      "30 seconds",
      Effect.sync(() => waits.length >= 10)
    )
    assert.isAtMost(Math.max(...waits), 5_000)
  }).pipe(Effect.scoped, Effect.provide(writer), longWaits)
)

const timedOut = new SqlError.SqlError({
  reason: new SqlError.StatementTimeoutError({ cause: new Error("57014"), message: "canceling statement" })
})

it.live("of many lanes whose statements time out one is tried alone, and all of them wait before the next try", () =>
  Effect.gen(function* () {
    const sizes: Array<number> = []
    const [hasBegun, goOn] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    const context = yield* ShortWaits.upTo("90 millis")(
      start(
        (batch, broker) => broker.publish(batch),
        (queue) => ({
          fetch: (parts) =>
            // While the first lane is fetched the others become ready, and are fetched together.
            parts[0]?.lane === 0
              ? Deferred.succeed(hasBegun, undefined).pipe(
                  Effect.andThen(Deferred.await(goOn)),
                  Effect.andThen(queue.fetch(parts))
                )
              : Effect.suspend(() => (sizes.push(parts.length), Effect.die(timedOut)))
        })
      )
    )
    yield* append(0)
    yield* Deferred.await(hasBegun)
    for (const lane of [1, 2, 3, 4, 5, 6, 7]) yield* append(lane)
    yield* Deferred.succeed(goOn, undefined)
    yield* Counters.eventually(
      "all of them to wait",
      Effect.map(Context.get(context, LaneWorkers).stopped, (lanes) => lanes.length === 7)
    )
    assert.deepStrictEqual(sizes, [7, 1])
  }).pipe(Effect.scoped, Effect.provide(writer), longWaits)
)

it.live(
  "a lane whose marks time out waits alone: the lanes that were marked with it go on, and nothing is sent twice",
  () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const sends: Array<number> = []
      yield* start(
        (batch, broker) => {
          sends.push(...batch.records.map(({ key }) => laneOf(key)))
          return Effect.andThen(Deferred.await(gate), broker.publish(batch))
        },
        (queue) => ({
          mark: (runs) => (runs.some(({ lane }) => lane === 8) ? Effect.die(timedOut) : queue.mark(runs))
        })
      )
      for (const lane of [0, 8, 16, 24]) yield* append(lane)
      yield* Deferred.succeed(gate, undefined)
      yield* Counters.eventually(
        "the other lanes to be marked",
        Effect.map(Ledger.archived, (count) => count === 3)
      )
      // A further event of each is sent and marked, whether the slow lane is tried again meanwhile or not.
      for (const lane of [0, 16, 24]) yield* append(lane)
      yield* Counters.eventually(
        "their next events",
        Effect.map(Ledger.archived, (count) => count === 6)
      )
      assert.deepStrictEqual(
        sends.toSorted((one, other) => one - other),
        [0, 0, 8, 16, 16, 24, 24]
      )
    }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a lane whose mark failed, and that waits when the dispatcher stops, is marked once more before the end", () =>
  Effect.gen(function* () {
    let isBroken = true
    yield* Effect.scoped(
      Effect.gen(function* () {
        // The lane's wait after its failure does not end by itself.
        const context = yield* ShortWaits.upTo("90 millis")(
          start(
            (batch, broker) => broker.publish(batch),
            (queue) => ({ mark: (runs) => (isBroken ? Effect.die(new Error("broken on purpose")) : queue.mark(runs)) })
          )
        )
        yield* append(0)
        yield* Counters.eventually(
          "the mark to fail",
          Effect.map(Context.get(context, LaneWorkers).stopped, (lanes) => lanes.length === 1)
        )
        isBroken = false
      })
    )
    assert.deepStrictEqual(yield* Counters.queuedVersions(idIn(0)), [])
    assert.strictEqual(yield* Ledger.archived, 1)
  }).pipe(Effect.provide(writer), longWaits)
)

it.live(
  "a lane whose failure can't even be logged is tried again, and so are the lanes behind it in its partition",
  () =>
    Effect.gen(function* () {
      let [failures, lines] = [0, 0]
      const logger = Logger.make(({ message }) => {
        if (String(message).startsWith("lane 0 failed") && lines++ < 2) throw new Error("no room for a log")
      })
      yield* start((batch, broker) =>
        batch.partition === 0 && failures++ === 0 ? Effect.die(new Error("broken once")) : broker.publish(batch)
      ).pipe(Effect.provideService(References.MinimumLogLevel, "Error"), Effect.provide(Logger.layer([logger])))
      yield* append(0)
      yield* Counters.eventually(
        "the failure",
        Effect.sync(() => lines >= 2)
      )
      yield* append(8)
      yield* Counters.drained
      assert.strictEqual(yield* Ledger.countEmbedded, 2)
    }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a mark that failed and is tried again keeps no other lane's mark waiting", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [isLocked, isUnlocked] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    let tries = 0
    yield* append(0)
    yield* Transaction.run(
      Effect.gen(function* () {
        yield* Transaction.use((own) => own.sql`SELECT 1 AS one FROM outbox_events FOR UPDATE`)
        yield* Deferred.succeed(isLocked, undefined)
        yield* Deferred.await(isUnlocked)
      })
    ).pipe(Effect.forkScoped)
    yield* Deferred.await(isLocked)
    yield* start(
      (batch, broker) => broker.publish(batch),
      (queue) => ({
        // The first mark times out, and the second one waits for the lock.
        mark: (runs) => (runs.some(({ lane }) => lane === 0) && tries++ === 0 ? Effect.die(timedOut) : queue.mark(runs))
      })
    )
    // A stop waits for the mark.
    yield* Effect.addFinalizer(() => Deferred.succeed(isUnlocked, undefined))
    const waiting = sql<{ readonly name: string }>`
      SELECT application_name AS name FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`
    yield* Counters.eventually(
      "the second mark to wait for the lock",
      Effect.map(waiting, (sessions) => tries === 2 && sessions.length > 0)
    )
    assert.deepStrictEqual(
      (yield* waiting).filter(({ name }) => name.endsWith(" turns")),
      [],
      "no turn waits"
    )
    for (const lane of [1, 2, 3]) yield* append(lane)
    yield* Counters.eventually(
      "the other lanes to be marked",
      Effect.map(Ledger.archived, (count) => count === 3)
    )
    yield* Deferred.succeed(isUnlocked, undefined)
    yield* Counters.eventually(
      "the late mark",
      Effect.map(Ledger.archived, (count) => count === 4)
    )
  }).pipe(Effect.scoped, Effect.provide(writer))
)
