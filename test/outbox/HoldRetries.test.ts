/** The retry times of a refused event: a timer starts each attempt, without a poll. */
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
  // A long timeout: a dispatcher that loses its lanes on a machine that stands still rightly forgets their failures.
  Layer.provideMerge(Layer.succeed(ControlSettings, { sessionTimeoutMillis: 60_000, heartbeatMillis: 1_000 }))
)

/** A refused event is due after a second, which is half of the longest wait. */
const patient = Layer.succeed(HoldSettings, { retryBaseMillis: 1_000, maxAttempts: 10, skipTopics: [] })
const halfway = Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.5, nextIntUnsafe: () => 1 })

it.live("a refused event is retried when it is due, without a poll", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/1")
    const dispatcher = TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
      Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 }))
    )
    // No poll and no health tick ends within 5 seconds, so the timer of the retry starts the attempt.
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

it.live("an event whose topic is unavailable at its retry is retried when the topic's pause ends, without a poll", () =>
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

/** Two aggregates in different partitions, both paused beyond the end of the test. The topic is reachable again. */
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

it.live("a due event whose partition's pause is ended early is retried at once, without a poll", () =>
  Effect.gen(function* () {
    yield* pausedForLong()
    yield* Refusals.append(elsewhere, 1, 1)
    for (const id of waiting) yield* Refusals.untilPublished(id, 2)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live("an event whose lane has a batch in flight when the pause ends is retried after the batch", () =>
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
    // One round finds both holds due, so the wake-up has reached poison's lane, too.
    yield* Refusals.untilPublished(waiting[1], 2)
    yield* Deferred.succeed(arrives, undefined)
    yield* Refusals.untilPublished("poison", 2)
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live("an event that is dead at its first refusal, and skipped, delays no later event, without a poll", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/2")
    const dispatcher = TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
      Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 }))
    )
    yield* Layer.build(dispatcher)
    yield* Refusals.append("poison", 1, 4)
    yield* Counters.eventually(
      "the events behind it",
      Effect.map(Counters.published, (records) => records.map(({ version }) => version).join() === "1,3,4")
    )
  }).pipe(
    Effect.scoped,
    Effect.provide(writer),
    Effect.provide(Refusals.soon({ maxAttempts: 1, skipTopics: [Counters.topic] }))
  )
)

it.live("a turn in which an event was skipped reports that there may be more", () =>
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

/** A once refused event that the broker now accepts, and whose mark Postgres can't write. */
const unwritable = Effect.fnUntraced(function* ({ backoffMillis = 20 }: { readonly backoffMillis?: number } = {}) {
  const sql = yield* SqlClient.SqlClient
  const topic = Refusals.makeTopic()
  topic.refused.add("poison/1")
  /** Unavailable topics. */
  const away = new Set<string>()
  const reachable = TestProcess.publishing((batch, broker) =>
    away.has(batch.topic)
      ? Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "away" }))
      : broker.publish(batch)
  )
  const dispatcher = TestProcess.dispatcherOver((layer) => Refusals.over(topic)(reachable(layer))).pipe(
    // The dispatcher polls far more often than it may send.
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
      "its lane to be healthy",
      Effect.map(stopped, (lanes) => lanes.length === 0)
    ),
    mend: sql`DROP TRIGGER refuse ON event_log`
  }
})

it.live("an event that the broker accepts and Postgres can't mark is sent again with backoff, and reported", () =>
  Effect.gen(function* () {
    const { elapsed, mend, sends, stopped, untilAttempt, untilWell } = yield* unwritable()
    yield* untilAttempt(5)
    // After the fourth wait: 50, 100, 200 and 400 ms.
    assert.isAtLeast(yield* elapsed, 700)
    const failing = (yield* stopped).map(({ attempt, lane }) => ({ attempt, lane }))
    assert.strictEqual(failing[0]?.lane, laneOf("poison"))
    // One more send may be in flight.
    assert.closeTo(sends(), failing[0]?.attempt ?? 0, 1)
    yield* mend
    yield* Refusals.untilPublished("poison", 2)
    yield* untilWell
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live("its failure is no longer reported once another dispatcher has postponed it", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { untilAttempt, untilWell } = yield* unwritable()
    yield* untilAttempt(1)
    // As if another dispatcher's later attempt had been refused.
    yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now() + interval '1 day'`
    yield* untilWell
  }).pipe(Effect.scoped, Effect.provide(writer), Effect.provide(patient), halfway)
)

it.live("an outage in between does not reset its failures: they are still reported and counted", () =>
  Effect.gen(function* () {
    const { attempt, away, sends, untilAttempt } = yield* unwritable()
    yield* untilAttempt(2)
    away.add(Counters.topic)
    // The first of these sends may have been in flight. The third one shows that a round ran during a pause, and another one after it.
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

it.live("an answer for another event of its lane does not reset its failures while its own topic is unavailable", () =>
  Effect.gen(function* () {
    const { attempt, away, topic, untilAttempt, untilPaused } = yield* unwritable({ backoffMillis: 2 ** 40 })
    yield* untilAttempt(2)
    away.add(Counters.topic)
    yield* untilPaused("poison", Counters.topic)
    const ids = Array.from({ length: 2_000 }, (_, index) => `other-${index}`)
    const other = ids.find((id) => laneOf(id) === laneOf("poison"))!
    topic.refused.add(`${other}/1`)
    yield* Refusals.append(other, 1, 1, "others")
    // The first refusal is of the queued event. The third one shows that the round after the second one has ended.
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

it.live("an outage of another topic does not delay the report that it is published", () =>
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
