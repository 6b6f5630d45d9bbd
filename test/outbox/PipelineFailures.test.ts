/** The pipeline when statements fail: acknowledgements that are not marked, a failed poll, and a stop without a database. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { LaneWorkers } from "../../src/outbox/LaneWorkers.ts"
import * as Counters from "../support/Counters.ts"
import { append, start, writer } from "../support/Dispatchers.ts"
import * as Ledger from "../support/Ledger.ts"

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

it.live("a stop without a database repeats the failed mark once, and not once for each lane", () =>
  Effect.gen(function* () {
    const lost = new SqlError.SqlError({
      reason: new SqlError.ConnectionError({ cause: new Error("lost"), message: "lost" })
    })
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
    const lost = new SqlError.SqlError({
      reason: new SqlError.ConnectionError({ cause: new Error("lost"), message: "lost" })
    })
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
