/** The dispatcher without parking: a refused event stops its lane. Nothing is lost or overtaken, and the lane goes on once the event is accepted. */
import type { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Cause, Context, Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import { laneOf, partitionOf } from "../../src/outbox/Lane.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Publisher } from "../../src/outbox/Publisher.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as Plain from "../../src/plain/Plain.ts"
import * as PlainParking from "../../src/plain/PlainParking.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** One more process with a plain dispatcher, on the same database, for as long as the scope lives. */
const start = Effect.fnUntraced(function* (topic: Refusals.Topic, holds: Layer.Layer<Holds, never, PgClient.PgClient>) {
  const database = yield* TestDatabase
  return yield* Layer.build(
    Layer.fresh(
      Plain.dispatcher.pipe(
        Layer.provide(holds),
        Layer.provide(Refusals.over(topic)(TestProcess.broker)),
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 20 })),
        Layer.provideMerge(TestProcess.outbox),
        Layer.provide(Layer.succeed(TestDatabase, database))
      )
    )
  )
})

const partitions = 8
const find = (name: string, fits: (id: string) => boolean) => {
  for (let number = 0; ; number++) if (fits(`${name}-${number}`)) return `${name}-${number}`
}
const lane = laneOf("poison")
/** Another aggregate of the poison's lane. */
const neighbour = find("neighbour", (id) => laneOf(id) === lane)
/** One of another lane, which shares the poison's partition and its batches. */
const sound = find(
  "sound",
  (id) => laneOf(id) !== lane && partitionOf(laneOf(id), partitions) === partitionOf(lane, partitions)
)

const heldRows = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows =
    yield* sql`SELECT FROM outbox_holds UNION ALL SELECT FROM outbox_parked UNION ALL SELECT FROM outbox_dead_letters`
  return rows.length
})

/** The versions of each aggregate as the topic has them: in its order, duplicates included. */
const versionsOf = Effect.fnUntraced(function* (id: string) {
  return (yield* Counters.published).filter((record) => record.id === id).map(({ version }) => version)
})

it.live("a refused event stops its lane and no other, and the lane goes on in order once the event is accepted", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/2")
    yield* Refusals.append("poison", 1, 4)
    yield* Refusals.append(neighbour, 1, 2)
    yield* Refusals.append(sound, 1, 4)
    const { stopped } = Context.get(yield* start(topic, Plain.blocking), LaneWorkers)
    yield* Refusals.untilPublished(sound, 4)
    yield* Refusals.append(neighbour, 3, 2)
    yield* Refusals.append(sound, 5, 2)
    yield* Refusals.untilPublished(sound, 6)
    yield* Counters.eventually(
      "the refused event to be sent again",
      Effect.sync(() => Refusals.sendsAlone(topic, "poison/2") >= 3)
    )
    assert.deepStrictEqual(
      (yield* stopped).map((one) => one.lane),
      [lane]
    )
    assert.deepStrictEqual(yield* versionsOf("poison"), [1])
    assert.deepStrictEqual(yield* Counters.queuedVersions("poison"), [2, 3, 4])
    assert.deepStrictEqual(yield* Counters.queuedVersions(neighbour), [1, 2, 3, 4])
    assert.strictEqual(yield* heldRows, 0)

    topic.refused.clear()
    yield* Refusals.untilPublished("poison", 4)
    yield* Refusals.untilPublished(neighbour, 4)
    assert.deepStrictEqual(yield* versionsOf("poison"), [1, 2, 3, 4])
    assert.deepStrictEqual(yield* versionsOf(neighbour), [1, 2, 3, 4])
    assert.deepStrictEqual(yield* versionsOf(sound), [1, 2, 3, 4, 5, 6])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("the lane's failure names the event", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/2")
    yield* Refusals.append("poison", 1, 3)
    const dispatcher = Dispatcher.layer.pipe(
      Layer.provide(Layer.mergeAll(Queue.layer, Publisher.layer, Holds.layerBlocking)),
      Layer.provide(Refusals.over(topic)(TestProcess.broker))
    )
    yield* Effect.gen(function* () {
      const { drainOnce } = yield* Dispatcher
      const exit = yield* Effect.exit(drainOnce([lane]))
      const eventId = (yield* Refusals.statesOf("poison"))[1]!.eventId
      assert.isTrue(Exit.isFailure(exit))
      assert.include(
        Exit.isFailure(exit) ? Cause.pretty(exit.cause) : "",
        `event ${eventId} (Counted, version 2 of Counter poison) stops its lane until the broker takes it`
      )
      assert.deepStrictEqual(yield* versionsOf("poison"), [1])
      topic.refused.clear()
      yield* drainOnce([lane])
      assert.deepStrictEqual(yield* versionsOf("poison"), [1, 2, 3])
    }).pipe(Effect.provide(dispatcher))
  }).pipe(Effect.provide(writer))
)

it.live("events that an earlier dispatcher parked stop the lane until a dispatcher with parking has sent them", () =>
  Effect.gen(function* () {
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/2")
    yield* Refusals.append("poison", 1, 3)
    yield* Effect.scoped(Effect.andThen(start(topic, PlainParking.outbox), Refusals.until("poison", "retrying")))
    topic.refused.clear()
    yield* Refusals.append("poison", 4, 1)
    yield* Effect.gen(function* () {
      const { stopped } = Context.get(yield* start(topic, Plain.blocking), LaneWorkers)
      yield* Counters.eventually(
        "the lane to stop",
        Effect.map(stopped, (all) => all.some((one) => one.lane === lane))
      )
    }).pipe(Effect.scoped)
    assert.deepStrictEqual(yield* versionsOf("poison"), [1])

    yield* Refusals.dueNow
    yield* start(topic, PlainParking.outbox)
    yield* Refusals.untilPublished("poison", 4)
    assert.deepStrictEqual(yield* versionsOf("poison"), [1, 2, 3, 4])
  }).pipe(Effect.scoped, Effect.provide(writer))
)
