/** When a refused event is tried again: at its due time by a timer, with no poll in between. */
import { assert, it } from "@effect/vitest"
import { Clock, Context, Effect, Layer, Random } from "effect"
import { SqlClient } from "effect/sql"
import { DispatcherSettings } from "../../src/messaging/outbox/Dispatcher.ts"
import { HoldSettings } from "../../src/messaging/outbox/Holds.ts"
import { laneOf } from "../../src/messaging/outbox/Lane.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/messaging/outbox/LaneWorkers.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import * as ShortWaits from "../support/ShortWaits.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

it.live("a refused event is tried again when it is due, though no poll ever comes", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/1")
    const dispatcher = TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
      Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000, lanesSideBySide: 2, topics: [] }))
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
  }).pipe(
    Effect.scoped,
    Effect.provide(writer),
    Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 1_000, maxAttempts: 10, skipTopics: [] })),
    // Half of what the first wait may be: a second.
    Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.5, nextIntUnsafe: () => 1 })
  )
)

it.live(
  "one whose topic is away when it is tried is tried again when the topic's pause is over, though no poll ever comes",
  () =>
    Effect.gen(function* () {
      const topic = Refusals.makeTopic()
      topic.refused.add("poison/1")
      const dispatcher = TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000, lanesSideBySide: 2, topics: [] })),
        Layer.provide(Layer.succeed(DispatcherSettings, { backoffBaseMillis: 20, backoffCapMillis: 20 }))
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
    }).pipe(
      Effect.scoped,
      Effect.provide(writer),
      Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 1_000, maxAttempts: 10, skipTopics: [] })),
      Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.5, nextIntUnsafe: () => 1 })
    )
)

it.live(
  "an event that is dead at its first refusal, and skipped, keeps nobody waiting, though no poll ever comes",
  () =>
    Effect.gen(function* () {
      const topic = Refusals.makeTopic()
      topic.refused.add("poison/2")
      const dispatcher = TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000, lanesSideBySide: 2, topics: [] }))
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

it.live("one that the broker takes and Postgres can't write down is sent again with backoff, and told of", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/1")
    const dispatcher = TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
      // Looked at far more often than it may be sent.
      Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 5, lanesSideBySide: 2, topics: [] }))
    )
    const context = yield* Layer.build(dispatcher)
    yield* Refusals.append("poison", 1, 2)
    yield* Refusals.until("poison", "retrying")
    const { stopped } = Context.get(context, LaneWorkers)
    assert.deepStrictEqual(yield* stopped, [])
    yield* sql`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$`
    yield* sql`CREATE TRIGGER refuse BEFORE INSERT ON event_log FOR EACH ROW EXECUTE FUNCTION refuse()`
    const before = Refusals.sendsAlone(topic, "poison/1")
    topic.refused.clear()
    const began = yield* Clock.currentTimeMillis
    yield* Refusals.dueNow
    yield* Counters.eventually(
      "the fifth failure in a row",
      Effect.map(stopped, ([lane]) => (lane?.attempt ?? 0) >= 5)
    )
    // Behind the fourth wait: 50, 100, 200 and 400 ms.
    assert.isAtLeast((yield* Clock.currentTimeMillis) - began, 700)
    const failing = (yield* stopped).map(({ attempt, lane }) => ({ attempt, lane }))
    assert.strictEqual(failing[0]?.lane, laneOf("poison"))
    // One more may be under way.
    assert.closeTo(Refusals.sendsAlone(topic, "poison/1") - before, failing[0]?.attempt ?? 0, 1)
    yield* sql`DROP TRIGGER refuse ON event_log`
    yield* Refusals.untilPublished("poison", 2)
    yield* Counters.eventually(
      "its lane to be well",
      Effect.map(stopped, (lanes) => lanes.length === 0)
    )
  }).pipe(
    Effect.scoped,
    Effect.provide(writer),
    Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 1_000, maxAttempts: 10, skipTopics: [] })),
    // Half of what each wait may be: 50 ms, then twice as long each time.
    Effect.provideService(Random.Random, { nextDoubleUnsafe: () => 0.5, nextIntUnsafe: () => 1 })
  )
)
