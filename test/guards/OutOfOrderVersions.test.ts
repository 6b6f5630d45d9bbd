/** Aggregates with out-of-order versions in the queue: for example deleted and created again under the same id, or miscounted. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { OutOfOrderVersions } from "../../src/guards/OutOfOrderVersions.ts"
import { Outbox } from "../../src/outbox/Outbox.ts"
import { Queue, type QueuedEvent, QueueSettings } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { PollRequests } from "../../src/outbox/PollRequests.ts"
import * as Counters from "../support/Counters.ts"
import * as Lanes from "../support/Lanes.ts"
import * as ShortWaits from "../support/ShortWaits.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const batchSize = 10

const process = Dispatcher.layer.pipe(
  Layer.provideMerge(TestProcess.dispatcherStepsOver((layer) => layer)),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provide(Layer.succeed(QueueSettings, { batchSize, batchBytes: 900_000, archive: true })),
  Layer.provideMerge(TestProcess.quiet)
)

const lane = laneOf("a")
const neighbours = Array.from({ length: 200_000 }, (_, index) => `n${index}`).filter((id) => laneOf(id) === lane)

/** Events of an aggregate, from `version` on. */
const appendTo = (aggregateId: string, version: number, count = 1, aggregateType = "Order") =>
  Effect.gen(function* () {
    const outbox = yield* Outbox
    const event = { eventType: "Placed", schemaVersion: 1, data: {} }
    const more = Array.from({ length: count - 1 }, () => event)
    yield* outbox.append({ topic: Counters.topic, aggregateType, aggregateId }, version, [event, ...more])
  })
const append = (...events: Parameters<typeof appendTo>) => Transaction.run(appendTo(...events))

const queued = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly id: string; readonly version: number }>`
    SELECT aggregate_id AS id, aggregate_version AS version FROM outbox_events ORDER BY seq`
  return rows.map(({ id, version }) => `${id} ${version}`)
})

/** Drains the lane for as long as a turn reports that there is more. */
const drain = Effect.gen(function* () {
  const { drainOnce } = yield* Dispatcher
  yield* Effect.repeat(drainOnce([lane]), { while: (result) => result === "more" })
})

it.live(
  "an aggregate with out-of-order versions is not sent, its lane goes on without it, and it is sent once it is repaired",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { drainOnce } = yield* Dispatcher
      const { counts } = yield* OutOfOrderVersions
      yield* append("a", 7)
      yield* append("a", 1)
      yield* append(neighbours[0]!, 1)
      yield* drain
      yield* drain
      assert.deepStrictEqual(yield* queued, ["a 7", "a 1"])
      assert.deepStrictEqual(yield* counts, [{ lane, aggregates: 1 }])
      yield* sql`DELETE FROM outbox_events WHERE aggregate_version = 1`
      yield* append("a", 8)
      yield* Counters.eventually(
        "the check that finds it repaired",
        Effect.andThen(
          drainOnce([lane]),
          Effect.map(counts, (found) => found.length === 0)
        )
      )
      assert.deepStrictEqual(yield* queued, [])
      assert.deepStrictEqual(Counters.firstDeliveries(yield* Counters.published).get("a"), [7, 8])
    }).pipe(Effect.provide(process))
)

it.live("whatever is queued of an aggregate with out-of-order versions, the other events of its lane are sent", () =>
  Effect.gen(function* () {
    yield* append("a", 7)
    yield* append("a", 1, 3 * batchSize)
    for (const id of neighbours.slice(0, 2 * batchSize)) yield* append(id, 1)
    yield* append("a", 2, 2 * batchSize)
    yield* append(neighbours[0]!, 2)
    yield* drain
    assert.deepStrictEqual(
      (yield* queued).filter((name) => !name.startsWith("a ")),
      []
    )
    assert.strictEqual((yield* queued).length, 1 + 5 * batchSize, "and nothing of it")
  }).pipe(Effect.provide(process))
)

it.live("aggregates are told apart by type and id, and not by the two joined together", () =>
  Effect.gen(function* () {
    const { counts } = yield* OutOfOrderVersions
    const id = neighbours.find((neighbour) => laneOf(`Line ${neighbour}`) === lane)!
    yield* append(id, 1, 1, "Order Line")
    yield* append(`Line ${id}`, 1, 1, "Order")
    yield* drain
    assert.deepStrictEqual(yield* queued, [])
    assert.deepStrictEqual(yield* counts, [])
  }).pipe(Effect.provide(process))
)

it.live("too many aggregates with out-of-order versions stop their lane, and the next turn reports it again", () =>
  Effect.gen(function* () {
    const { drainOnce } = yield* Dispatcher
    const sql = yield* SqlClient.SqlClient
    yield* append("a", 1)
    // One writer gives every event version 1. However a batch is cut, it holds two of an aggregate's three events.
    const more = neighbours.slice(0, 1_001)
    yield* sql`
      INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                                 occurred_at, trace_id, span_id, record_bytes, data)
      SELECT lane, gen_random_uuid(), topic, event_type, schema_version, aggregate_type, id, 1, occurred_at, trace_id, span_id, record_bytes, data
      FROM outbox_events, unnest(${more}::text[]) WITH ORDINALITY AS other(id, turn), generate_series(1, 3) ORDER BY turn`
    const turn = Effect.exit(Effect.repeat(drainOnce([lane]), { while: (result) => result === "more" }))
    for (let time = 0; time < 2; time++) {
      const exit = yield* turn
      assert.isTrue(Exit.isFailure(exit))
      assert.match(String(exit), /more than 1000 aggregates of the lane have out-of-order versions/)
    }
  }).pipe(Effect.provide(process))
)

it.effect("after a check that fails the known aggregates stay excluded, and their lane goes on", () =>
  Effect.gen(function* () {
    let checks = 0
    const event = (seq: bigint, aggregateVersion: number) =>
      ({ lane, seq, aggregateVersion, aggregateType: "Order", aggregateId: "a" }) as QueuedEvent
    const left: Array<ReadonlyArray<string>> = []
    const inner = Layer.succeed(Queue, {
      ready: () => Effect.succeed([]),
      fetch: ([part]) =>
        Effect.sync(() => {
          const without = part?.withoutAggregates ?? []
          left.push(without.map(({ aggregateId }) => aggregateId))
          return [{ lane, events: without.length === 0 ? [event(1n, 7), event(2n, 1)] : [], isCut: false }]
        }),
      mark: () => Effect.void,
      pending: () => Effect.succeed({ count: 0, oldestSeconds: 0 })
    })
    const guarded = OutOfOrderVersions.layerWith(() =>
      Effect.andThen(
        Effect.sync(() => checks++),
        Effect.die(new Error("it took too long"))
      )
    ).pipe(Layer.provide(inner), Layer.provide(PollRequests.layer))
    yield* Effect.gen(function* () {
      const queue = yield* Queue
      const { counts } = yield* OutOfOrderVersions
      assert.deepStrictEqual(yield* queue.fetch([Lanes.partOf(lane)]), [{ lane, events: [], isCut: false }])
      yield* TestClock.adjust("1 second")
      // The next fetch does not check again at once.
      for (let fetch = 0; fetch < 2; fetch++) yield* queue.fetch([Lanes.partOf(lane)])
      assert.deepStrictEqual(left, [[], ["a"], ["a"]])
      assert.strictEqual(checks, 1)
      assert.deepStrictEqual(yield* counts, [{ lane, aggregates: 1 }])
    }).pipe(Effect.provide(guarded))
  }).pipe(Effect.provide(TestProcess.quiet))
)

it.effect("a fetch that returns rows in the wrong order is a defect, and none of them is sent", () =>
  Effect.gen(function* () {
    const event = (seq: bigint) =>
      ({ lane, seq, aggregateVersion: Number(seq), aggregateType: "Order", aggregateId: "a" }) as QueuedEvent
    const backwards = Layer.succeed(Queue, {
      ready: () => Effect.succeed([]),
      fetch: () => Effect.succeed([{ lane, events: [event(3n), event(2n)], isCut: false }]),
      mark: () => Effect.void,
      pending: () => Effect.succeed({ count: 0, oldestSeconds: 0 })
    })
    const guarded = OutOfOrderVersions.layerWith(() => Effect.succeed([])).pipe(
      Layer.provide(backwards),
      Layer.provide(PollRequests.layer)
    )
    const fetch = Effect.flatMap(Queue, (queue) => queue.fetch([Lanes.partOf(lane)])).pipe(Effect.provide(guarded))
    assert.match(String(yield* Effect.exit(fetch)), /version 2 follows 3 in the queue/)
  })
)

it.live("a repaired aggregate is sent within seconds, without a poll", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const dispatcher = TestProcess.dispatcherOver((layer) => layer).pipe(
      Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 }))
    )
    const context = yield* ShortWaits.upTo("5 seconds")(Layer.build(dispatcher))
    // In one transaction: each event alone would be sent in the order of its arrival.
    yield* append("a", 7, 2)
    yield* Counters.drained
    yield* Transaction.run(Effect.andThen(appendTo("a", 12), appendTo("a", 10)))
    yield* Counters.eventually(
      "it to be found",
      Effect.map(Context.get(context, OutOfOrderVersions).counts, (lanes) => lanes.length === 1)
    )
    yield* sql`DELETE FROM outbox_events WHERE aggregate_version = 10`
    yield* Counters.drained
    yield* Counters.eventually(
      "health to report it",
      Effect.map(Context.get(context, OutOfOrderVersions).counts, (lanes) => lanes.length === 0)
    )
  }).pipe(
    Effect.scoped,
    Effect.provide(
      TestProcess.outbox.pipe(Layer.provideMerge(TestDatabase.layer), Layer.provideMerge(TestProcess.quiet))
    )
  )
)
