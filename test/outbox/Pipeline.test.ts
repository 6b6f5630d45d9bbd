/** The turns and the senders when something is slow, fails or stops. Every part is real, and the broker waits where a test says so. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Layer, Logger, References, Semaphore, SubscriptionRef } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import * as Dispatching from "../../src/Dispatching.ts"
import { type Batch, Broker, BrokerUnavailable, MessageRejected } from "../../src/brokers/Broker.ts"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { GatheringSettings } from "../../src/outbox/Gathering.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import { allLanes, laneOf } from "../../src/outbox/Lane.ts"
import { LaneOwnership } from "../../src/outbox/LaneOwnership.ts"
import { LaneWorkers, LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { PollRequests } from "../../src/outbox/PollRequests.ts"
import { Queue, QueueSettings } from "../../src/outbox/Queue.ts"
import { Ownership } from "../../src/platform/Ownership.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import { append, idIn, start, writer } from "../support/Dispatchers.ts"
import * as Ledger from "../support/Ledger.ts"
import * as Refusals from "../support/Refusals.ts"
import * as TestProcess from "../support/TestProcess.ts"

const lanesOf = (batch: Batch) => [...new Set(batch.records.map(({ key }) => laneOf(key)))]

const published = (count: number) =>
  Counters.eventually(
    `${count} events`,
    Effect.map(Ledger.countEmbedded, (found) => found === count)
  )
const inOrder = Effect.gen(function* () {
  assert.deepStrictEqual(Ledger.check(yield* Ledger.deliveredEmbedded, yield* Ledger.committed).problems, [])
})

it.live.each([[[0, 1, 2]], [[2, 0, 1]], [[1, 2, 0]]])(
  "acknowledgements may come in any order of the partitions: %s",
  ([order]) =>
    Effect.gen(function* () {
      const gates = yield* Effect.forEach([0, 1, 2], () => Deferred.make<void>())
      const underWay = new Map<number, number>()
      let most = 0
      let all = 0
      yield* start((batch, broker) =>
        Effect.acquireUseRelease(
          Effect.sync(() => {
            const now = (underWay.get(batch.partition) ?? 0) + 1
            underWay.set(batch.partition, now)
            most = Math.max(most, now)
            all = Math.max(
              all,
              [...underWay.values()].reduce((sum, count) => sum + count, 0)
            )
          }),
          () => Effect.andThen(Deferred.await(gates[batch.partition]!), broker.publish(batch)),
          () => Effect.sync(() => underWay.set(batch.partition, underWay.get(batch.partition)! - 1))
        )
      )
      yield* Effect.addFinalizer(() => Effect.forEach(gates, (gate) => Deferred.succeed(gate, undefined)))
      for (const lane of [0, 1, 2, 8, 9, 10]) yield* append(lane, 2)
      yield* Counters.eventually(
        "a send in each partition",
        Effect.sync(() => all === 3)
      )
      // Queued behind the batch in flight: the lane's next events, and another lane's.
      for (const lane of [0, 1, 2, 16, 17, 18]) yield* append(lane)
      let done = 0
      for (const partition of order!) {
        yield* Deferred.succeed(gates[partition]!, undefined)
        done += 6
        yield* published(done)
      }
      yield* Counters.drained
      assert.strictEqual(most, 1, "one send in flight for each partition")
      yield* inOrder
    }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a failed mark is repeated lane by lane, without a send; only the lane that fails alone stops", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const gate = yield* Deferred.make<void>()
    const sends: Array<ReadonlyArray<number>> = []
    const context = yield* start((batch, broker) => {
      sends.push(lanesOf(batch))
      return Effect.andThen(Deferred.await(gate), broker.publish(batch))
    })
    const { stopped } = Context.get(context, LaneWorkers)
    yield* sql`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$`
    yield* sql.unsafe(`CREATE TRIGGER refuse BEFORE INSERT ON event_log FOR EACH ROW
      WHEN (NEW.aggregate_id = '${idIn(8)}') EXECUTE FUNCTION refuse()`)
    for (const lane of [0, 8, 16, 1]) yield* append(lane)
    yield* Deferred.succeed(gate, undefined)
    yield* Counters.eventually(
      "the other lanes to be marked, and the one to have failed twice",
      Effect.gen(function* () {
        const queued = yield* sql<{ readonly lane: number }>`SELECT lane FROM outbox_events`
        const waiting = yield* stopped
        return (
          queued.map(({ lane }) => lane).join() === "8" &&
          waiting.map(({ lane }) => lane as number).join() === "8" &&
          waiting.every(({ attempt }) => attempt >= 2)
        )
      })
    )
    yield* sql`DROP TRIGGER refuse ON event_log`
    yield* Counters.drained
    assert.strictEqual(sends.flat().filter((lane) => lane === 8).length, 1, "sent once")
    assert.strictEqual(yield* Ledger.countEmbedded, 4)
    yield* Counters.eventually(
      "the lane to go on",
      Effect.map(stopped, (waiting) => waiting.length === 0)
    )
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a lane is fetched again before its last batch is marked, and what is not marked is not sent again", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [sending, send, fetched, mark] = yield* Effect.forEach([1, 2, 3, 4], () => Deferred.make<void>())
    const sends: Array<number> = []
    const found: Array<ReadonlyArray<number>> = []
    const context = yield* start(
      (batch, broker) => {
        sends.push(batch.records.length)
        return Deferred.succeed(sending!, undefined).pipe(
          Effect.andThen(Deferred.await(send!)),
          Effect.andThen(broker.publish(batch))
        )
      },
      (queue) => ({
        fetch: (parts) =>
          Effect.tap(queue.fetch(parts), ([part]) => {
            const versions = part?.events.map(({ aggregateVersion }) => aggregateVersion) ?? []
            found.push(versions)
            return versions.length === 3 ? Deferred.succeed(fetched!, undefined) : Effect.void
          }),
        mark: (runs) => Effect.andThen(Deferred.await(mark!), queue.mark(runs))
      })
      // Far longer than a wake-up takes, so that the next turn has heard of the lane's next events.
    ).pipe(
      Effect.provideService(GatheringSettings, {
        longestMillis: 5,
        apartMillis: { busy: 2_000, calm: 2_000 },
        markMillis: 0
      })
    )
    yield* append(0)
    yield* Deferred.await(sending!)
    yield* append(0, 2)
    yield* Deferred.succeed(send!, undefined)
    yield* Deferred.await(fetched!)
    assert.deepStrictEqual(found, [[1], [1, 2, 3]])
    yield* published(3)
    assert.deepStrictEqual(sends, [1, 2])
    assert.lengthOf(yield* sql`SELECT FROM outbox_events`, 3)
    yield* Deferred.succeed(mark!, undefined)
    yield* Counters.drained
    assert.deepStrictEqual(sends, [1, 2])
    assert.strictEqual(yield* Ledger.countEmbedded, 3)
    yield* inOrder
    assert.deepStrictEqual(yield* Context.get(context, LaneWorkers).stopped, [])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a lane whose mark fails while its next batch is on its way loses nothing, and sends nothing twice", () =>
  Effect.gen(function* () {
    const [sending, send] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    let failures = 0
    const sends: Array<number> = []
    const context = yield* start(
      (batch, broker) => {
        sends.push(batch.records.length)
        return sends.length === 1
          ? broker.publish(batch)
          : Deferred.succeed(sending, undefined).pipe(
              Effect.andThen(Deferred.await(send)),
              Effect.andThen(broker.publish(batch))
            )
      },
      (queue) => ({
        mark: (runs) => (failures++ < 2 ? Effect.die(new Error("broken on purpose")) : queue.mark(runs))
      })
    ).pipe(
      Effect.provideService(GatheringSettings, {
        longestMillis: 5,
        apartMillis: { busy: 0, calm: 0 },
        markMillis: 500
      })
    )
    yield* append(0)
    yield* published(1)
    yield* append(0)
    yield* Deferred.await(sending)
    yield* Counters.eventually(
      "the failed mark",
      Effect.sync(() => failures > 0)
    )
    yield* append(0)
    yield* Deferred.succeed(send, undefined)
    yield* Counters.drained
    assert.strictEqual(
      sends.reduce((sum, count) => sum + count, 0),
      3
    )
    yield* inOrder
    yield* Counters.eventually(
      "the lane to go on",
      Effect.map(Context.get(context, LaneWorkers).stopped, (waiting) => waiting.length === 0)
    )
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a failed fetch is repeated lane by lane; only the lane that fails alone stops", () =>
  Effect.gen(function* () {
    let isBroken = true
    const [hasBegun, goOn] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    const failed = new Set<string>()
    const logger = Logger.make(({ message }) => {
      const [, lane] = /^lane (\d+) failed/.exec(String(message)) ?? []
      if (lane !== undefined) failed.add(lane)
    })
    const context = yield* start(
      (batch, broker) => broker.publish(batch),
      (queue) => ({
        fetch: (parts) =>
          isBroken && parts.some(({ lane }) => lane === 8)
            ? Effect.die(new Error("broken on purpose"))
            : // While the first lane is fetched the others become ready, and are fetched together.
              Effect.andThen(
                parts[0]?.lane === 0
                  ? Effect.andThen(Deferred.succeed(hasBegun, undefined), Deferred.await(goOn))
                  : Effect.void,
                queue.fetch(parts)
              )
      })
    ).pipe(Effect.provideService(References.MinimumLogLevel, "Error"), Effect.provide(Logger.layer([logger])))
    const { stopped } = Context.get(context, LaneWorkers)
    yield* append(0)
    yield* Deferred.await(hasBegun)
    for (const lane of [16, 8, 1, 2]) yield* append(lane)
    yield* Deferred.succeed(goOn, undefined)
    yield* published(4)
    yield* Counters.eventually(
      "the lane to stop",
      Effect.map(stopped, (waiting) => waiting.length === 1 && waiting[0]?.lane === 8)
    )
    assert.deepStrictEqual([...failed], ["8"])
    isBroken = false
    yield* published(5)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a lost connection stops no lane: the turns back off once, and what is acknowledged is not sent again", () =>
  Effect.gen(function* () {
    const lost = new SqlError.SqlError({
      reason: new SqlError.ConnectionError({ cause: new Error("lost"), message: "lost" })
    })
    let failures = 0
    const sends: Array<number> = []
    const gate = yield* Deferred.make<void>()
    const context = yield* start(
      (batch, broker) => {
        sends.push(...lanesOf(batch))
        return Effect.andThen(Deferred.await(gate), broker.publish(batch))
      },
      (queue) => ({ mark: (runs) => (failures++ === 0 ? Effect.die(lost) : queue.mark(runs)) })
    )
    for (const lane of [0, 8, 16, 1]) yield* append(lane)
    yield* Deferred.succeed(gate, undefined)
    yield* Counters.drained
    assert.deepStrictEqual(
      sends.toSorted((one, other) => one - other),
      [0, 1, 8, 16]
    )
    assert.deepStrictEqual(yield* Context.get(context, LaneWorkers).stopped, [])
    const states = yield* (yield* Fibers).states
    assert.strictEqual(states.find(({ name }) => name === "dispatcher turns")?.restarts, 1)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

/** Refuses every batch of several records, and waits before each single one. */
const oneByOne = (gate: Deferred.Deferred<void>, asked: Deferred.Deferred<void>) =>
  ((batch, broker) =>
    batch.records.length > 1
      ? Effect.fail(new MessageRejected({ topic: batch.topic, partition: batch.partition, reason: "too large" }))
      : Deferred.succeed(asked, undefined).pipe(
          Effect.andThen(Deferred.await(gate)),
          Effect.andThen(broker.publish(batch))
        )) satisfies Parameters<typeof TestProcess.publishing>[0]

it.live("a stop lets the send end and marks it, and starts no further piece", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [gate, asked] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    yield* append(0, 4)
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* start(oneByOne(gate, asked))
        yield* Deferred.await(asked)
        // The stop has begun when the gate opens.
        yield* Effect.forkDetach(Effect.andThen(Effect.sleep("200 millis"), Deferred.succeed(gate, undefined)))
      })
    )
    assert.strictEqual(yield* Ledger.countEmbedded, 1)
    assert.strictEqual((yield* sql`SELECT 1 AS one FROM event_log`).length, 1)
    assert.deepStrictEqual(yield* Counters.queuedVersions(idIn(0)), [2, 3, 4])
  }).pipe(Effect.provide(writer))
)

it.live("after a lost session the send in flight is the last: no further piece is sent, nor the lane fetched", () =>
  Effect.gen(function* () {
    const [gate, asked] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    const held = yield* SubscriptionRef.make<ReadonlyArray<number>>(allLanes)
    const holds = (lane: number) => SubscriptionRef.getUnsafe(held).includes(lane)
    const ownership = Layer.succeed(Ownership, {
      join: () =>
        Effect.succeed({
          held: SubscriptionRef.get(held),
          changes: SubscriptionRef.changes(held),
          use: (_, effect) => Effect.asSome(effect),
          holds,
          enter: holds,
          leave: () => undefined,
          setAble: () => Effect.void
        })
    })
    yield* append(0, 4)
    yield* start(oneByOne(gate, asked)).pipe(Effect.provide(ownership))
    yield* Deferred.await(asked)
    yield* SubscriptionRef.set(held, [])
    yield* Deferred.succeed(gate, undefined)
    yield* Counters.eventually(
      "the send in flight to be marked",
      Effect.map(Counters.queuedVersions(idIn(0)), (versions) => versions.join() === "2,3,4")
    )
    assert.strictEqual(yield* Ledger.countEmbedded, 1)
    // The remaining events are sent when the lane is owned again.
    yield* SubscriptionRef.set(held, allLanes)
    yield* published(4)
    yield* inOrder
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a hot lane with a deep backlog delays no fresh event of another lane and partition", () =>
  Effect.gen(function* () {
    const permits = yield* Semaphore.make(0)
    const fetches: Array<ReadonlyArray<number>> = []
    const begun: Array<number> = []
    yield* Effect.addFinalizer(() => permits.release(100))
    yield* start(
      (batch, broker) => {
        begun.push(...lanesOf(batch))
        // Each send of the hot lane takes until the test allows its end.
        return batch.partition === 0 ? Effect.andThen(permits.take(1), broker.publish(batch)) : broker.publish(batch)
      },
      (queue) => ({
        fetch: (parts) => Effect.suspend(() => (fetches.push(parts.map(({ lane }) => lane)), queue.fetch(parts)))
      })
    ).pipe(Effect.provide(Layer.succeed(QueueSettings, { archive: true, batchSize: 4, batchBytes: 900_000 })))
    yield* append(0, 40)
    yield* permits.release(2)
    yield* Counters.eventually(
      "the third send of the hot lane",
      Effect.sync(() => begun.length === 3)
    )
    const before = fetches.length
    yield* append(1)
    yield* published(4 + 4 + 1)
    assert.deepStrictEqual(fetches[before], [1])
    assert.deepStrictEqual(begun, [0, 0, 0, 1])
    yield* permits.release(100)
    yield* Counters.drained
    yield* inOrder
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("while a new topic gets no answer, the rest of its lane is fetched at once", () =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>()
    let sends = 0
    // The guards would look at the lane again when the new topic's pause is over.
    const broker = Layer.effect(
      Broker,
      Effect.map(Broker, (real) =>
        Broker.of({
          ...real,
          ensureTopic: (topic, wanted) =>
            Effect.andThen(topic === "new" ? Deferred.await(gate) : Effect.void, real.ensureTopic(topic, wanted)),
          publish: (batch) =>
            batch.topic === "new" && sends++ === 0
              ? Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "away" }))
              : real.publish(batch)
        })
      )
    ).pipe(Layer.provide(TestProcess.broker))
    let wasReady = false
    // One poll finds the lane, and nothing else wakes it.
    const onePoll = Layer.effect(
      Queue,
      Effect.map(Queue, (queue) =>
        Queue.of({
          ...queue,
          ready: (views) =>
            Effect.map(queue.ready(views), (ready) => {
              if (wasReady) return []
              wasReady = ready.length > 0
              return ready
            })
        })
      )
    )
    // The first two are one fetch. The other topic's event is marked before the new topic's partitions are known.
    yield* Transaction.run(Effect.andThen(Ledger.append(idIn(0, "other"), 1, "new"), Ledger.append(idIn(0), 2)))
    yield* Layer.build(
      LaneWorkers.layer.pipe(
        Layer.provide(Layer.merge(Dispatcher.layer, LaneOwnership.layer)),
        Layer.provide(Layer.provideMerge(onePoll, Layer.merge(Dispatching.plainSteps, PollRequests.layer))),
        Layer.provide(broker),
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 })),
        Layer.provide(Layer.succeed(QueueSettings, { archive: true, batchSize: 2, batchBytes: 900_000 }))
      )
    )
    yield* Effect.addFinalizer(() => Deferred.succeed(gate, undefined))
    yield* Counters.eventually(
      "the other topic's event",
      Effect.map(Ledger.archived, (count) => count === 1)
    )
    yield* Deferred.succeed(gate, undefined)
    yield* published(2)
    yield* Counters.drained
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("also while a topic's partitions are unknown a head and its lane's batch are sent one after the other", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* append(0)
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* start(({ partition, topic }) =>
          Effect.fail(new MessageRejected({ topic, partition, reason: "too large" }))
        )
        yield* Counters.eventually(
          "the event to be held",
          Effect.map(sql`SELECT 1 AS one FROM outbox_holds`, (rows) => rows.length === 1)
        )
      })
    )
    yield* Refusals.dueNow
    yield* Transaction.run(Ledger.append(idIn(0, "other")))
    const [gate, areFound] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    let [underWay, most] = [0, 0]
    const broker = (layer: typeof TestProcess.broker) =>
      Layer.effect(
        Broker,
        Effect.map(Broker, (real) =>
          Broker.of({
            ...real,
            // Answers when the head was found, too.
            ensureTopic: (topic, wanted) => Effect.andThen(Deferred.await(areFound), real.ensureTopic(topic, wanted)),
            publish: (batch) =>
              batch.partition !== 0
                ? real.publish(batch)
                : Effect.acquireUseRelease(
                    Effect.sync(() => (most = Math.max(most, ++underWay))),
                    () => Effect.andThen(Deferred.await(gate), real.publish(batch)),
                    () => Effect.sync(() => underWay--)
                  )
          })
        )
      ).pipe(Layer.provide(layer))
    const decorated = Layer.merge(
      // The lane is fetched when its head is due, and not before.
      Layer.effect(
        Queue,
        Effect.map(Queue, (queue) => Queue.of({ ...queue, ready: () => Effect.succeed([]) }))
      ),
      Layer.effect(
        Holds,
        Effect.map(Holds, (holds) =>
          Holds.of({ ...holds, due: (views) => Effect.tap(holds.due(views), Deferred.succeed(areFound, undefined)) })
        )
      )
    )
    yield* Layer.build(
      Dispatching.over(Layer.provideMerge(decorated, TestProcess.dispatcherStepsOver(broker))).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 }))
      )
    )
    yield* Effect.addFinalizer(() => Deferred.succeed(gate, undefined))
    yield* Counters.eventually(
      "a send",
      Effect.sync(() => underWay > 0)
    )
    // All that was fetched before this one has reached its sender.
    yield* append(1)
    yield* published(1)
    yield* Deferred.succeed(gate, undefined)
    yield* published(3)
    assert.strictEqual(most, 1)
    yield* inOrder
  }).pipe(Effect.scoped, Effect.provide(writer))
)
