/** When a refused event is tried again: at its due time by a timer, with no poll in between. */
import { assert, it } from "@effect/vitest"
import { Clock, Context, Deferred, Effect, Layer, Random } from "effect"
import { SqlClient } from "effect/sql"
import { type Broker, BrokerUnavailable } from "../../src/brokers/Broker.ts"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { PartitionPauses, PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { HoldSettings } from "../../src/outbox/holds/Parking.ts"
import { laneOf, partitionOf } from "../../src/outbox/Lane.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { ControlSettings } from "../../src/platform/ControlConnection.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import * as ShortWaits from "../support/ShortWaits.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet),
  // Who loses its lanes, on a machine that stands still, forgets rightly what has failed in them.
  Layer.provideMerge(Layer.succeed(ControlSettings, { sessionTimeoutMillis: 60_000, heartbeatMillis: 1_000 }))
)

/** A refused event is due again after a second, which is half of what that wait may be. */
const patient = Layer.succeed(HoldSettings, { retryBaseMillis: 1_000, maxAttempts: 10, skipTopics: [] })
const halfway = Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.5, nextIntUnsafe: () => 1 })

it.live("a refused event is tried again when it is due, though no poll ever comes", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/1")
    const dispatcher = TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
      Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 }))
    )
    // Neither a poll nor the look that shows health that the fiber lives: what is waited for is the second that a retry takes to be due.
    yield* ShortWaits.upTo("5 seconds")(Layer.build(dispatcher))
    yield* Refusals.append("poison", 1, 2)
    yield* Refusals.until("poison", "retrying")
    topic.refused.clear()
    yield* Refusals.untilPublished("poison", 2)
    assert.deepStrictEqual(
      (yield* Counters.published).map(({ version }) => version),
      [1, 2]
    )
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live(
  "one whose topic is away when it is tried is tried again when the topic's pause is over, though no poll ever comes",
  () =>
    Effect.gen(function* () {
      const topic = Refusals.makeTopic()
      topic.refused.add("poison/1")
      const dispatcher = TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 })),
        Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 20, backoffCapMillis: 20 }))
      )
      yield* ShortWaits.upTo("5 seconds")(Layer.build(dispatcher))
      yield* Refusals.append("poison", 1, 2)
      yield* Refusals.until("poison", "retrying")
      topic.refused.clear()
      topic.down = true
      const before = topic.sends.length
      yield* Counters.eventually(
        "a send into the outage",
        Effect.sync(() => topic.sends.length > before)
      )
      topic.down = false
      yield* Refusals.untilPublished("poison", 2)
    }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

/** Two aggregates, each in a partition of its own, wait for the end of its pause, which is not over within a test by itself; anything can be sent. */
const pausedForLong = Effect.fnUntraced(function* (
  change: <R>(layer: Layer.Layer<Broker, never, R>) => Layer.Layer<Broker, never, R> = (layer) => layer
) {
  const topic = Refusals.makeTopic()
  for (const id of waiting) topic.refused.add(`${id}/1`)
  const dispatcher = TestProcess.dispatcherOver((layer) => change(Refusals.over(topic)(layer))).pipe(
    Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 })),
    Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 2 ** 40, backoffCapMillis: 2 ** 40 }))
  )
  const { runningIn } = Context.get(yield* ShortWaits.upTo("5 seconds")(Layer.build(dispatcher)), PartitionPauses)
  for (const id of waiting) yield* Refusals.append(id, 1, 2)
  for (const id of waiting) yield* Refusals.until(id, "retrying")
  topic.refused.clear()
  topic.down = true
  for (const id of waiting) {
    yield* Counters.eventually(
      `a pause of ${id}`,
      Effect.map(runningIn(laneOf(id)), (topics) => topics.length > 0)
    )
  }
  topic.down = false
})

const ids = Array.from({ length: 2_000 }, (_, index) => `good-${index}`)
const placeOf = (id: string) => partitionOf(laneOf(id), 8)
const waiting = ["poison", ids.find((id) => placeOf(id) !== placeOf("poison"))!] as const
const elsewhere = ids.find((id) => waiting.every((one) => placeOf(id) !== placeOf(one)))!

it.live("one whose partition's pause ends before its time is tried at once, though no poll ever comes", () =>
  Effect.gen(function* () {
    yield* pausedForLong()
    yield* Refusals.append(elsewhere, 1, 1)
    for (const id of waiting) yield* Refusals.untilPublished(id, 2)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live("nor is one forgotten whose lane is at work when it ends", () =>
  Effect.gen(function* () {
    const isSending = yield* Deferred.make<void>()
    const arrives = yield* Deferred.make<void>()
    yield* pausedForLong(
      TestProcess.publishing((batch, broker) =>
        batch.topic === "others"
          ? Effect.andThen(
              Effect.andThen(Deferred.succeed(isSending, undefined), Deferred.await(arrives)),
              broker.publish(batch)
            )
          : broker.publish(batch)
      )
    )
    yield* Effect.addFinalizer(() => Deferred.succeed(arrives, undefined))
    const beside = ids.find((id) => laneOf(id) === laneOf("poison"))!
    yield* Refusals.append(beside, 1, 1, "others")
    yield* Deferred.await(isSending)
    yield* Refusals.append(elsewhere, 1, 1)
    // One look finds both of them due, so poison's lane was told of it, too.
    yield* Refusals.untilPublished(waiting[1], 2)
    yield* Deferred.succeed(arrives, undefined)
    yield* Refusals.untilPublished("poison", 2)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live(
  "an event that is dead at its first refusal, and skipped, keeps nobody waiting, though no poll ever comes",
  () =>
    Effect.gen(function* () {
      const topic = Refusals.makeTopic()
      topic.refused.add("poison/2")
      const dispatcher = TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 }))
      )
      yield* Layer.build(dispatcher)
      yield* Refusals.append("poison", 1, 4)
      yield* Counters.eventually(
        "what is behind it",
        Effect.map(Counters.published, (records) => records.map(({ version }) => version).join() === "1,3,4")
      )
    }).pipe(
      Effect.scoped,
      Effect.provide(writer),
      Effect.provide(Refusals.soon({ maxAttempts: 1, skipTopics: [Counters.topic] }))
    )
)

it.live("a turn in which an event was skipped says that there may be more", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/2")
    yield* Refusals.append("poison", 1, 4)
    yield* Effect.gen(function* () {
      const { drainOnce } = yield* Dispatcher
      assert.strictEqual(yield* drainOnce([laneOf("poison")]), "more")
      assert.strictEqual(yield* drainOnce([laneOf("poison")]), "idle")
    }).pipe(
      Effect.provide(Dispatcher.layer.pipe(Layer.provideMerge(TestProcess.dispatcherStepsOver(Refusals.over(topic)))))
    )
    assert.deepStrictEqual(
      (yield* Counters.published).map(({ version }) => version),
      [1, 3, 4]
    )
  }).pipe(Effect.provide(writer), Effect.provide(Refusals.soon({ maxAttempts: 1, skipTopics: [Counters.topic] })))
)

/** An event that was refused once is taken by the broker from now on, and Postgres can't write that down. */
const unwritable = Effect.fnUntraced(function* ({ backoffMillis = 20 }: { readonly backoffMillis?: number } = {}) {
  const sql = yield* SqlClient.SqlClient
  const topic = Refusals.makeTopic()
  topic.refused.add("poison/1")
  /** Topics that can't be reached. */
  const away = new Set<string>()
  const reachable = TestProcess.publishing((batch, broker) =>
    away.has(batch.topic)
      ? Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "away" }))
      : broker.publish(batch)
  )
  const dispatcher = TestProcess.dispatcherOver((layer) => Refusals.over(topic)(reachable(layer))).pipe(
    // Looked at far more often than it may be sent.
    Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 5 })),
    Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: backoffMillis, backoffCapMillis: backoffMillis }))
  )
  const context = yield* Layer.build(dispatcher)
  const { stopped } = Context.get(context, LaneWorkers)
  const { runningIn } = Context.get(context, PartitionPauses)
  yield* Refusals.append("poison", 1, 2)
  yield* Refusals.until("poison", "retrying")
  assert.deepStrictEqual(yield* stopped, [])
  yield* sql`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$`
  yield* sql`CREATE TRIGGER refuse BEFORE INSERT ON event_log FOR EACH ROW
    WHEN (NEW.aggregate_id = 'poison') EXECUTE FUNCTION refuse()`
  const before = Refusals.sendsAlone(topic, "poison/1")
  topic.refused.delete("poison/1")
  const began = yield* Clock.currentTimeMillis
  yield* Refusals.dueNow
  const attempt = Effect.map(stopped, ([lane]) => lane?.attempt ?? 0)
  return {
    topic,
    away,
    untilPaused: (id: string, name: string) =>
      Counters.eventually(
        `a pause of ${name}`,
        Effect.map(runningIn(laneOf(id)), (topics) => topics.includes(name))
      ),
    stopped,
    attempt,
    elapsed: Effect.map(Clock.currentTimeMillis, (now) => now - began),
    sends: () => Refusals.sendsAlone(topic, "poison/1") - before,
    untilAttempt: (count: number) =>
      Counters.eventually(
        `failure ${count} in a row`,
        Effect.map(attempt, (at) => at >= count)
      ),
    untilWell: Counters.eventually(
      "its lane to be well",
      Effect.map(stopped, (lanes) => lanes.length === 0)
    ),
    mend: sql`DROP TRIGGER refuse ON event_log`
  }
})

it.live("one that the broker takes and Postgres can't write down is sent again with backoff, and told of", () =>
  Effect.gen(function* () {
    const { elapsed, mend, sends, stopped, untilAttempt, untilWell } = yield* unwritable()
    yield* untilAttempt(5)
    // Behind the fourth wait: 50, 100, 200 and 400 ms.
    assert.isAtLeast(yield* elapsed, 700)
    const failing = (yield* stopped).map(({ attempt, lane }) => ({ attempt, lane }))
    assert.strictEqual(failing[0]?.lane, laneOf("poison"))
    // One more may be under way.
    assert.closeTo(sends(), failing[0]?.attempt ?? 0, 1)
    yield* mend
    yield* Refusals.untilPublished("poison", 2)
    yield* untilWell
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live("nothing is told of it any more once somebody else has dealt with it, and its time is far off", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { untilAttempt, untilWell } = yield* unwritable()
    yield* untilAttempt(1)
    // As where another dispatcher was refused it, later than this one sent it.
    yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now() + interval '1 day'`
    yield* untilWell
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live("an outage in between says nothing about it: its failures go on being told, and counted", () =>
  Effect.gen(function* () {
    const { attempt, away, sends, untilAttempt } = yield* unwritable()
    yield* untilAttempt(2)
    away.add(Counters.topic)
    // Of these the first may have been under way; behind the third there was a look during a pause, and one after it.
    const before = sends()
    yield* Counters.eventually(
      "three sends into the outage",
      Effect.sync(() => sends() >= before + 3)
    )
    assert.isAtLeast(yield* attempt, 2)
    away.delete(Counters.topic)
    yield* untilAttempt(4)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live("nor does an answer for another event of its lane, while its own topic is away", () =>
  Effect.gen(function* () {
    const { attempt, away, topic, untilAttempt, untilPaused } = yield* unwritable({ backoffMillis: 2 ** 40 })
    yield* untilAttempt(2)
    away.add(Counters.topic)
    yield* untilPaused("poison", Counters.topic)
    const ids = Array.from({ length: 2_000 }, (_, index) => `other-${index}`)
    const other = ids.find((id) => laneOf(id) === laneOf("poison"))!
    topic.refused.add(`${other}/1`)
    yield* Refusals.append(other, 1, 1, "others")
    // The first of them is from the queue, and the last one shows that the look at what is due behind the second is over.
    yield* Counters.eventually(
      "three refusals of the other",
      Effect.andThen(
        Refusals.dueNow,
        Effect.sync(() => Refusals.sendsAlone(topic, `${other}/1`) >= 3)
      )
    )
    assert.isAtLeast(yield* attempt, 2)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live("that another topic is away keeps nobody from hearing that it is done", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { away, untilAttempt, untilPaused, untilWell } = yield* unwritable({ backoffMillis: 2 ** 40 })
    yield* untilAttempt(1)
    away.add("others")
    yield* Refusals.append("elsewhere", 1, 1, "others")
    yield* untilPaused("elsewhere", "others")
    yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now() + interval '1 day'`
    yield* untilWell
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)
