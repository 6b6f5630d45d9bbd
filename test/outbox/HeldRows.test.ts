/** Holds step by step, without a dispatcher: the rows that each statement moves, and the effect of late answers. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Random } from "effect"
import { SqlClient } from "effect/sql"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import * as Parking from "../../src/outbox/holds/Parking.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Lanes from "../support/Lanes.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)
const holdsAlone = Parking.layer.pipe(Layer.provideMerge(Queue.layer), Layer.provideMerge(writer))

it.live("after send n the next one waits a random part of base · 2ⁿ, on the database's clock", () =>
  Effect.gen(function* () {
    const holds = yield* Holds
    const queue = yield* Queue
    const sql = yield* SqlClient.SqlClient
    const lane = laneOf("poison")
    yield* Refusals.append("poison", 1, 2)
    const [event] = yield* Lanes.fetch(queue, lane, [])
    yield* holds.hold(lane, event!, Refusals.rejection)
    for (let sends = 1; sends <= 8; sends++) {
      const expected = 0.5 * 100_000 * 2 ** sends
      // A little time has passed since, even on a slow machine.
      const { attempts, waitMillis } = (yield* Refusals.holdOn("poison"))!
      assert.strictEqual(attempts, sends)
      assert.isTrue(waitMillis! <= expected && waitMillis! > expected - 60_000, `${waitMillis} of ${expected}`)
      assert.deepStrictEqual(yield* holds.due([{ lane }]), [], "not before its time")
      yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now()`
      const [head] = yield* holds.due([{ lane }])
      assert.strictEqual(head?.attempts, sends)
      assert.deepStrictEqual(
        yield* holds.due([{ lane, withoutTopics: [Counters.topic] }]),
        [],
        "not while its topic pauses"
      )
      assert.strictEqual(yield* holds.rejected(head!, Refusals.rejection), "retrying")
      assert.strictEqual(yield* holds.rejected(head!, Refusals.rejection), "gone", "the same send counts once")
    }
  }).pipe(
    Effect.scoped,
    Effect.provide(holdsAlone),
    Effect.provide(Refusals.soon({ retryBaseMillis: 100_000 })),
    Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.5, nextIntUnsafe: () => 1 })
  )
)

it.live(
  "a zombie's refusal of an event that its successor has published or held counts nothing and holds nothing",
  () =>
    Effect.gen(function* () {
      const holds = yield* Holds
      const queue = yield* Queue
      const lane = laneOf("poison")
      yield* Refusals.append("poison", 1, 2)
      const [first, second] = yield* Lanes.fetch(queue, lane, [])
      assert.strictEqual(yield* holds.hold(lane, first!, Refusals.rejection), "retrying")
      assert.strictEqual(yield* holds.hold(lane, first!, Refusals.rejection), "gone")
      assert.strictEqual((yield* Refusals.holdOn("poison"))?.attempts, 1)
      // The zombie's ack is late: its mark finds no row, and the event stays published once.
      yield* Lanes.mark(queue, lane, [first!, second!], { partition: 0, baseOffset: 7n })
      assert.deepStrictEqual(
        (yield* Refusals.statesOf("poison")).map((state) => state.status),
        ["retrying", "parked"]
      )
      const sql = yield* PgClient.PgClient
      yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now()`
      const [head] = yield* holds.due([{ lane }])
      assert.isTrue(yield* holds.published(head!, { partition: 0, baseOffset: 8n }))
      assert.isFalse(
        yield* holds.published(head!, { partition: 0, baseOffset: 9n }),
        "the second to succeed has a duplicate"
      )
      assert.strictEqual(yield* holds.rejected(head!, Refusals.rejection), "gone")
      assert.strictEqual(yield* holds.hold(lane, first!, Refusals.rejection), "gone")
      assert.isUndefined(yield* Refusals.holdOn("poison"))
      assert.deepStrictEqual(yield* Counters.queuedVersions("poison"), [2])
    }).pipe(Effect.scoped, Effect.provide(holdsAlone), Effect.provide(Refusals.soon()))
)

it.live("a late answer for a published head changes nothing for the event that is held now", () =>
  Effect.gen(function* () {
    const holds = yield* Holds
    const queue = yield* Queue
    const sql = yield* PgClient.PgClient
    const lane = laneOf("poison")
    yield* Refusals.append("poison", 1, 2)
    const [first] = yield* Lanes.fetch(queue, lane, [])
    yield* holds.hold(lane, first!, Refusals.rejection)
    yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now()`
    const [head] = yield* holds.due([{ lane }])
    assert.isTrue(yield* holds.published(head!, { partition: 0, baseOffset: 0n }))
    // The next event is refused as often as the first one was.
    const [second] = yield* Lanes.fetch(queue, lane, [])
    assert.strictEqual(yield* holds.hold(lane, second!, Refusals.rejection), "retrying")
    assert.isFalse(yield* holds.published(head!, { partition: 0, baseOffset: 1n }))
    assert.strictEqual(yield* holds.rejected(head!, Refusals.rejection), "gone")
    assert.deepStrictEqual(
      (yield* Refusals.statesOf("poison")).map(({ status }) => status),
      ["published", "retrying"]
    )
    assert.strictEqual((yield* Refusals.holdOn("poison"))?.attempts, 1)
  }).pipe(Effect.scoped, Effect.provide(holdsAlone), Effect.provide(Refusals.soon()))
)

it.live(
  "a hold with an earlier event parked behind it is neither tried nor released, and delays no other hold of its lane",
  () =>
    Effect.gen(function* () {
      const holds = yield* Holds
      const queue = yield* Queue
      const sql = yield* PgClient.PgClient
      const lane = laneOf("poison")
      const neighbour = Array.from({ length: 10_000 }, (_, index) => `n${index}`).find((id) => laneOf(id) === lane)!
      yield* Refusals.append("poison", 1, 2)
      yield* Refusals.append(neighbour, 1, 1)
      const [first, second, third] = yield* Lanes.fetch(queue, lane, [])
      yield* holds.hold(lane, first!, Refusals.rejection)
      yield* holds.hold(lane, third!, Refusals.rejection)
      // A state that no code of ours makes: the second event is the head.
      yield* sql`UPDATE outbox_holds SET event_id = ${second!.eventId}::uuid, seq = ${second!.seq} WHERE aggregate_id = 'poison'`
      yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now()`
      assert.deepStrictEqual(
        (yield* holds.due([{ lane }])).map(({ aggregateId }) => aggregateId),
        [neighbour]
      )
      const published = holds.published({ ...second!, attempts: 1 }, { partition: 0, baseOffset: 0n })
      assert.match(String(yield* Effect.exit(published)), /an earlier event is parked behind/)
      assert.deepStrictEqual(
        (yield* Refusals.statesOf("poison")).map(({ status }) => status),
        ["parked", "retrying"]
      )
    }).pipe(Effect.scoped, Effect.provide(holdsAlone), Effect.provide(Refusals.soon()))
)

it.live("a refused event whose id a dead letter already has is retried less and less often, and is not lost", () =>
  Effect.gen(function* () {
    const holds = yield* Holds
    const queue = yield* Queue
    const sql = yield* PgClient.PgClient
    yield* Refusals.append("one", 1, 1)
    yield* holds.hold(laneOf("one"), (yield* Lanes.fetch(queue, laneOf("one"), []))[0]!, Refusals.rejection)
    assert.deepStrictEqual(
      (yield* Refusals.statesOf("one")).map(({ status }) => status),
      ["dead"]
    )
    yield* Refusals.append("two", 1, 2)
    // By hand, or by a machine that was cloned together with its random numbers.
    yield* sql`
      UPDATE outbox_events SET event_id = (SELECT event_id FROM outbox_dead_letters) WHERE aggregate_id = 'two' AND aggregate_version = 1`
    const [head] = yield* Lanes.fetch(queue, laneOf("two"), [])
    assert.strictEqual(yield* holds.hold(laneOf("two"), head!, Refusals.rejection), "retrying")
    assert.strictEqual(yield* holds.rejected({ ...head!, attempts: 1 }, Refusals.rejection), "retrying")
    assert.strictEqual((yield* Refusals.holdOn("two"))?.attempts, 2)
    assert.isTrue(yield* holds.published({ ...head!, attempts: 2 }, { partition: 0, baseOffset: 0n }))
    assert.deepStrictEqual(yield* Counters.queuedVersions("two"), [2])
  }).pipe(Effect.scoped, Effect.provide(holdsAlone), Effect.provide(Refusals.soon({ maxAttempts: 1 })))
)

/** Events of an aggregate from version 2 to `count`, each with that many bytes. */
const appendBehind = (count: number, bytes = 0) =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    yield* sql`
      INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id,
                                 aggregate_version, occurred_at, trace_id, span_id, record_bytes, data)
      SELECT lane, gen_random_uuid(), topic, event_type, schema_version, aggregate_type, aggregate_id,
             version, occurred_at, trace_id, span_id, record_bytes + ${bytes}::int4, to_json(repeat('x', ${bytes}::int4))
      FROM outbox_events, generate_series(2, ${count}::int4) AS version WHERE aggregate_id = 'poison' ORDER BY version`
  })

const places = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const [row] = yield* sql<{ readonly queued: number; readonly parked: number }>`
    SELECT (SELECT count(*) FROM outbox_events)::int4 AS queued, (SELECT count(*) FROM outbox_parked)::int4 AS parked`
  return row
})

for (const [what, count, bytes, atOnce] of [
  ["an aggregate with more events behind a refused one", 25_000, 0, 2_000],
  ["an aggregate with large events behind a refused one", 100, 100_000, 40]
] as const) {
  it.live(`${what} than one statement moves is held and released in pieces`, () =>
    Effect.gen(function* () {
      const holds = yield* Holds
      const queue = yield* Queue
      const sql = yield* PgClient.PgClient
      const lane = laneOf("poison")
      yield* Refusals.append("poison", 1, 1)
      yield* appendBehind(count, bytes)
      const [first] = yield* Lanes.fetch(queue, lane, [])
      assert.strictEqual(yield* holds.hold(lane, first!, Refusals.rejection), "retrying")
      assert.deepStrictEqual(yield* places, { queued: count - atOnce, parked: atOnce })
      // Rows that are still in the queue belong to the held aggregate, and are moved when a fetch finds them.
      const met = yield* Lanes.fetch(queue, lane, [])
      assert.isTrue(met.every(({ held }) => held === true))
      assert.strictEqual(yield* holds.park(lane, met), met.length)
      for (let events = met; events.length > 0; events = yield* Lanes.fetch(queue, lane, []))
        yield* holds.park(lane, events)
      assert.deepStrictEqual(yield* places, { queued: 0, parked: count })
      yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now()`
      const [head] = yield* holds.due([{ lane }])
      assert.isTrue(yield* holds.published(head!, { partition: 0, baseOffset: 0n }))
      assert.deepStrictEqual(yield* places, { queued: count - 1, parked: 0 })
      const [next] = yield* Lanes.fetch(queue, lane, [])
      assert.deepStrictEqual([next?.aggregateVersion, next?.held], [2, false])
    }).pipe(Effect.scoped, Effect.provide(holdsAlone), Effect.provide(Refusals.soon()))
  )
}

it.live("however many events a held aggregate has in the queue, the others of its lane are sent in the same turn", () =>
  Effect.gen(function* () {
    const { drainOnce } = yield* Dispatcher
    const holds = yield* Holds
    const queue = yield* Queue
    const lane = laneOf("poison")
    const neighbour = Array.from({ length: 10_000 }, (_, index) => `n${index}`).find((id) => laneOf(id) === lane)!
    yield* Refusals.append("poison", 1, 1)
    yield* holds.hold(lane, (yield* Lanes.fetch(queue, lane, []))[0]!, Refusals.rejection)
    yield* Refusals.append("poison", 2, 5_000)
    yield* Refusals.append(neighbour, 1, 1)
    assert.strictEqual(yield* drainOnce([lane]), "more")
    assert.deepStrictEqual(yield* Counters.queuedVersions(neighbour), [])
    assert.deepStrictEqual(yield* places, { queued: 4_000, parked: 1_001 })
  }).pipe(
    Effect.scoped,
    Effect.provide(
      Dispatcher.layer.pipe(
        Layer.provideMerge(TestProcess.dispatcherStepsOver((layer) => layer)),
        Layer.provideMerge(writer)
      )
    ),
    Effect.provide(Refusals.soon())
  )
)
