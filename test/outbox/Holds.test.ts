/** An event that the broker refuses: its own aggregate waits, in order, and no other one does. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Metric } from "effect"
import { SqlClient } from "effect/sql"
import { PartitionPauses } from "../../src/guards/PartitionPauses.ts"
import { PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import * as Parking from "../../src/outbox/holds/Parking.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Queue, wholeQueue } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Lanes from "../support/Lanes.ts"

/** A writer's process on a database of its own. */
const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** One more process with a dispatcher, on the same database. Its broker refuses the batches that `topic` names. */
const startDispatcher = (topic: Refusals.Topic) =>
  Effect.gen(function* () {
    const database = yield* TestDatabase
    return yield* Layer.build(
      Layer.fresh(
        TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
          Layer.provideMerge(TestProcess.outbox),
          Layer.provide(Layer.succeed(TestDatabase, database)),
          Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })),
          Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 1, backoffCapMillis: 20 }))
        )
      )
    )
  })

const upTo = (version: number) => Array.from({ length: version }, (_, index) => index + 1)

const publishedVersions = (id: string) =>
  Effect.map(Counters.published, (records) => Counters.firstDeliveries(records).get(id) ?? [])

/** The refusals in outbox_events_failed_total. */
const refusals = Effect.map(Metric.snapshot, (metrics) =>
  metrics
    .filter(({ attributes, id }) => id === "outbox_events_failed_total" && attributes?.["reason"] === "MessageRejected")
    .reduce((sum, metric) => sum + (metric.type === "Counter" ? Number(metric.state.count) : 0), 0)
)

it.live("a refused event among 10,000 delays no other aggregate; its own waits, and ends complete and in order", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/40")
    const others = Array.from({ length: 99 }, (_, index) => `other-${index}`)
    // The refused event is in the middle of its lane's backlog, and events of others are behind it in the lane.
    yield* Effect.forEach(others.slice(0, 50), (id) => Refusals.append(id, 1, 100), { discard: true })
    yield* Refusals.append("poison", 1, 100)
    yield* Effect.forEach(others.slice(50), (id) => Refusals.append(id, 1, 100), { discard: true })
    yield* startDispatcher(topic)
    yield* Counters.drained
    const deliveries = Counters.firstDeliveries(yield* Counters.published)
    for (const id of others) assert.deepStrictEqual(deliveries.get(id), upTo(100), id)
    assert.deepStrictEqual(deliveries.get("poison"), upTo(39))
    // No event behind it was sent, alone or with others, before it was published.
    const behind = topic.sends.flatMap((send) => {
      const own = send.filter((name) => name.startsWith("poison/")).map((name) => Number(name.slice(7)))
      return own.some((version) => version > 40) && !own.includes(40) ? [own] : []
    })
    assert.deepStrictEqual(behind, [])
    const states = yield* Refusals.statesOf("poison")
    assert.deepStrictEqual(
      states.map((state) => state.status),
      [...upTo(39).map(() => "published"), "retrying", ...upTo(60).map(() => "parked")]
    )
    // New events of the aggregate are parked behind it, and do not stay in the queue.
    yield* Refusals.append("poison", 101, 5)
    yield* Refusals.append("other-0", 101, 5)
    yield* Counters.drained
    assert.deepStrictEqual(yield* publishedVersions("other-0"), upTo(105))
    topic.refused.clear()
    // Its delays have grown with the time that all this took.
    yield* Refusals.dueNow
    yield* Refusals.untilPublished("poison", 105)
    assert.deepStrictEqual(yield* publishedVersions("poison"), upTo(105))
    assert.isUndefined(yield* Refusals.holdOn("poison"))
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(Refusals.soon({ maxAttempts: 100 })))
)

it.live("operators and metrics see the refusals of the event sent alone, and `pending` counts no held event", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/1")
    const before = yield* refusals
    yield* Refusals.append("poison", 1, 3)
    const context = yield* startDispatcher(topic)
    yield* Refusals.until("poison", "dead")
    yield* Counters.eventually(
      "the fourth refusal to be counted",
      Effect.map(refusals, (count) => count - before >= 4)
    )
    assert.strictEqual((yield* refusals) - before, 4)
    const holds = yield* Effect.provideContext(Effect.service(Holds), context)
    assert.deepStrictEqual(yield* holds.counts, { parked: 2, dead: 1 })
    const queue = yield* Effect.provideContext(Effect.service(Queue), context)
    assert.strictEqual((yield* queue.pending(wholeQueue)).count, 0)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(Refusals.soon({ maxAttempts: 4 })))
)

it.live(
  "a refused event whose id is already archived ends its hold when it is published, and its aggregate goes on",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const topic = Refusals.makeTopic()
      yield* Refusals.append("poison", 1, 1)
      yield* Effect.andThen(startDispatcher(topic), Counters.drained).pipe(Effect.scoped)
      yield* Refusals.append("poison", 2, 2)
      yield* sql`UPDATE outbox_events SET event_id = (SELECT event_id FROM event_log) WHERE aggregate_version = 2`
      topic.refused.add("poison/2")
      yield* startDispatcher(topic)
      yield* Refusals.until("poison", "parked")
      topic.refused.clear()
      // The archive keeps the first event with the id, and the event behind the second one.
      yield* Refusals.untilPublished("poison", 2)
      assert.deepStrictEqual(yield* publishedVersions("poison"), [1, 2, 3])
      assert.isUndefined(yield* Refusals.holdOn("poison"))
    }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(Refusals.soon({ maxAttempts: 100 })))
)

it.live("after ten attempts an event is a dead letter with its history, and its aggregate stays parked", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/2")
    yield* Refusals.append("poison", 1, 4)
    yield* startDispatcher(topic)
    yield* Refusals.until("poison", "dead")
    assert.strictEqual(Refusals.sendsAlone(topic, "poison/2"), 10)
    assert.deepStrictEqual(
      (yield* Refusals.statesOf("poison")).map((state) => state.status),
      ["published", "dead", "parked", "parked"]
    )
    const sql = yield* SqlClient.SqlClient
    const [letter] = yield* sql<{
      readonly attempts: number
      readonly history: ReadonlyArray<{ readonly attempt: number; readonly error: string }>
    }>`
      SELECT attempts, history FROM outbox_dead_letters`
    assert.strictEqual(letter?.attempts, 10)
    assert.deepStrictEqual(
      letter?.history.map((entry) => entry.attempt),
      upTo(10)
    )
    assert.include(letter?.history[0]?.error, "too large")
    // New events are parked as well, and no attempt is made any more.
    yield* Refusals.append("poison", 5, 1)
    yield* Counters.drained
    assert.strictEqual(Refusals.sendsAlone(topic, "poison/2"), 10)
    assert.deepStrictEqual(yield* publishedVersions("poison"), [1])
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(Refusals.soon()))
)

for (const [skipTopics, published] of [
  [[], [1]],
  [[Counters.topic], [1, 3, 4]]
] as const) {
  it.live(
    `with a limit of one attempt an event is sent once and dead at once: ${skipTopics.length === 0 ? "parked" : "skipped"}`,
    () =>
      Effect.gen(function* () {
        const topic = Refusals.makeTopic()
        topic.refused.add("poison/2")
        yield* Refusals.append("poison", 1, 4)
        yield* startDispatcher(topic)
        yield* Refusals.until("poison", "dead")
        yield* Refusals.append("other", 1, 1)
        yield* Refusals.untilPublished("other", 1)
        yield* Counters.drained
        assert.strictEqual(Refusals.sendsAlone(topic, "poison/2"), 1)
        assert.deepStrictEqual(yield* publishedVersions("poison"), [...published])
      }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(Refusals.soon({ maxAttempts: 1, skipTopics })))
  )
}

it.live("if a topic may skip, the aggregate goes on without the dead event, and the audit says so", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/2")
    yield* Refusals.append("poison", 1, 4)
    yield* startDispatcher(topic)
    yield* Refusals.until("poison", "dead")
    yield* Counters.drained
    assert.deepStrictEqual(yield* publishedVersions("poison"), [1, 3, 4])
    const sql = yield* SqlClient.SqlClient
    const audit = yield* sql`SELECT actor, action, subject, subject_id AS id FROM operator_audit`
    const id = yield* Refusals.idOf("poison", "dead")
    assert.deepStrictEqual(audit, [{ actor: "dispatcher", action: "skip", subject: "outbox event", id }])
  }).pipe(
    Effect.scoped,
    Effect.provide(writer),
    Effect.provide(Refusals.soon({ maxAttempts: 3, skipTopics: [Counters.topic] }))
  )
)

it.live("an outage counts no attempt of a held event, and the event is retried after it", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/1")
    yield* Refusals.append("poison", 1, 3)
    const context = yield* startDispatcher(topic)
    const pauses = yield* Effect.provideContext(Effect.service(PartitionPauses), context)
    yield* Refusals.until("poison", "retrying")
    topic.down = true
    yield* Counters.eventually(
      "the topic to pause for the held event alone",
      Effect.map(pauses.all, (paused) => paused.length === 1)
    )
    const before = yield* Refusals.holdOn("poison")
    const sends = topic.sends.length
    yield* Counters.eventually(
      "many attempts",
      Effect.sync(() => topic.sends.length > sends + 5)
    )
    assert.strictEqual((yield* Refusals.holdOn("poison"))?.attempts, before?.attempts)
    topic.down = false
    topic.refused.clear()
    yield* Refusals.untilPublished("poison", 3)
    assert.deepStrictEqual(yield* publishedVersions("poison"), [1, 2, 3])
    assert.deepStrictEqual(yield* pauses.all, [])
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(Refusals.soon({ maxAttempts: 1_000 })))
)

for (const point of ["dispatcher.after-hold", "dispatcher.after-release", "dispatcher.after-publish"] as const) {
  it.live(`a failure ${point} loses nothing of a held aggregate and keeps its order`, () =>
    Effect.gen(function* () {
      const control = yield* FaultInjection.FaultControl
      const topic = Refusals.makeTopic()
      for (const version of [2, 3, 5]) topic.refused.add(`poison/${version}`)
      yield* Refusals.append("poison", 1, 6)
      yield* Refusals.append("other", 1, 6)
      yield* control.set(point, { action: "fail", times: 2, delayMillis: 0 })
      yield* startDispatcher(topic)
      for (const version of [2, 3, 5]) {
        yield* Counters.eventually(
          `version ${version} to be refused`,
          Effect.map(Refusals.statesOf("poison"), (states) => states[version - 1]?.status === "retrying")
        )
        topic.refused.delete(`poison/${version}`)
      }
      yield* Refusals.untilPublished("poison", 6)
      yield* Refusals.untilPublished("other", 6)
      assert.deepStrictEqual(yield* control.list, [])
      assert.deepStrictEqual(yield* publishedVersions("poison"), upTo(6))
      assert.deepStrictEqual(yield* publishedVersions("other"), upTo(6))
    }).pipe(
      Effect.scoped,
      Effect.provide(writer),
      Effect.provide(FaultInjection.layer()),
      Effect.provide(Refusals.soon({ maxAttempts: 1_000 }))
    )
  )
}

it.live("a new process finds the holds of the one that died, and continues their attempts", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/1")
    yield* Refusals.append("poison", 1, 3)
    yield* Effect.scoped(Effect.andThen(startDispatcher(topic), Refusals.until("poison", "retrying")))
    const before = yield* Refusals.holdOn("poison")
    topic.refused.clear()
    yield* startDispatcher(topic)
    yield* Refusals.untilPublished("poison", 3)
    assert.deepStrictEqual(yield* publishedVersions("poison"), [1, 2, 3])
    assert.isAtLeast(before?.attempts ?? 0, 1)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(Refusals.soon({ maxAttempts: 1_000 })))
)

/** The steps of holds, with jitter that the test decides. */
const holdsAlone = Parking.layer.pipe(Layer.provideMerge(Queue.layer), Layer.provideMerge(writer))

it.live("a gap that a zombie's late mark leaves behind a parked event stops nothing", () =>
  Effect.gen(function* () {
    const holds = yield* Holds
    const queue = yield* Queue
    const sql = yield* PgClient.PgClient
    const lane = laneOf("poison")
    yield* Refusals.append("poison", 1, 3)
    const batch = yield* Lanes.fetch(queue, lane, [])
    // Another transaction has locked the third event's row while the aggregate gets its hold, so the row stays in the queue for now.
    yield* Transaction.run(
      Effect.gen(function* () {
        const { sql: inside } = yield* Transaction
        yield* inside`SELECT 1 AS one FROM outbox_events WHERE aggregate_version = 3 FOR UPDATE`
        // On a connection of its own, as in another process.
        yield* Effect.updateContext(
          holds.hold(lane, batch[0]!, Refusals.rejection),
          (context: Context.Context<never>) => Context.omit(sql.transactionService)(context)
        )
      })
    )
    assert.deepStrictEqual(yield* Counters.queuedVersions("poison"), [3])
    // A zombie had sent all three events as one batch, and its ack comes now.
    yield* Lanes.mark(queue, lane, batch, { partition: 0, baseOffset: 0n })
    yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now()`
    const [head] = yield* holds.due([{ lane }])
    assert.isTrue(yield* holds.published(head!, { partition: 0, baseOffset: 3n }))
    yield* Refusals.append("poison", 4, 1)
    assert.deepStrictEqual(yield* Counters.queuedVersions("poison"), [2, 4])
    // A refusal of a later event must not hold the aggregate with the wrong head.
    const fourth = (yield* Lanes.fetch(queue, lane, []))[1]
    assert.strictEqual(yield* holds.hold(lane, fourth!, Refusals.rejection), "gone")
    assert.isUndefined(yield* Refusals.holdOn("poison"))
    yield* startDispatcher(Refusals.makeTopic())
    yield* Refusals.untilPublished("poison", 4)
    assert.deepStrictEqual(yield* publishedVersions("poison"), [2, 4])
  }).pipe(Effect.scoped, Effect.provide(holdsAlone), Effect.provide(Refusals.soon()))
)
