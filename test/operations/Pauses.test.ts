/** An operator's pauses: of a topic, a consumer, a type of task. Nothing begins there, nothing is lost, and the rest goes on. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Queue as Mailbox, Ref } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { Broker } from "../../src/brokers/Broker.ts"
import * as Consumer from "../../src/inbox/Consumer.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import * as Consumers from "../../src/main/Consumers.ts"
import { PauseDecisions } from "../../src/operations/pauses/PauseDecisions.ts"
import * as PausedConsumers from "../../src/operations/pauses/PausedConsumers.ts"
import * as PausedTaskTypes from "../../src/operations/pauses/PausedTaskTypes.ts"
import * as Pauses from "../../src/operations/pauses/Pauses.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import * as Parking from "../../src/outbox/holds/Parking.ts"
import { allLanes, laneOf } from "../../src/outbox/Lane.ts"
import { Queue, wholeQueue } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { TaskClaim } from "../../src/tasks/TaskClaim.ts"
import { TaskFinish } from "../../src/tasks/TaskFinish.ts"
import * as TaskHandler from "../../src/tasks/TaskHandler.ts"
import { TaskLeases } from "../../src/tasks/TaskLeases.ts"
import { TaskWorkers } from "../../src/tasks/TaskWorkers.ts"
import * as Counters from "../support/Counters.ts"
import * as Lanes from "../support/Lanes.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as TaskSupport from "../tasks/Support.ts"

const operator = { actor: "ada", reason: "the receiver is being repaired" }
const topic = { kind: "topic", name: Counters.topic } as const

/** A process that heeds pauses, and can decide about them. */
const heeding = Layer.merge(Pauses.layer, PauseDecisions.layer)

const world = Layer.provideMerge(TestDatabase.layer, TestProcess.quiet)
const tables = Layer.effectDiscard(Counters.makeTables)

/** Decides, and waits until this process has heard of it. */
const decide = Effect.fnUntraced(function* (
  action: "pause" | "resume",
  target: { readonly kind: Pauses.Kind; readonly name: string }
) {
  const decided = yield* (yield* PauseDecisions)[action](target, operator)
  yield* (yield* Pauses.Pauses).awaitPaused(target.kind, target.name, action === "pause")
  return decided
})

const audited = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql`
    SELECT actor, action, reason, subject, subject_id AS name, before ->> 'status' AS before, after ->> 'status' AS after
    FROM operator_audit ORDER BY audit_id`
})

it.live("a pause and its end are audited once, survive the process, and reach others", () =>
  Effect.gen(function* () {
    const here = yield* Layer.build(heeding.pipe(Layer.provideMerge(TestProcess.platform)))
    yield* Effect.gen(function* () {
      assert.include(yield* decide("pause", topic), { status: "paused", changed: true })
      assert.include(yield* decide("pause", topic), { status: "paused", changed: false })
      assert.deepStrictEqual(
        (yield* (yield* PauseDecisions).all).map(({ actor, kind, name, reason }) => ({ kind, name, actor, reason })),
        [{ ...topic, ...operator }]
      )
    }).pipe(Effect.provideContext(here))

    const elsewhere = yield* Layer.build(heeding.pipe(Layer.provideMerge(TestProcess.platform)))
    const there = Context.get(elsewhere, Pauses.Pauses)
    // From its first moment on.
    assert.deepStrictEqual(yield* there.names("topic"), [topic.name])
    assert.deepStrictEqual(yield* there.names("consumer"), [])

    yield* Effect.gen(function* () {
      assert.include(yield* decide("resume", topic), { status: "running", changed: true })
      assert.include(yield* decide("resume", topic), { status: "running", changed: false })
      const row = { ...operator, subject: "topic", name: topic.name }
      assert.deepStrictEqual(yield* audited, [
        { ...row, action: "pause", before: "running", after: "paused" },
        { ...row, action: "resume", before: "paused", after: "running" }
      ])
    }).pipe(Effect.provideContext(here))
    yield* there.awaitPaused("topic", topic.name, false)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a paused topic gets no event, from the queue or the holds; then all of them in order", () =>
  Effect.gen(function* () {
    const queue = yield* Queue
    const holds = yield* Holds
    yield* Transaction.run(Counters.create("refused"))
    const lane = laneOf("refused")
    yield* holds.hold(lane, (yield* Lanes.fetch(queue, lane))[0]!, Refusals.rejection)
    yield* Counters.eventually(
      "the refused event to be due",
      Effect.map(holds.due(wholeQueue), (due) => due.length === 1)
    )
    yield* decide("pause", topic)
    for (const id of ["a", "b"]) {
      yield* Transaction.run(Counters.create(id))
      yield* Transaction.run(Counters.increment(id))
    }
    assert.deepStrictEqual(yield* queue.ready(wholeQueue), [])
    const parts = allLanes.map((lane) => ({ lane, events: 10, bytes: 100_000 }))
    assert.isTrue((yield* queue.fetch(parts)).every(({ events }) => events.length === 0))
    // They still wait, and are counted.
    assert.strictEqual((yield* queue.pending(wholeQueue)).count, 6)
    // An event that the broker had refused is due, and does not go either.
    assert.deepStrictEqual(yield* holds.due(wholeQueue), [])
    assert.deepStrictEqual(yield* holds.nextDue(allLanes), [])

    yield* decide("resume", topic)
    assert.strictEqual((yield* queue.ready(wholeQueue)).length, 2)
    assert.strictEqual((yield* holds.due(wholeQueue)).length, 1)
    const versions = (yield* queue.fetch(parts)).flatMap(({ events }) =>
      events.filter(({ aggregateId }) => aggregateId === "b").map(({ aggregateVersion }) => aggregateVersion)
    )
    assert.deepStrictEqual(versions, [1, 2, 3])
  }).pipe(
    Effect.scoped,
    Effect.provide(
      TestProcess.dispatcherStepsOver((layer) => layer).pipe(
        // Due again after a few milliseconds.
        Layer.provide(Layer.succeed(Parking.HoldSettings, { retryBaseMillis: 1, skipTopics: [], maxAttempts: 3 })),
        Layer.provideMerge(heeding),
        Layer.provideMerge(tables),
        Layer.provideMerge(TestProcess.outbox),
        Layer.provideMerge(world)
      )
    )
  )
)

it.live("a dispatcher goes on by itself when its topic is resumed", () =>
  Effect.gen(function* () {
    yield* decide("pause", topic)
    yield* Transaction.run(Counters.create("a"))
    yield* decide("resume", topic)
    yield* Counters.eventually(
      "the event to be published",
      Effect.map(Counters.published, (all) => all.length === 1)
    )
  }).pipe(
    Effect.scoped,
    Effect.provide(
      TestProcess.dispatcher.pipe(
        Layer.provideMerge(heeding),
        Layer.provideMerge(tables),
        Layer.provideMerge(TestProcess.outbox),
        Layer.provideMerge(world)
      )
    )
  )
)

it.live("a paused consumer reads nothing while another one does, and catches up", () =>
  Effect.gen(function* () {
    const broker = yield* Broker
    const seen = { paused: yield* Ref.make(0), other: yield* Ref.make(0) }
    const subscriber = (name: keyof typeof seen) =>
      Consumer.layer({
        name,
        topic: Counters.topic,
        firstSight: "any-version",
        handle: () => Ref.update(seen[name], (count) => count + 1)
      })
    yield* Layer.build(Layer.merge(subscriber("paused"), subscriber("other")))
    yield* broker.ensureTopic(Counters.topic, 8)
    const publish = Effect.suspend(() =>
      broker.publish({
        topic: Counters.topic,
        partition: 0,
        records: [
          {
            key: "a",
            headers: {},
            value: new TextEncoder().encode(
              JSON.stringify({
                eventId: randomUUID(),
                eventType: "Counted",
                schemaVersion: 1,
                occurredAt: "2026-01-01T12:00:00.000Z",
                traceId: "0".repeat(32),
                aggregateType: "Counter",
                aggregateId: randomUUID(),
                aggregateVersion: 1,
                data: {}
              })
            )
          }
        ]
      })
    )
    const until = (name: keyof typeof seen, count: number) =>
      Counters.eventually(
        `the consumer ${name}`,
        Effect.map(Ref.get(seen[name]), (now) => now === count)
      )
    yield* publish
    yield* Effect.all([until("other", 1), until("paused", 1)])
    yield* decide("pause", { kind: "consumer", name: "paused" })
    // One after the other: a consumer that still reads would have seen the first by the time of the last.
    for (const count of [2, 3, 4, 5, 6]) {
      yield* publish
      yield* until("other", count)
    }
    assert.strictEqual(yield* Ref.get(seen.paused), 1)
    yield* decide("resume", { kind: "consumer", name: "paused" })
    yield* until("paused", 6)
  }).pipe(
    Effect.scoped,
    Effect.provide(
      PausedConsumers.layer.pipe(
        Layer.provideMerge(Consumers.steps),
        Layer.provideMerge(Inbox.layer),
        Layer.provideMerge(TestProcess.broker),
        Layer.provideMerge(heeding),
        Layer.provideMerge(tables),
        Layer.provideMerge(TestProcess.platform),
        Layer.provideMerge(world)
      )
    )
  )
)

it.live("no task of a paused type begins; on resuming they run at once", () =>
  Effect.gen(function* () {
    const told = yield* Mailbox.unbounded<string>()
    const handler = (name: string) =>
      TaskHandler.make(TaskSupport.taskType(name), () => Effect.asVoid(Mailbox.offer(told, name)))
    yield* decide("pause", { kind: "task type", name: "paused" })
    yield* Layer.build(TaskWorkers.layer([handler("paused"), handler("other")]))
    yield* TaskSupport.enqueue(TaskSupport.taskType("paused"), { number: 1 })
    yield* TaskSupport.enqueue(TaskSupport.taskType("other"), { number: 2 })
    assert.strictEqual(yield* Mailbox.take(told), "other")
    const { claim, nextDue } = yield* TaskClaim
    assert.deepStrictEqual(yield* claim([{ typeName: "paused", free: 1 }], "a worker"), [])
    assert.isUndefined((yield* nextDue(["paused"])).millis)
    yield* decide("resume", { kind: "task type", name: "paused" })
    assert.strictEqual(yield* Mailbox.take(told), "paused")
  }).pipe(
    Effect.scoped,
    Effect.provide(
      Layer.mergeAll(Layer.provide(PausedTaskTypes.layer, TaskClaim.layer), TaskFinish.layer, TaskLeases.layer).pipe(
        Layer.provideMerge(TaskSupport.enqueuer),
        Layer.provideMerge(heeding),
        // The poll never comes: only the end of the pause can begin the task.
        Layer.provideMerge(TaskSupport.settings({ pollMillis: 600_000 })),
        Layer.provideMerge(TestProcess.platform),
        Layer.provideMerge(world)
      )
    )
  )
)
