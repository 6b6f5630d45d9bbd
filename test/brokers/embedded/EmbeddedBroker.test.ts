import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer, Queue, References, Schedule, SubscriptionRef } from "effect"
import type { BrokerRecord, Slice } from "../../../src/brokers/Broker.ts"
import * as EmbeddedBroker from "../../../src/brokers/embedded/EmbeddedBroker.ts"
import { recordBytes } from "../../../src/brokers/Envelope.ts"
import { ControlConnection } from "../../../src/platform/ControlConnection.ts"
import { brokerContract } from "../../contracts/Broker.ts"
import { progressContract } from "../../contracts/GroupProgress.ts"
import { topicReaderContract } from "../../contracts/TopicReader.ts"
import {
  consume,
  newTopic,
  numbers,
  publish,
  publishStubbornly,
  read,
  record,
  records,
  textOf,
  within
} from "../../contracts/BrokerHarness.ts"
import { eventually } from "../../support/Counters.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as EmbeddedMember from "./EmbeddedMember.ts"

brokerContract("EmbeddedBroker", EmbeddedMember.harness)
progressContract("EmbeddedBroker", EmbeddedMember.harness)
topicReaderContract("EmbeddedBroker", EmbeddedMember.harness)

const member = (settings: Parameters<typeof EmbeddedMember.make>[1] = {}) =>
  Effect.flatMap(TestDatabase, ({ url }) => EmbeddedMember.make(url, settings))

/** A lock with which a test delays a commit: the trigger below waits for it. */
const slowCommitLock = 4_711

/** Commits of batches with the key `slow` wait for {@link slowCommitLock} while they hold all locks of the append. */
const makeCommitsSlow = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  yield* sql.unsafe(`CREATE FUNCTION wait_for_the_test() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock_shared(${slowCommitLock}); RETURN NULL; END $$`)
  yield* sql.unsafe(`CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON broker_log DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.record_key = 'slow') EXECUTE FUNCTION wait_for_the_test()`)
})

/** Waits until that many backends of the test's database wait for a lock. */
const blocked = (count: number) =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    yield* within(
      `${count} waiting backends`,
      sql`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`.pipe(
        Effect.repeat({ until: (rows) => rows.length === count, schedule: Schedule.spaced("10 millis") })
      )
    )
  })

layer(TestDatabase.layerPool.pipe(Layer.provideMerge(Layer.succeed(References.MinimumLogLevel, "Fatal"))), {
  excludeTestServices: true
})("EmbeddedBroker", (it) => {
  it.effect("offset order is commit order: no record appears below an offset that a reader has seen", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      const { broker, kill } = yield* member()
      const { group, topic } = yield* newTopic({ broker, kill })
      const reader = yield* read({ broker, kill }, { topic, group })
      yield* makeCommitsSlow
      const slow = yield* sql.reserve
      yield* slow.executeUnprepared("SELECT pg_advisory_lock($1::int4)", [slowCommitLock], undefined)
      const late = yield* Effect.forkScoped(
        broker.publish({ topic, partition: 0, records: [record("late", "slow"), record("late", "slow")] })
      )
      yield* blocked(1)
      // The late append has its offsets already. The next one must wait, and not commit before it.
      const next = yield* Effect.forkScoped(publish({ broker, kill }, topic, ["next"]))
      yield* blocked(2)
      assert.deepStrictEqual(yield* sql`SELECT record_offset FROM broker_log WHERE topic = ${topic}`, [])
      yield* slow.executeUnprepared("SELECT pg_advisory_unlock($1::int4)", [slowCommitLock], undefined)
      assert.deepStrictEqual(
        [yield* Fiber.join(late), yield* Fiber.join(next)],
        [{ baseOffset: 0n }, { baseOffset: 2n }]
      )
      assert.deepStrictEqual(
        (yield* reader.take(3)).map((seen) => textOf(seen.record)),
        ["late", "late", "next"]
      )
    }).pipe(Effect.scoped)
  )

  it.effect("a late commit of a zombie changes nothing", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      const [zombie, heir] = [yield* member(), yield* member()]
      const { group, topic } = yield* newTopic(zombie)
      yield* publish(heir, topic, numbers(0, 5))
      const slices = yield* Queue.unbounded<Slice>()
      yield* consume(zombie, { topic, group, sliceSize: 5 }, (slice) =>
        Effect.andThen(Queue.offer(slices, slice), Effect.never)
      )
      const slice = yield* within("the zombie's slice", Queue.take(slices))
      // While its request is in flight, its session times out, and another member takes over.
      yield* zombie.proxy.hold()
      const commit = yield* Effect.forkScoped(slice.commit)
      // The heir has committed less than the zombie is about to: only its fencing token keeps the zombie's offset out.
      const commits = ({ records: [first] }: Slice) => first.offset === 0n
      const reader = yield* read(heir, { topic, group, sliceSize: 1 }, { commits })
      yield* reader.take(5)
      yield* zombie.proxy.pass
      yield* within("the zombie's commit", Fiber.join(commit))
      const rows = yield* sql<{ readonly next_offset: bigint; readonly generation: bigint }>`
        SELECT next_offset, generation FROM broker_offsets WHERE consumer_group = ${group}`
      assert.strictEqual(rows[0]?.next_offset, 1n)
      assert.isAtLeast(Number(rows[0]?.generation), 2)
    })
  )

  it.effect("a fenced owner continues from the group's offset once it owns the partition again", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      const one = yield* member({ pollMillis: 50 })
      const { group, topic } = yield* newTopic(one)
      const reader = yield* read(one, { topic, group })
      yield* publish(one, topic, ["0"])
      yield* reader.take(1)
      // As another owner would have committed meanwhile.
      yield* sql`UPDATE broker_offsets SET generation = generation + 1, next_offset = 0 WHERE consumer_group = ${group}`
      yield* publish(one, topic, ["1"])
      const seen = (yield* reader.take(3)).map((each) => textOf(each.record))
      assert.deepStrictEqual(seen, ["1", "0", "1"])
      const place = sql<{
        readonly next_offset: bigint
      }>`SELECT next_offset FROM broker_offsets WHERE consumer_group = ${group}`
      assert.strictEqual((yield* place)[0]?.next_offset, 2n)
    })
  )

  it.effect("a member that loses its session interrupts its slice, and the slice is delivered again", () =>
    Effect.gen(function* () {
      const one = yield* member()
      const control = Context.get(one.context, ControlConnection)
      const { group, topic } = yield* newTopic(one)
      const [started, cutOff, again] = [
        yield* Deferred.make<void>(),
        yield* Deferred.make<void>(),
        yield* Deferred.make<void>()
      ]
      yield* publish(one, topic, ["0"])
      yield* consume(one, { topic, group }, () =>
        Effect.gen(function* () {
          if (yield* Deferred.isDone(cutOff)) return yield* Deferred.succeed(again, undefined)
          yield* Deferred.succeed(started, undefined)
          return yield* Effect.onInterrupt(Effect.never, () => Deferred.succeed(cutOff, undefined))
        })
      )
      yield* within("the handler", Deferred.await(started))
      const session = yield* SubscriptionRef.get(control.session)
      const sql = yield* PgClient.PgClient
      yield* sql`SELECT pg_terminate_backend(${session!.backendPid})`
      yield* within("the interruption", Deferred.await(cutOff))
      yield* within("the slice again", Deferred.await(again))
    })
  )

  it.effect("a commit never moves the group's offset back", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      const one = yield* member()
      const { group, topic } = yield* newTopic(one)
      const slices: Array<Slice> = []
      yield* publish(one, topic, numbers(0, 3))
      const reader = yield* read(one, { topic, group, sliceSize: 1 }, { commits: (slice) => slices.push(slice) < 0 })
      yield* reader.take(3)
      yield* slices[2]!.commit
      yield* slices[0]!.commit
      assert.deepStrictEqual(yield* sql`SELECT next_offset FROM broker_offsets WHERE consumer_group = ${group}`, [
        { next_offset: 3n }
      ])
    })
  )

  it.effect("an append of another process wakes a reader without a poll", () =>
    Effect.gen(function* () {
      // The next poll would come after this test's time limit.
      const [one, two] = [yield* member({ pollMillis: 600_000 }), yield* member()]
      // A wake-up that is sent by a process without a session, or to one, is lost.
      for (const { context } of [one, two]) {
        const { session } = Context.get(context, ControlConnection)
        yield* eventually(
          "a control session",
          Effect.map(SubscriptionRef.get(session), (found) => found !== undefined)
        )
      }
      const { group, topic } = yield* newTopic(one)
      const reader = yield* read(one, { topic, group })
      for (const value of numbers(0, 3)) {
        yield* publish(two, topic, [value])
        assert.deepStrictEqual(
          (yield* reader.take(1)).map((seen) => textOf(seen.record)),
          [value]
        )
      }
    })
  )

  it.effect("a slice is bounded in bytes as well as in records", () =>
    Effect.gen(function* () {
      const one = yield* member()
      const { group, topic } = yield* newTopic(one)
      const large: BrokerRecord = { key: "large", value: new Uint8Array(900_000), headers: {} }
      for (let count = 0; count < 10; count++) yield* one.broker.publish({ topic, partition: 0, records: [large] })
      const lengths: Array<number> = []
      const reader = yield* read(
        one,
        { topic, group, sliceSize: 100 },
        { commits: (slice) => lengths.push(slice.records.length) > 0 }
      )
      yield* reader.take(10)
      assert.deepStrictEqual(lengths, [2, 2, 2, 2, 2])
    })
  )

  it.effect("an append does not join the caller's open transaction", () =>
    Effect.gen(function* () {
      const one = yield* member()
      const { topic } = yield* newTopic(one)
      const sql = yield* PgClient.PgClient.pipe(Effect.provide(one.context))
      const result = yield* Effect.exit(
        sql.withTransaction(Effect.andThen(publish(one, topic, ["0"]), Effect.fail("rolled back")))
      )
      assert.strictEqual(result._tag, "Failure")
      assert.deepStrictEqual(yield* publish(one, topic, ["1"]), { baseOffset: 1n })
    })
  )

  it.effect("text that Postgres can't store is a rejected message, and a missing partition an unavailable topic", () =>
    Effect.gen(function* () {
      const one = yield* member()
      const { info, topic } = yield* newTopic(one, 2)
      const room = info.maxMessageBytes - recordBytes(record(""))
      const largest = { ...record(""), value: new Uint8Array(room) }
      const send = (batch: BrokerRecord, partition = 0) => one.broker.publish({ topic, partition, records: [batch] })
      assert.deepStrictEqual(yield* send(largest), { baseOffset: 0n })
      const tagOf = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
        Effect.map(Effect.flip(effect), (error) => error._tag)
      assert.strictEqual(yield* tagOf(send({ ...largest, value: new Uint8Array(room + 1) })), "MessageRejected")
      assert.strictEqual(yield* tagOf(send(record("value", "NUL \0 in a key"))), "MessageRejected")
      assert.strictEqual(yield* tagOf(send(record("value"), 2)), "TopicUnavailable")
      assert.strictEqual(yield* tagOf(one.broker.ensureTopic("no spaces please", 1)), "TopicUnavailable")
      assert.strictEqual(yield* tagOf(one.broker.ensureTopic("no-partitions", 0)), "TopicUnavailable")
      assert.deepStrictEqual(yield* send({ ...record("value"), headers: { odd: "NUL \0" } }), { baseOffset: 1n })
    })
  )

  it.effect("a consumer that ends waits for a hanging handler only as long as its grace", () =>
    Effect.gen(function* () {
      const one = yield* member({ graceMillis: 100 })
      const { group, topic } = yield* newTopic(one)
      const [started, cutOff] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      yield* publish(one, topic, ["0"])
      const fiber = yield* consume(one, { topic, group }, () =>
        Deferred.succeed(started, undefined).pipe(
          Effect.andThen(Effect.never),
          Effect.onInterrupt(() => Deferred.succeed(cutOff, undefined))
        )
      )
      yield* within("the handler", Deferred.await(started))
      yield* within("the consumer's end", Fiber.interrupt(fiber))
      assert.isTrue(yield* Deferred.isDone(cutOff))
    })
  )

  it.effect("an outage and its end show in `available`", () =>
    Effect.gen(function* () {
      const one = yield* member()
      const { topic } = yield* newTopic(one)
      assert.isTrue(yield* SubscriptionRef.get(one.broker.available))
      yield* one.proxy.refuse
      yield* one.proxy.reset
      const error = yield* within("the refusal", Effect.flip(publish(one, topic, ["0"])))
      assert.strictEqual(error._tag, "BrokerUnavailable")
      assert.isFalse(yield* SubscriptionRef.get(one.broker.available))
      yield* one.proxy.pass
      // A connection attempt that began before the restart may fail after it.
      yield* publishStubbornly(one, topic, ["1"])
      assert.isTrue(yield* SubscriptionRef.get(one.broker.available))
    })
  )

  it.effect("retention deletes old records from each partition's start, and readers continue after them", () =>
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      const one = yield* member()
      const { group, topic } = yield* newTopic(one, 2)
      // More rows than two batches of a cleanup.
      yield* one.broker.publish({ topic, partition: 0, records: records(numbers(0, 2_500)) })
      yield* one.broker.publish({ topic, partition: 1, records: records(numbers(0, 10)) })
      yield* sql`
        UPDATE broker_log SET appended_at = clock_now() - interval '3 days 1 minute'
        WHERE topic = ${topic} AND partition = 0 AND record_offset < 2100`
      // The record is old, but a younger one precedes it.
      yield* sql`
        UPDATE broker_log SET appended_at = clock_now() - interval '3 days 1 minute'
        WHERE topic = ${topic} AND partition = 1 AND record_offset = 5`
      assert.strictEqual(yield* EmbeddedBroker.dropExpired(0), 0)
      assert.strictEqual(yield* EmbeddedBroker.dropExpired(3), 2_100)
      assert.strictEqual(yield* EmbeddedBroker.dropExpired(3), 0)
      const reader = yield* read(one, { topic, group })
      const seen = yield* reader.take(410)
      assert.deepStrictEqual(
        seen.filter((each) => each.partition === 0).map((each) => each.record.offset),
        Array.from({ length: 400 }, (_, index) => BigInt(2_100 + index))
      )
      assert.deepStrictEqual(yield* publish(one, topic, ["next"]), { baseOffset: 2_500n })
    })
  )
})
