/** An operator's decisions about events that the broker refused: retry, discard and redrive, audited and repeatable. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, SubscriptionRef } from "effect"
import { SqlClient } from "effect/sql"
import { OutboxDeadLetters } from "../../src/operations/OutboxDeadLetters.ts"
import * as HeldRows from "../../src/outbox/holds/HeldRows.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import * as Parking from "../../src/outbox/holds/Parking.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import { OutboxReport } from "../../src/operations/reports/OutboxReport.ts"
import { ControlConnection } from "../../src/platform/ControlConnection.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Wakeups from "../support/Wakeups.ts"
import * as Lanes from "../support/Lanes.ts"

/** An operator's process, which writes too, on a database of its own. */
const process = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(Layer.mergeAll(OutboxDeadLetters.layer, OutboxReport.layer)),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const settings = (skipTopics: ReadonlyArray<string> = []) =>
  Layer.succeed(Parking.HoldSettings, { retryBaseMillis: 0.02, maxAttempts: 3, skipTopics })

/** No dispatcher: the test holds events itself, and one refusal makes a dead letter. */
const byHand = Parking.layer.pipe(
  Layer.provideMerge(Queue.layer),
  Layer.provideMerge(process),
  Layer.provide(
    Layer.effect(
      Parking.HoldSettings,
      Effect.map(Parking.HoldSettings, (given) => ({ ...given, maxAttempts: 1 }))
    )
  )
)

/** The poll is an hour away, so only a wake-up can cause an attempt. */
const seldom = Layer.succeed(LaneWorkersSettings, { pollMillis: 3_600_000 })

const startDispatcher = (topic: Refusals.Topic) =>
  Effect.gen(function* () {
    const database = yield* TestDatabase
    const context = yield* Layer.build(
      Layer.fresh(
        TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
          Layer.provideMerge(TestProcess.outbox),
          Layer.provide(Layer.succeed(TestDatabase, database)),
          Layer.provide(Wakeups.withoutPolls)
        )
      )
    )
    const workers = yield* Effect.provideContext(Effect.service(LaneWorkers), context)
    yield* Counters.eventually(
      "it to own all lanes",
      Effect.map(workers.lanes, (held) => held.length === 64)
    )
    // A wake-up that this process sends without a session is lost.
    const { session } = yield* ControlConnection
    yield* Counters.eventually(
      "a control session",
      Effect.map(SubscriptionRef.get(session), (found) => found !== undefined)
    )
  })

const operator = { actor: "ada", reason: "the limit was raised" }

const auditOf = (eventId: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return yield* sql<{ readonly actor: string; readonly action: string; readonly reason: string }>`
      SELECT actor, action, reason FROM operator_audit WHERE subject_id = ${eventId} ORDER BY audit_id`
  })

const versions = (id: string) =>
  Effect.map(Counters.published, (records) => Counters.firstDeliveries(records).get(id) ?? [])

const statuses = (id: string) => Effect.map(Refusals.statesOf(id), (states) => states.map((state) => state.status))

it.live("a redriven dead letter goes first again, with its id and version, and with all its attempts", () =>
  Effect.gen(function* () {
    const letters = yield* OutboxDeadLetters
    const topic = Refusals.makeTopic()
    yield* startDispatcher(topic)
    topic.refused.add("poison/2")
    yield* Refusals.append("poison", 1, 4)
    yield* Refusals.until("poison", "dead")
    const eventId = yield* Refusals.idOf("poison", "dead")

    // The broker refuses it three more times, and then it is dead again.
    assert.deepStrictEqual(yield* letters.retry(eventId, operator), { eventId, status: "retrying", changed: true })
    yield* Counters.eventually(
      "three more sends",
      Effect.map(statuses("poison"), (found) => found.includes("dead") && Refusals.sendsAlone(topic, "poison/2") >= 6)
    )
    assert.strictEqual(Refusals.sendsAlone(topic, "poison/2"), 6)
    assert.strictEqual(yield* Refusals.idOf("poison", "dead"), eventId)

    topic.refused.clear()
    yield* letters.retry(eventId.toUpperCase(), operator)
    yield* Refusals.untilPublished("poison", 4)
    assert.deepStrictEqual(yield* versions("poison"), [1, 2, 3, 4])
    assert.strictEqual((yield* Refusals.statesOf("poison"))[1]?.eventId, eventId)
    assert.deepStrictEqual(yield* auditOf(eventId), [
      { ...operator, action: "retry" },
      { ...operator, action: "retry" }
    ])
    // A retry of a published event changes nothing.
    assert.deepStrictEqual(yield* letters.retry(eventId, operator), { eventId, status: "published", changed: false })
    assert.strictEqual((yield* auditOf(eventId)).length, 2)
    const shown = yield* (yield* OutboxReport).show(eventId, [])
    assert.strictEqual(shown.status, "published")
    assert.isNotNull(shown.offset)
  }).pipe(Effect.scoped, Effect.provide(process), Effect.provide(Layer.mergeAll(settings(), seldom)))
)

it.live("a discarded event is sent no more, stays visible, and the rest of its aggregate goes on", () =>
  Effect.gen(function* () {
    const letters = yield* OutboxDeadLetters
    const topic = Refusals.makeTopic()
    yield* startDispatcher(topic)
    topic.refused.add("poison/2")
    yield* Refusals.append("poison", 1, 4)
    yield* Refusals.until("poison", "dead")
    const eventId = yield* Refusals.idOf("poison", "dead")
    assert.isTrue((yield* letters.discard(eventId, operator)).changed)
    assert.isFalse((yield* letters.discard(eventId, operator)).changed)
    yield* Counters.eventually(
      "the rest",
      Effect.map(versions("poison"), (found) => found.length === 3)
    )
    assert.deepStrictEqual(yield* versions("poison"), [1, 3, 4])
    yield* Counters.drained
    assert.deepStrictEqual(yield* statuses("poison"), ["published", "discarded", "published", "published"])
    assert.deepStrictEqual(yield* auditOf(eventId), [{ ...operator, action: "discard" }])
    const refused = yield* Effect.flip(letters.retry(eventId, operator))
    assert.include(refused.message, "was discarded")
  }).pipe(Effect.scoped, Effect.provide(process), Effect.provide(Layer.mergeAll(settings(), seldom)))
)

it.live("an event that is being retried can be tried at once, or discarded", () =>
  Effect.gen(function* () {
    const letters = yield* OutboxDeadLetters
    const topic = Refusals.makeTopic()
    yield* startDispatcher(topic)
    for (const id of ["now", "never"]) {
      topic.refused.add(`${id}/1`)
      yield* Refusals.append(id, 1, 2)
    }
    for (const id of ["now", "never"]) yield* Refusals.until(id, "retrying")
    topic.refused.clear()
    // Their next attempts are hours away.
    yield* letters.retry(yield* Refusals.idOf("now", "retrying"), operator)
    yield* letters.discard(yield* Refusals.idOf("never", "retrying"), operator)
    yield* Refusals.untilPublished("now", 2)
    yield* Counters.drained
    assert.deepStrictEqual(yield* versions("now"), [1, 2])
    assert.deepStrictEqual(yield* versions("never"), [2])
    assert.deepStrictEqual(yield* statuses("never"), ["discarded", "published"])
  }).pipe(
    Effect.scoped,
    Effect.provide(process),
    Effect.provide(
      Layer.mergeAll(
        Layer.succeed(Parking.HoldSettings, { retryBaseMillis: 50_000_000, maxAttempts: 3, skipTopics: [] }),
        seldom
      )
    )
  )
)

it.live("an event that can't be retried or discarded is refused in a sentence, and nothing changes", () =>
  Effect.gen(function* () {
    const letters = yield* OutboxDeadLetters
    const topic = Refusals.makeTopic()
    yield* startDispatcher(topic)
    topic.refused.add("poison/1")
    yield* Refusals.append("poison", 1, 2)
    yield* Refusals.until("poison", "dead")
    const [head, behind] = yield* Refusals.statesOf("poison")
    const unknown = "0192a000-0000-7000-8000-000000000000"
    const messages = yield* Effect.forEach(
      [
        letters.retry(behind!.eventId, operator),
        letters.discard(behind!.eventId, operator),
        letters.retry(unknown, operator),
        letters.discard(unknown, operator)
      ],
      (attempt) => Effect.map(Effect.flip(attempt), (error) => error.message)
    )
    const waits = `event ${behind!.eventId} waits behind event ${head!.eventId} of its aggregate: handle that one first`
    const none = `no event has the id ${unknown}: it was never written, or retention has dropped it`
    assert.deepStrictEqual(messages, [waits, waits, none, none])
    yield* Refusals.append("fine", 1, 1)
    yield* Refusals.untilPublished("fine", 1)
    const published = yield* Effect.flip(letters.discard(yield* Refusals.idOf("fine", "published"), operator))
    assert.include(published.message, "is published: only an event that the broker refused can be discarded")
    const sql = yield* SqlClient.SqlClient
    assert.deepStrictEqual(yield* sql`SELECT * FROM operator_audit`, [])
  }).pipe(Effect.scoped, Effect.provide(process), Effect.provide(Layer.mergeAll(settings(), seldom)))
)

it.live("redriving many takes a bounded number in each transaction, and only those that match", () =>
  Effect.gen(function* () {
    const letters = yield* OutboxDeadLetters
    const topic = Refusals.makeTopic()
    yield* startDispatcher(topic)
    const ids = Array.from({ length: 130 }, (_, index) => `poison-${index}`)
    for (const id of ids) topic.refused.add(`${id}/1`)
    topic.refused.add("another/1")
    yield* Effect.forEach(ids, (id) => Refusals.append(id, 1, 2), { concurrency: 8, discard: true })
    yield* Refusals.append("another", 1, 2, "others")
    const report = yield* OutboxReport
    yield* Counters.eventually(
      "all to be dead",
      Effect.map(report.status, (status) => status.dead === 131)
    )
    topic.refused.clear()
    const redriven = yield* letters.retryAll({ topic: Counters.topic }, operator)
    assert.deepStrictEqual(redriven, { retried: 130, refused: [], refusedCount: 0 })
    yield* Counters.eventually(
      "them to be published",
      Effect.map(Counters.published, (records) => records.length >= 260)
    )
    const deliveries = Counters.firstDeliveries(yield* Counters.published)
    for (const id of ids) assert.deepStrictEqual(deliveries.get(id), [1, 2], id)
    yield* Counters.eventually(
      "the holds to be gone",
      Effect.map(report.status, (status) => status.aggregatesWaiting === 1 && status.parked === 1)
    )
    assert.strictEqual((yield* letters.retryAll({ aggregateId: "nobody" }, operator)).retried, 0)
    assert.strictEqual((yield* letters.retryAll({ eventType: "Counted" }, operator)).retried, 1)
    yield* Refusals.untilPublished("another", 2)
    const sql = yield* SqlClient.SqlClient
    const transactions = yield* sql<{ readonly audits: number }>`
      SELECT count(*)::int4 AS audits FROM operator_audit GROUP BY xmin::text ORDER BY audits`
    assert.deepStrictEqual(
      transactions.map((row) => row.audits),
      [1, 30, 100]
    )
  }).pipe(Effect.scoped, Effect.provide(process), Effect.provide(Layer.mergeAll(settings(), seldom)))
)

it.live("an event that was skipped can be redriven by itself while its aggregate goes on writing", () =>
  Effect.gen(function* () {
    const letters = yield* OutboxDeadLetters
    const topic = Refusals.makeTopic()
    yield* startDispatcher(topic)
    for (const version of [2, 4]) topic.refused.add(`poison/${version}`)
    yield* Refusals.append("poison", 1, 5)
    yield* Counters.eventually(
      "both to be skipped",
      Effect.map(statuses("poison"), (found) => found.filter((status) => status === "dead").length === 2)
    )
    yield* Counters.drained
    topic.refused.clear()
    // A redriven event is sent alone, and the next dead letter of its aggregate waits for it.
    const both = yield* letters.retryAll({}, operator)
    assert.strictEqual(both.retried, 1)
    assert.strictEqual(both.refusedCount, 1)
    assert.include(both.refused[0]?.reason, "waits behind event")
    yield* Refusals.append("poison", 6, 3)
    yield* Counters.eventually(
      "the redriven one and the new ones",
      Effect.map(versions("poison"), (found) => found.length === 7)
    )
    const found = yield* versions("poison")
    assert.deepStrictEqual(
      found.filter((version) => version !== 2),
      [1, 3, 5, 6, 7, 8]
    )
    yield* letters.retryAll({}, operator)
    yield* Refusals.untilPublished("poison", 8)
  }).pipe(Effect.scoped, Effect.provide(process), Effect.provide(Layer.mergeAll(settings([Counters.topic]), seldom)))
)

it.live("two operators who redrive all at once, and one who does so again, redrive each event once", () =>
  Effect.gen(function* () {
    const letters = yield* OutboxDeadLetters
    const holds = yield* Holds
    const queue = yield* Queue
    const sql = yield* SqlClient.SqlClient
    const ids = Array.from({ length: 250 }, (_, index) => `poison-${index}`)
    for (const id of ids) yield* Refusals.append(id, 1, 1)
    for (const lane of new Set(ids.map(laneOf))) {
      for (const event of yield* Lanes.fetch(queue, lane, [])) yield* holds.hold(lane, event, Refusals.rejection)
    }
    const both = yield* Effect.all([letters.retryAll({}, operator), letters.retryAll({}, operator)], {
      concurrency: "unbounded"
    })
    assert.strictEqual(both[0].retried + both[1].retried, ids.length)
    assert.strictEqual((yield* letters.retryAll({}, operator)).retried, 0)
    const [event] = yield* sql<{ readonly id: string }>`SELECT event_id::text AS id FROM outbox_holds LIMIT 1`
    // The event is due already, and there is no dispatcher here that could send it.
    assert.isFalse((yield* letters.retry(event!.id, operator)).changed)
    assert.strictEqual((yield* sql`SELECT 1 AS one FROM operator_audit`).length, ids.length)
  }).pipe(Effect.provide(byHand))
)

it.live(
  "of two refused events with one id the dead one is decided on first, and then the one that is being retried",
  () =>
    Effect.gen(function* () {
      const letters = yield* OutboxDeadLetters
      const holds = yield* Holds
      const queue = yield* Queue
      const sql = yield* SqlClient.SqlClient
      for (const id of ["one", "two"]) {
        yield* Refusals.append(id, 1, 1)
        yield* sql`
        UPDATE outbox_events SET event_id = coalesce((SELECT event_id FROM outbox_dead_letters), event_id) WHERE aggregate_id = ${id}`
        const [event] = yield* Lanes.fetch(queue, laneOf(id), [])
        yield* holds.hold(laneOf(id), event!, Refusals.rejection)
      }
      const eventId = yield* Refusals.idOf("one", "dead")
      yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now() + interval '1 hour' WHERE aggregate_id = 'two'`
      assert.isTrue((yield* letters.discard(eventId, operator)).changed)
      assert.deepStrictEqual(
        (yield* Refusals.statesOf("one")).map(({ status }) => status),
        ["discarded"]
      )
      const refused = yield* Effect.flip(letters.discard(eventId, operator))
      assert.match(
        refused.message,
        /is tried until the broker takes it, for another event with its id is among the dead letters/
      )
      assert.isTrue((yield* letters.retry(eventId, operator)).changed)
      const [head] = yield* holds.due([{ lane: laneOf("two") }])
      assert.isTrue(yield* holds.published(head!, { partition: 0, baseOffset: 0n }))
    }).pipe(Effect.provide(byHand))
)

it.live(
  "each decision leaves one row in the audit, with the state before and after, and a repeated one leaves none",
  () =>
    Effect.gen(function* () {
      const letters = yield* OutboxDeadLetters
      const holds = yield* Holds
      const queue = yield* Queue
      const sql = yield* SqlClient.SqlClient
      yield* Refusals.append("one", 1, 2)
      const [event] = yield* Lanes.fetch(queue, laneOf("one"), [])
      yield* holds.hold(laneOf("one"), event!, Refusals.rejection)
      const eventId = yield* Refusals.idOf("one", "dead")

      // The commands print these as JSON, in this order.
      assert.strictEqual(
        JSON.stringify(yield* letters.retry(eventId, operator)),
        `{"eventId":"${eventId}","status":"retrying","changed":true}`
      )
      assert.isFalse((yield* letters.retry(eventId, operator)).changed)
      yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now() + interval '1 hour'`
      assert.isTrue((yield* letters.retry(eventId, operator)).changed)
      assert.isTrue((yield* letters.discard(eventId, operator)).changed)
      assert.isFalse((yield* letters.discard(eventId, operator)).changed)

      const entry = { ...operator, subject: "outbox event", subject_id: eventId }
      assert.deepStrictEqual(
        yield* sql`
        SELECT actor, reason, subject, subject_id, action, before, after FROM operator_audit ORDER BY audit_id`,
        [
          {
            ...entry,
            action: "retry",
            before: { status: "dead", attempts: 1 },
            after: { status: "retrying", attempts: 0 }
          },
          {
            ...entry,
            action: "retry",
            before: { status: "retrying", attempts: 0 },
            after: { status: "retrying", attempts: 0, due: "now" }
          },
          {
            ...entry,
            action: "discard",
            before: { status: "retrying", attempts: 0 },
            after: { status: "discarded", attempts: 0 }
          }
        ]
      )
    }).pipe(Effect.provide(byHand))
)

it.live("two operators who redrive one skipped event at once are both told that it is being retried", () =>
  Effect.gen(function* () {
    const letters = yield* OutboxDeadLetters
    const holds = yield* Holds
    const queue = yield* Queue
    yield* Refusals.append("one", 1, 1)
    const [event] = yield* Lanes.fetch(queue, laneOf("one"), [])
    assert.strictEqual(yield* holds.hold(laneOf("one"), event!, Refusals.rejection), "skipped")
    const eventId = yield* Refusals.idOf("one", "dead")
    // The second operator comes when the first one has run its statements and not committed.
    const isThere = yield* Deferred.make<void>()
    const goOn = yield* Deferred.make<void>()
    const first = yield* Effect.forkChild(
      Transaction.run(
        Effect.gen(function* () {
          const { sql } = yield* Transaction
          yield* sql`
            INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, next_attempt_at, held_at)
            SELECT aggregate_type, aggregate_id, lane, topic, event_id, seq, 0, clock_now(), clock_now() FROM outbox_dead_letters`
          yield* HeldRows.unburyHead(eventId)
          yield* Deferred.succeed(isThere, undefined)
          yield* Deferred.await(goOn)
        })
      )
    )
    yield* Deferred.await(isThere)
    const second = yield* Effect.forkChild(letters.retry(eventId, operator))
    yield* Counters.untilBlocked("the second operator to wait for the first")
    yield* Deferred.succeed(goOn, undefined)
    yield* Fiber.join(first)
    assert.deepStrictEqual(yield* Fiber.join(second), { eventId, status: "retrying", changed: false })
  }).pipe(Effect.provide(byHand), Effect.provide(settings([Counters.topic])))
)
