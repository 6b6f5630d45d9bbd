/** Replays: the events that a handler gets once more, and all others. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { Subscriber } from "../../src/inbox/Subscriber.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { type Counts, Replay, type ReplayFilter } from "../../src/operations/replay/Replay.ts"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { RetentionSettings } from "../../src/platform/Retention.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as TaskCleanup from "../../src/tasks/TaskCleanup.ts"
import * as Counters from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"
import * as World from "./RebuildWorld.ts"

const { apply, archive, happen, operator, versions } = World
const { idOf, topic } = Deliveries

const makeTable = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`CREATE TABLE stamps (key text PRIMARY KEY)`)
const world = Replay.layer.pipe(Layer.provideMerge(Layer.effectDiscard(makeTable)), Layer.provideMerge(World.world))

/** A subscriber whose effect has the event's key: a second one does nothing. `given` are the events that its handler got, in order. */
const makeKeyed = (replay?: Subscriber["replay"]) => {
  const given: Array<string> = []
  const hooks: { before: (event: string) => Effect.Effect<void, unknown> } = { before: () => Effect.void }
  const subscriber: Subscriber = {
    name: "stamper",
    topic,
    firstSight: "from-version-1",
    ...(replay === undefined ? {} : { replay }),
    handle: Effect.fnUntraced(function* ({ aggregateId, aggregateVersion, eventId }) {
      const { sql } = yield* Transaction
      yield* hooks.before(`${aggregateId}/${aggregateVersion}`)
      given.push(`${aggregateId}/${aggregateVersion}`)
      yield* sql`INSERT INTO stamps VALUES (${eventId}) ON CONFLICT DO NOTHING`
    })
  }
  return { subscriber, given, hooks }
}

const run = (subscriber: Subscriber, filter: ReplayFilter = {}, told: Array<Counts> = []) =>
  Replay.use(({ run }) => run(subscriber, filter, operator, (counts) => Effect.sync(() => void told.push(counts))))

const count = (subscriber: Subscriber, filter: ReplayFilter = {}) =>
  Replay.use(({ run }) => run(subscriber, filter, undefined, () => Effect.void))

const stamps = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(sql`SELECT 1 AS one FROM stamps`, (rows) => rows.length)
)

it.live("a handler gets applied events again, in the order of each aggregate; marks and cursors stay", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { given, subscriber } = makeKeyed("again")
    for (const id of ["a", "b"]) yield* happen(subscriber, id, versions(1, 3))
    yield* sql`DELETE FROM stamps WHERE key = ${idOf("a", 2)}`
    const state = Effect.all({
      everything: Deliveries.everything,
      marks: sql`SELECT * FROM processed_events ORDER BY event_id`
    })
    const before = yield* state
    given.splice(0)
    assert.deepInclude(yield* count(subscriber), { dryRun: true, replayed: 6, waiting: 0, givenUp: 0, tooOld: 0 })
    assert.deepStrictEqual([given, yield* stamps], [[], 5])
    assert.deepInclude(yield* run(subscriber), { consumer: "stamper", dryRun: false, replayed: 6 })
    assert.deepStrictEqual(given, ["a/1", "a/2", "a/3", "b/1", "b/2", "b/3"])
    assert.strictEqual(yield* stamps, 6)
    assert.deepStrictEqual(yield* state, before)
    yield* run(subscriber)
    assert.strictEqual(yield* stamps, 6)
    const audit =
      yield* sql`SELECT actor, action, reason, subject, subject_id AS id, after FROM operator_audit ORDER BY audit_id`
    const after = { filter: {}, events: 6, firstEvent: idOf("a", 1), lastEvent: idOf("b", 3) }
    const entry = { actor: "ada", action: "replay", reason: "a test", subject: "consumer", id: "stamper", after }
    assert.deepStrictEqual(audit, [entry, entry])
    // The consumer goes on where it was.
    yield* happen(subscriber, "a", [4])
    assert.strictEqual(given.at(-1), "a/4")
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("an aggregate, a type and a time name the events", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { subscriber } = makeKeyed("again")
    for (const id of ["a", "b"]) yield* happen(subscriber, id, versions(1, 4))
    yield* sql`UPDATE event_log SET event_type = 'Reset' WHERE aggregate_version = 2`
    yield* sql`UPDATE event_log SET occurred_at = uuid_v7_time(event_id) + aggregate_version * interval '1 minute'`
    const [row] = yield* sql<{ readonly at: Date }>`
      SELECT occurred_at AS at FROM event_log WHERE aggregate_id = 'a' AND aggregate_version = 3`
    const replayed = (filter: ReplayFilter) => Effect.map(count(subscriber, filter), (counts) => counts.replayed)
    assert.strictEqual(yield* replayed({ aggregateId: "a" }), 4)
    assert.strictEqual(yield* replayed({ eventType: "Reset" }), 2)
    assert.strictEqual(yield* replayed({ aggregateId: "b", eventType: "Reset" }), 1)
    assert.strictEqual(yield* replayed({ aggregateId: "a", from: row!.at }), 2)
    assert.strictEqual(yield* replayed({ aggregateId: "a", to: row!.at }), 2)
    const nothing = yield* Effect.flip(count(subscriber, { aggregateId: "nobody", eventType: "Reset", to: row!.at }))
    assert.strictEqual(
      nothing.message,
      `stamper gets no event again: the archive has no event of topic ${topic} of type Reset of the aggregate nobody before ${row!.at.toISOString()}`
    )
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("events that wait or were given up are not handed over, nor those whose key may be forgotten", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const letters = yield* InboxDeadLetters
    const { given, hooks, subscriber } = makeKeyed("again-while-tasks-are-kept")
    hooks.before = (event) => (event.endsWith("/2") ? Effect.fail(new Error("out of ink")) : Effect.void)
    yield* happen(subscriber, "held", versions(1, 3))
    yield* happen(subscriber, "given", versions(1, 3))
    yield* sql`UPDATE event_log SET occurred_at = clock_now()`
    yield* Effect.repeat(Deliveries.retryAll(subscriber), {
      until: () =>
        Effect.map(
          Effect.orDie(sql`SELECT 1 AS one FROM inbox_holds WHERE status = 'dead'`),
          ({ length }) => length === 2
        )
    })
    yield* letters.discard("stamper", idOf("given", 2), operator)
    yield* Deliveries.retryAll(subscriber)
    // Not read yet.
    yield* archive("late", [1])
    yield* happen(subscriber, "old", [1])
    yield* sql`UPDATE event_log SET occurred_at = clock_now() - interval '30 days' WHERE aggregate_id = 'old'`
    yield* TaskCleanup.deleteExpired(30)
    given.splice(0)
    hooks.before = () => Effect.void
    assert.deepInclude(yield* run(subscriber), { replayed: 3, waiting: 3, givenUp: 1, tooOld: 1 })
    assert.deepStrictEqual(given, ["given/1", "given/3", "held/1"])
    const forEver: Subscriber = { ...subscriber, replay: "again" }
    assert.deepInclude(yield* count(forEver), { replayed: 4, tooOld: 0 })
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live(
  "a shell that keeps tasks for longer than the service hands over no event whose key the service may have forgotten",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { given, subscriber } = makeKeyed("again-while-tasks-are-kept")
      for (const id of ["old", "young"]) yield* happen(subscriber, id, [1])
      yield* sql`
      UPDATE event_log SET occurred_at = clock_now() - CASE aggregate_id WHEN 'old' THEN interval '3 days' ELSE interval '1 day' END`
      const service = { outboxDays: 0, inboxDays: 0, taskDays: 2 }
      yield* Effect.provideService(Maintenance.runOnce(), RetentionSettings, service)
      given.splice(0)
      assert.deepInclude(yield* run(subscriber), { replayed: 1, tooOld: 1 })
      assert.deepStrictEqual(given, ["young/1"])
    }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a consumer that does not say so gets no event again", () =>
  Effect.gen(function* () {
    const { given, subscriber } = makeKeyed()
    yield* happen(subscriber, "a", [1])
    given.splice(0)
    const refused = yield* Effect.flip(run(subscriber))
    assert.strictEqual(refused.message, "stamper gets no event again: its effect would happen twice")
    assert.include((yield* Effect.flip(count(makeKeyed("rebuild").subscriber))).message, "paid-once rebuild stamper")
    assert.deepStrictEqual(given, [])
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live(
  "a replay ends at an event that its handler can't apply; the pages before it stand, and it can be run again",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { hooks, subscriber } = makeKeyed("again")
      yield* happen(subscriber, "a", versions(1, 1_500))
      yield* sql`DELETE FROM stamps`
      hooks.before = (event) => (event === "a/1200" ? Effect.fail(new Error("out of ink")) : Effect.void)
      const refused = yield* Effect.flip(run(subscriber))
      assert.strictEqual(refused.message, `stamper can't apply ${idOf("a", 1_200)}: out of ink`)
      const audited = Effect.map(sql`SELECT 1 AS one FROM operator_audit`, (rows) => rows.length)
      assert.deepStrictEqual([yield* stamps, yield* audited], [1_000, 1])
      hooks.before = () => Effect.void
      const told: Array<Counts> = []
      yield* run(subscriber, {}, told)
      assert.deepStrictEqual(
        told.map(({ replayed }) => replayed),
        [1_000, 1_500]
      )
      assert.deepStrictEqual([yield* stamps, yield* audited], [1_500, 3])
    }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("while an aggregate's events are handed over, the consumer applies no later one of it", () =>
  Effect.gen(function* () {
    const { given, hooks, subscriber } = makeKeyed("again")
    yield* happen(subscriber, "a", versions(1, 2))
    yield* archive("a", [3])
    const begun = yield* Deferred.make<void>()
    const goOn = yield* Deferred.make<void>()
    given.splice(0)
    hooks.before = (event) =>
      event === "a/1" ? Effect.andThen(Deferred.succeed(begun, undefined), Deferred.await(goOn)) : Effect.void
    const replaying = yield* Effect.forkScoped(run(subscriber))
    yield* Deferred.await(begun)
    let isApplied = false
    const slice = yield* Effect.forkScoped(
      Effect.tap(apply(subscriber, "a", [3]), () => Effect.sync(() => (isApplied = true)))
    )
    yield* Effect.raceFirst(Fiber.join(slice), Counters.untilBlocked("the slice to wait for the replay"))
    assert.isFalse(isApplied)
    yield* Deferred.succeed(goOn, undefined)
    assert.deepInclude(yield* Fiber.join(replaying), { replayed: 2, waiting: 1 })
    yield* Fiber.join(slice)
    assert.deepStrictEqual(yield* stamps, 3)
  }).pipe(Effect.scoped, Effect.provide(world))
)
