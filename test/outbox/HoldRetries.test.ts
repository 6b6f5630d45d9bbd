/** When a refused event is tried again: at its due time by a timer, with no poll in between. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Random } from "effect"
import { DispatcherSettings } from "../../src/messaging/outbox/Dispatcher.ts"
import { HoldSettings } from "../../src/messaging/outbox/Holds.ts"
import { LaneWorkersSettings } from "../../src/messaging/outbox/LaneWorkers.ts"
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
