/**
 * The contract of `Broker` as tests, for every implementation: `brokerContract("KafkaBroker", harness)` runs them.
 *
 * The tests use the service and a small harness only. Each test has topics and groups of its own, and waits for signals instead of
 * sleeping. So the suite fits a broker whose rebalance takes milliseconds, and one whose rebalance takes seconds.
 */
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, type Layer, Queue, Schedule, type Scope, SubscriptionRef } from "effect"
import { randomUUID } from "node:crypto"
import type { BrokerRecord, Slice } from "../../src/brokers/Broker.ts"
import {
  BrokerHarness,
  consume,
  countOf,
  newMember,
  newTopic,
  numbers,
  publish,
  publishStubbornly,
  read,
  record,
  roundsUntil,
  type Seen,
  textOf,
  within
} from "./BrokerHarness.ts"

/** A test may use up several waits. */
const testTimeoutMillis = 120_000

/** The suite. `harness` is built once for it. */
export const brokerContract = (name: string, harness: Layer.Layer<BrokerHarness>): void =>
  layer(harness, { excludeTestServices: true, timeout: "120 seconds" })(`${name} keeps the broker's contract`, (it) => {
    const promise = (sentence: string, test: () => Effect.Effect<void, unknown, BrokerHarness | Scope.Scope>) =>
      it.effect(sentence, test, testTimeoutMillis)

    promise(
      "records with one key arrive in the order in which they were appended, in slices of the size asked for",
      () =>
        Effect.gen(function* () {
          const member = yield* newMember
          const { group, topic } = yield* newTopic(member)
          for (const value of numbers(0, 10)) yield* publish(member, topic, [value])
          yield* publish(member, topic, numbers(10, 20))
          const lengths: Array<number> = []
          const reader = yield* read(
            member,
            { topic, group, sliceSize: 7 },
            {
              commits: (slice) => lengths.push(slice.records.length) > 0
            }
          )
          const seen = yield* reader.take(30)
          assert.deepStrictEqual(
            seen.map((one) => textOf(one.record)),
            numbers(0, 30)
          )
          assert.isAtMost(Math.max(...lengths), 7)
          yield* publish(member, topic, ["last"])
          assert.deepStrictEqual(
            (yield* reader.take(1)).map((one) => textOf(one.record)),
            ["last"]
          )
        })
    )

    promise("a batch takes consecutive offsets, is whole, and the next one follows it", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const { group, topic } = yield* newTopic(member)
        const first = yield* publish(member, topic, numbers(0, 50))
        const second = yield* publish(member, topic, numbers(50, 3))
        assert.deepStrictEqual([first.baseOffset, second.baseOffset], [0n, 50n])
        const reader = yield* read(member, { topic, group })
        const seen = yield* reader.take(53)
        assert.deepStrictEqual(
          seen.map((one) => one.record.offset),
          seen.map((_, index) => BigInt(index))
        )
        assert.deepStrictEqual(
          seen.map((one) => textOf(one.record)),
          numbers(0, 53)
        )
      })
    )

    promise("key, value bytes and headers arrive unchanged", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const { group, topic } = yield* newTopic(member)
        const headers = Object.fromEntries(
          numbers(0, 100).map((n) => [`header-${n}`, `value ${n} "quoted" \\ ünïcode 🦊`])
        )
        const sent: [BrokerRecord, ...Array<BrokerRecord>] = [
          { key: "Schlüssel 鍵 🔑", value: Uint8Array.from({ length: 256 }, (_, index) => index), headers },
          { key: "empty", value: new Uint8Array(), headers: { empty: "" } },
          { key: "", value: Uint8Array.of(0), headers: {} },
          { key: "large", value: Uint8Array.from({ length: 300_000 }, (_, index) => (index * 31) % 251), headers: {} }
        ]
        yield* member.broker.publish({ topic, partition: 0, records: sent })
        const reader = yield* read(member, { topic, group })
        const seen = yield* reader.take(sent.length)
        assert.deepStrictEqual<unknown>(
          seen.map(({ record: { headers, key, value } }) => ({ key, value: value && Uint8Array.from(value), headers })),
          sent
        )
      })
    )

    promise("a new group starts at the first record, and each group sees all of them", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const { group, topic } = yield* newTopic(member)
        yield* publish(member, topic, numbers(0, 5))
        const one = yield* read(member, { topic, group })
        yield* one.take(5)
        const other = yield* read(member, { topic, group: `${group}-other` })
        yield* publish(member, topic, numbers(5, 5))
        assert.deepStrictEqual(
          (yield* other.take(10)).map((seen) => textOf(seen.record)),
          numbers(0, 10)
        )
        assert.deepStrictEqual(
          (yield* one.take(5)).map((seen) => textOf(seen.record)),
          numbers(5, 5)
        )
      })
    )

    promise("records that were not committed are delivered again to the next member", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const { group, topic } = yield* newTopic(member)
        yield* publish(member, topic, numbers(0, 5))
        const forgetful = yield* read(member, { topic, group }, { commits: () => false })
        yield* forgetful.take(5)
        yield* forgetful.stop
        const next = yield* read(yield* newMember, { topic, group })
        assert.deepStrictEqual(
          (yield* next.take(5)).map((seen) => textOf(seen.record)),
          numbers(0, 5)
        )
      })
    )

    promise("committed records are not delivered again, and a commit covers all earlier ones", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const { group, topic } = yield* newTopic(member)
        yield* publish(member, topic, numbers(0, 5))
        const reader = yield* read(
          member,
          { topic, group, sliceSize: 1 },
          {
            commits: (slice) => slice.records[0].offset === 2n
          }
        )
        yield* reader.take(5)
        yield* reader.stop
        const next = yield* read(yield* newMember, { topic, group })
        assert.deepStrictEqual(
          (yield* next.take(2)).map((seen) => textOf(seen.record)),
          ["3", "4"]
        )
      })
    )

    promise(
      "a handler that fails gets the same records again and nothing after them, while other partitions go on",
      () =>
        Effect.gen(function* () {
          const member = yield* newMember
          const { group, topic } = yield* newTopic(member, 2)
          const healed = yield* Deferred.make<void>()
          const failedTwice = yield* Deferred.make<void>()
          const otherDone = yield* Deferred.make<void>()
          const allDone = yield* Deferred.make<void>()
          const handed: Array<string> = []
          let failures = 0
          yield* publish(member, topic, numbers(0, 3), 0)
          yield* publish(member, topic, numbers(0, 5), 1)
          yield* consume(member, { topic, group, sliceSize: 1 }, (slice) =>
            Effect.gen(function* () {
              const value = textOf(slice.records[0])
              if (slice.partition === 0) {
                handed.push(value)
                if (value === "0" && !(yield* Deferred.isDone(healed))) {
                  if (++failures >= 2) yield* Deferred.succeed(failedTwice, undefined)
                  return yield* Effect.fail("not yet")
                }
                if (value === "2") yield* Deferred.succeed(allDone, undefined)
              } else if (value === "4") yield* Deferred.succeed(otherDone, undefined)
              yield* slice.commit
            })
          )
          yield* within("the other partition", Deferred.await(otherDone))
          yield* within("two failures", Deferred.await(failedTwice))
          yield* Deferred.succeed(healed, undefined)
          yield* within("the rest of the partition", Deferred.await(allDone))
          const attempts = handed.filter((value) => value === "0").length
          assert.isAtLeast(attempts, 3)
          assert.deepStrictEqual(handed, [...Array.from({ length: attempts }, () => "0"), "1", "2"])
        })
    )

    promise("a member that joins gets partitions, and those of a member that leaves go to the others", () =>
      Effect.gen(function* () {
        const [one, two] = [yield* newMember, yield* newMember]
        const { group, topic } = yield* newTopic(one, 4)
        const queue = yield* Queue.unbounded<Seen>()
        yield* read(one, { topic, group }, { reader: "one", into: queue })
        yield* within(
          "the first member to read all",
          roundsUntil(one, topic, 4, queue, (owners) => countOf(owners, "one") === 4)
        )
        const leaver = yield* read(two, { topic, group }, { reader: "two", into: queue })
        yield* within(
          "two partitions each",
          roundsUntil(one, topic, 4, queue, (owners) => countOf(owners, "one") === 2 && countOf(owners, "two") === 2)
        )
        yield* leaver.stop
        yield* within(
          "the first member to read all again",
          roundsUntil(one, topic, 4, queue, (owners) => countOf(owners, "one") === 4)
        )
      })
    )

    promise("a member that dies is replaced", () =>
      Effect.gen(function* () {
        const [one, two] = [yield* newMember, yield* newMember]
        const { group, topic } = yield* newTopic(one, 4)
        const queue = yield* Queue.unbounded<Seen>()
        yield* read(one, { topic, group }, { reader: "one", into: queue })
        yield* read(two, { topic, group }, { reader: "two", into: queue })
        yield* within(
          "both to read",
          roundsUntil(one, topic, 4, queue, (owners) => countOf(owners, "two") === 2)
        )
        yield* two.kill
        yield* within(
          "the survivor to read all",
          roundsUntil(one, topic, 4, queue, (owners) => countOf(owners, "one") === 4)
        )
      })
    )

    promise("a commit of an old owner succeeds and changes nothing: the new owner's offset stays", () =>
      Effect.gen(function* () {
        const [old, next] = [yield* newMember, yield* newMember]
        const { group, topic } = yield* newTopic(old, 2)
        const stale: Array<Slice> = []
        for (const partition of [0, 1]) yield* publish(old, topic, numbers(0, 3), partition)
        const first = yield* read(old, { topic, group, sliceSize: 1 }, { commits: (slice) => stale.push(slice) < 0 })
        yield* first.take(6)
        // A partition moves, and its new owner reads it from the start, because nothing is committed.
        const second = yield* read(
          next,
          { topic, group, sliceSize: 1 },
          {
            commits: (slice) => slice.records[0].offset < 2n
          }
        )
        const moved = (yield* second.take(3))[0]!.partition
        // A late commit counts neither below the new owner's offset nor above it.
        for (const offset of [0n, 2n]) {
          const slice = stale.find((one) => one.partition === moved && one.records[0].offset === offset)
          yield* within("the old owner's commit", slice!.commit)
        }
        yield* first.stop
        yield* second.stop
        const third = yield* read(yield* newMember, { topic, group })
        yield* publish(next, topic, ["marker"], moved)
        const seen = yield* third.takeUntil("marker", moved)
        assert.deepStrictEqual(
          seen.filter((one) => one.partition === moved).map((one) => textOf(one.record)),
          ["2", "marker"]
        )
      })
    )

    promise("a member continues after a restart of the broker, and no record is lost", () =>
      Effect.gen(function* () {
        const { restartBroker } = yield* BrokerHarness
        const member = yield* newMember
        const { group, topic } = yield* newTopic(member)
        const reader = yield* read(member, { topic, group, sliceSize: 3 }, { tells: "first" })
        yield* publish(member, topic, numbers(0, 10))
        yield* reader.take(10)
        const publisher = yield* Effect.forkScoped(
          Effect.forEach(numbers(10, 10), (value) => publishStubbornly(member, topic, [value]))
        )
        yield* within("the restart", restartBroker)
        yield* within("the publisher", Fiber.join(publisher))
        yield* publishStubbornly(member, topic, ["last"])
        const seen = (yield* reader.takeUntil("last")).map((one) => textOf(one.record))
        // Unacknowledged appends and uncommitted slices may be delivered twice, so only first deliveries are compared.
        assert.deepStrictEqual(
          [...new Set(seen)].filter((value) => Number(value) >= 10 || value === "last"),
          [...numbers(10, 10), "last"]
        )
        yield* reader.stop
        const next = yield* read(yield* newMember, { topic, group })
        yield* publish(member, topic, ["marker"])
        const after = (yield* next.takeUntil("marker")).map((one) => textOf(one.record))
        assert.notInclude(after, "0", "the place from before the restart stands")
        assert.isTrue(yield* SubscriptionRef.get(member.broker.available), "the broker is known to be back")
      })
    )

    promise("a member can ask whether it reaches the broker", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const { reach } = member.broker
        // The embedded broker is reachable wherever the database is, and the model broker fails for all members at once.
        if (reach === undefined) return assert.notStrictEqual(member.broker.name, "kafka")
        const { topic } = yield* newTopic(member)
        for (const one of [topic, `${topic}-unknown`]) {
          yield* within("an answer", Effect.retry(reach(one), Schedule.spaced("200 millis")))
        }
        yield* member.kill
        const error = yield* within("the end of its patience", Effect.flip(reach(topic)))
        assert.strictEqual(error._tag, "BrokerUnavailable")
        assert.isFalse(yield* SubscriptionRef.get(member.broker.available))
        const other = yield* newMember
        yield* within("an answer", Effect.retry(other.broker.reach!(topic), Schedule.spaced("200 millis")))
      })
    )

    promise("a record that is too large is refused, and nothing of its batch is appended", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const { info, topic } = yield* newTopic(member)
        const large = { key: "large", value: new Uint8Array(info.maxMessageBytes + 1).fill(7), headers: {} }
        const error = yield* Effect.flip(
          member.broker.publish({ topic, partition: 0, records: [record("before"), large, record("after")] })
        )
        assert.strictEqual(error._tag, "MessageRejected")
        const { baseOffset } = yield* publish(member, topic, ["small"])
        assert.strictEqual(baseOffset, 0n)
      })
    )

    promise("a batch that is too large together is refused, though each of its records would fit", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const { info, topic } = yield* newTopic(member)
        const third = { key: "third", value: new Uint8Array(Math.ceil(info.maxMessageBytes / 3)).fill(7), headers: {} }
        const error = yield* Effect.flip(member.broker.publish({ topic, partition: 0, records: [third, third, third] }))
        assert.strictEqual(error._tag, "MessageRejected")
        const { baseOffset } = yield* member.broker.publish({ topic, partition: 0, records: [third, third] })
        assert.strictEqual(baseOffset, 0n)
      })
    )

    promise("an unknown topic is unavailable, to publish and to consume", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const topic = `missing-${randomUUID()}`
        const publishError = yield* within("a refusal", Effect.flip(publish(member, topic, ["0"])))
        assert.strictEqual(publishError._tag, "TopicUnavailable")
        const consumeError = yield* within(
          "a refusal",
          Effect.flip(member.broker.consume({ topic, group: `${topic}-group`, sliceSize: 1 }, () => Effect.void))
        )
        assert.strictEqual(consumeError._tag, "TopicUnavailable")
      })
    )

    promise("an existing topic keeps its partition count", () =>
      Effect.gen(function* () {
        const [one, two] = [yield* newMember, yield* newMember]
        const { info, topic } = yield* newTopic(one, 2)
        assert.deepStrictEqual(yield* two.broker.ensureTopic(topic, 4), info)
        assert.strictEqual(info.partitions, 2)
        assert.isAbove(info.maxMessageBytes, 0)
      })
    )

    promise("batches that are published to one partition at once stay whole", () =>
      Effect.gen(function* () {
        const members = [yield* newMember, yield* newMember]
        const { group, topic } = yield* newTopic(members[0]!)
        const [publishers, batches, size] = [6, 5, 4]
        const acks = yield* Effect.forEach(
          Array.from({ length: publishers }, (_, publisher) => publisher),
          (publisher) =>
            Effect.forEach(numbers(0, batches), (batch) => {
              const name = `${publisher}.${batch}`
              return publish(
                members[publisher % 2]!,
                topic,
                Array.from({ length: size }, () => name)
              ).pipe(Effect.map(({ baseOffset }) => ({ name, baseOffset })))
            }),
          { concurrency: "unbounded" }
        )
        const reader = yield* read(members[0]!, { topic, group })
        const seen = yield* reader.take(publishers * batches * size)
        for (const { baseOffset, name } of acks.flat()) {
          const batch = seen.slice(Number(baseOffset), Number(baseOffset) + size).map((one) => textOf(one.record))
          assert.deepStrictEqual(
            batch,
            Array.from({ length: size }, () => name)
          )
        }
      })
    )

    promise("an interrupted consumer waits for the slice in flight", () =>
      Effect.gen(function* () {
        const member = yield* newMember
        const { group, topic } = yield* newTopic(member)
        const started = yield* Deferred.make<void>()
        const goOn = yield* Deferred.make<void>()
        const story: Array<string> = []
        yield* publish(member, topic, numbers(0, 3))
        const fiber = yield* consume(member, { topic, group, sliceSize: 1 }, (slice) =>
          Deferred.succeed(started, undefined).pipe(
            Effect.andThen(Deferred.await(goOn)),
            Effect.andThen(slice.commit),
            Effect.andThen(Effect.sync(() => story.push(`handled ${textOf(slice.records[0])}`))),
            Effect.onInterrupt(() => Effect.sync(() => story.push("cut off")))
          )
        )
        yield* within("the handler", Deferred.await(started))
        const ended = yield* Effect.forkScoped(
          Fiber.interrupt(fiber).pipe(Effect.andThen(Effect.sync(() => story.push("ended"))))
        )
        // Time for a wrong interruption to show. The test's verdict does not depend on its length.
        yield* Effect.sleep("50 millis")
        yield* Deferred.succeed(goOn, undefined)
        yield* within("the consumer's end", Fiber.join(ended))
        assert.deepStrictEqual(story, ["handled 0", "ended"])
        const next = yield* read(yield* newMember, { topic, group })
        assert.deepStrictEqual(
          (yield* next.take(2)).map((seen) => textOf(seen.record)),
          ["1", "2"]
        )
      })
    )
  })
