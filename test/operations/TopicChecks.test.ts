/** The findings about each setting, and when topics are checked. test/brokers/kafkajs/TopicChecks.test.ts reads settings from a real broker. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Ref, SubscriptionRef } from "effect"
import { TestClock } from "effect/testing"
import { Broker, type TopicInfo, TopicUnavailable } from "../../src/brokers/Broker.ts"
import { laneOf, partitionOf } from "../../src/outbox/Lane.ts"
import type { QueuedEvent } from "../../src/outbox/Queue.ts"
import { PartitionCounts } from "../../src/operations/PartitionCounts.ts"
import * as CheckedTopics from "../../src/operations/CheckedTopics.ts"
import { Publisher } from "../../src/outbox/Publisher.ts"
import { TopicChecks } from "../../src/operations/TopicChecks.ts"
import { examine, examineCount } from "../../src/operations/TopicFindings.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const day = 86_400_000
const needs = { maxEventBytes: 900_000, batchBytes: 900_000, inboxDays: 8 }

/** A topic without a finding. */
const sound = {
  topic: "orders",
  partitions: 8,
  maxMessageBytes: 1_048_588,
  retention: { compacts: false, millis: 7 * day, segmentMillis: day },
  compression: "uncompressed",
  replication: { copies: 3, minInSync: 2, uncleanElection: false }
} satisfies TopicInfo

const event: QueuedEvent = {
  lane: laneOf("a"),
  recordBytes: 100,
  seq: 1n,
  eventId: "01a1fd40-0000-7000-8000-000000000000",
  topic: "orders",
  eventType: "Counted",
  schemaVersion: 1,
  aggregateType: "Counter",
  aggregateId: "a",
  aggregateVersion: 1,
  occurredAt: "2026-01-01T12:00:00.000Z",
  traceId: "0".repeat(32),
  spanId: "0".repeat(16),
  data: "{}"
}

const said = (change: Partial<TopicInfo>, of: Partial<typeof needs> = {}) =>
  [...examineCount({ ...sound, ...change }, undefined), ...examine({ ...sound, ...change }, { ...needs, ...of })].map(
    ({ kind, sentence }) => `${kind}: ${sentence}`
  )

/** The first round of the periodic checks comes right after the check at the start. */
const firstLook = TestClock.adjust("1 second")

/** The checks of a start, and a publisher, over a broker that reports its topic as `info`. */
const watched = (info: Ref.Ref<TopicInfo>) =>
  TopicChecks.layerStart(["orders"]).pipe(
    Layer.provideMerge(CheckedTopics.layer),
    Layer.provideMerge(Publisher.layer),
    Layer.provideMerge(TopicChecks.layerNoDeps),
    Layer.provide(
      Layer.succeed(PartitionCounts, { noted: () => Effect.undefined, note: (_, found) => Effect.succeed(found) })
    ),
    Layer.provide(
      Layer.effect(
        Broker,
        Effect.map(SubscriptionRef.make(true), (available) =>
          Broker.of({
            name: "told",
            available,
            ensureTopic: () => Ref.get(info),
            publish: () => Effect.fail(new TopicUnavailable({ topic: "orders", reason: "it is another one now" })),
            consume: () => Effect.die("nothing is read here")
          })
        )
      )
    ),
    Layer.provide(Fibers.layer),
    Layer.provideMerge(TestProcess.quiet)
  )

/** A sound topic, which the test can change, and the kinds of its last findings. */
const watching = Effect.gen(function* () {
  const info = yield* Ref.make<TopicInfo>(sound)
  const context = yield* Layer.build(watched(info))
  const { reports } = Context.get(context, TopicChecks)
  return {
    info,
    kinds: Effect.map(reports, (all) => all.flatMap(({ findings }) => findings.map(({ kind }) => kind))),
    ...Context.get(context, Publisher)
  }
})

describe("TopicChecks", () => {
  it("a sound topic has no finding", () => {
    assert.deepStrictEqual(said({}), [])
    for (const partitions of [1, 2, 4, 16, 32, 64]) assert.deepStrictEqual(said({ partitions }), [])
  })

  it("a setting that the broker does not report is not checked", () => {
    assert.deepStrictEqual(examine({ topic: "t", partitions: 8, maxMessageBytes: 1_048_588 }, needs), [])
  })

  it("partitions that do not divide the lanes stop a topic, and the sentence names a count that does", () => {
    const [sentence, ...others] = said({ partitions: 12 })
    assert.match(
      sentence!,
      /^stops: it has 12 partitions: 64 lanes need a count that divides 64 .* or, once its consumers have read all of it, give it 16$/
    )
    assert.deepStrictEqual(others, [])
    assert.match(said({ partitions: 128 })[0]!, /^stops: it has 128 partitions/)
  })

  it("a topic that keeps batches as producers compress them is weak", () => {
    for (const compression of ["producer", "lz4"]) {
      const [sentence, ...others] = said({ compression })
      assert.match(sentence!, /^weak: compression\.type is .*--add-config compression\.type=uncompressed$/)
      assert.deepStrictEqual(others, [])
    }
  })

  it("compaction stops a topic, with or without deletion", () => {
    for (const millis of [7 * day, Infinity]) {
      const sentences = said({ retention: { compacts: true, millis, segmentMillis: day } }, { inboxDays: 0 })
      assert.strictEqual(sentences.length, 1)
      assert.match(
        sentences[0]!,
        /^stops: cleanup\.policy is to compact: .*--entity-name orders --add-config cleanup\.policy=delete$/
      )
    }
  })

  it("more acknowledgements than copies stop a topic; as many, or one of several, weaken it", () => {
    const replication = (copies: number, minInSync: number) =>
      said({ replication: { copies, minInSync, uncleanElection: false } }).map((sentence) => sentence.split(/[:,;]/, 2))
    assert.deepStrictEqual(replication(1, 2)[0], ["stops", " min.insync.replicas is 2"])
    assert.deepStrictEqual(replication(1, 1), [["weak", " it has one copy"]])
    assert.deepStrictEqual(replication(3, 1), [["weak", " min.insync.replicas is 1"]])
    assert.deepStrictEqual(replication(2, 2), [["weak", " min.insync.replicas is 2 of 2 copies"]])
    assert.deepStrictEqual(replication(5, 3), [])
  })

  it("an election that can drop acknowledged records weakens a topic that has copies to elect", () => {
    assert.match(said({ replication: { copies: 3, minInSync: 2, uncleanElection: true } })[0]!, /^weak: unclean/)
    assert.strictEqual(said({ replication: { copies: 1, minInSync: 1, uncleanElection: true } }).length, 1)
  })

  it("events larger than the topic's limit are a finding; batches larger than it are only halved", () => {
    assert.match(
      said({ maxMessageBytes: 100_000 })[0]!,
      /^oversize: max\.message\.bytes is 100000, and an event may take 900000 bytes \(OUTBOX_MAX_EVENT_BYTES\).* at most 100000/
    )
    assert.match(
      said({ maxMessageBytes: 950_000 }, { batchBytes: 1_000_000 })[0]!,
      /^weak: .*OUTBOX_BATCH_BYTES to at most 950000/
    )
    assert.deepStrictEqual(said({ maxMessageBytes: 900_000 }), [])
  })

  it("a topic that drops events by size weakens it", () => {
    const retention = { compacts: false, millis: 7 * day, segmentMillis: day }
    assert.match(
      said({ retention: { ...retention, bytes: 1_000_000 } })[0]!,
      /^weak: retention\.bytes is 1000000: Kafka drops/
    )
    assert.deepStrictEqual(said({ retention }), [])
  })

  it("a topic that keeps records for longer than the inbox keeps marks is unsafe, and the sentence names enough days", () => {
    const retention = (millis: number, segmentMillis: number, inboxDays: number) =>
      said({ retention: { compacts: false, millis, segmentMillis } }, { inboxDays })
    assert.match(
      retention(30 * day, day, 8)[0]!,
      /^unsafe: it keeps records for 30 days .* for 8 days .* to 31 or more/
    )
    assert.match(retention(Infinity, day, 8)[0]!, /^unsafe: it keeps records for ever.* to 0, which keeps them/)
    assert.match(retention(7 * day, 7 * day, 8)[0]!, /^weak: .* for 14 days .* to 14, or .*segment\.ms=86400000/)
    assert.deepStrictEqual(retention(30 * day, day, 31), [])
    assert.deepStrictEqual(retention(Infinity, day, 0), [])
    assert.match(retention(60_000, day, 8)[0]!, /^weak: retention\.ms is 60000: a consumer that is away for longer/)
  })

  it("for a broker without settings the sentence names only the service's own setting", () => {
    const { replication: _, ...embedded } = sound
    const [finding] = examine(embedded, { ...needs, inboxDays: 3 })
    assert.match(finding!.sentence, /set INBOX_RETENTION_DAYS to 8 or more$/)
  })

  it("the command in a sentence has the topic's name at the broker", () => {
    assert.include(said({ maxMessageBytes: 1, wireName: "shop.orders" })[0]!, "--entity-name shop.orders ")
  })

  it("more partitions than the lanes are spread over are a warning, fewer stop it, and both sentences say what to do", () => {
    const judged = (partitions: number, inUse: number) =>
      examineCount({ ...sound, partitions }, inUse).map(({ kind, sentence }) => `${kind}: ${sentence}`)
    assert.deepStrictEqual(judged(8, 8), [])
    assert.match(
      judged(16, 8)[0]!,
      /^weak: it has 16 partitions, and events go to the first 8, .* SET partitions = 16 WHERE topic = 'orders'/
    )
    assert.match(
      judged(4, 8)[0]!,
      /^stops: it has 4 partitions, and its lanes are spread over 8: .* SET partitions = 4 WHERE topic = 'orders'/
    )
  })

  it.effect(
    "publishing to a topic that is compacted later pauses at the next check, and resumes seconds after it was mended",
    () =>
      Effect.gen(function* () {
        const { info, kinds, prepare } = yield* watching
        assert.strictEqual(yield* prepare("orders"), 8)

        yield* firstLook
        yield* Ref.set(info, { ...sound, retention: { ...sound.retention, compacts: true } })
        // Between two rounds the broker is not asked.
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(yield* prepare("orders"), 8)
        yield* TestClock.adjust("4 minutes")
        assert.deepStrictEqual(yield* kinds, ["stops"])
        const error = yield* Effect.flip(prepare("orders"))
        assert.strictEqual(error._tag, "TopicUnavailable")
        assert.match(error.message, /^topic orders is unavailable: cleanup\.policy is to compact/)

        yield* Ref.set(info, sound)
        yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(yield* kinds, [])
        assert.strictEqual(yield* prepare("orders"), 8)
      })
  )

  it.effect("after a send that fails for its topic the topic is checked again before the next one", () =>
    Effect.gen(function* () {
      const { info, prepare, publish } = yield* watching
      assert.strictEqual(yield* prepare("orders"), 8)
      yield* firstLook
      // The topic is made anew with fewer partitions.
      yield* Ref.set(info, { ...sound, partitions: 12 })
      assert.strictEqual(yield* prepare("orders"), 8)
      assert.strictEqual(
        (yield* Effect.flip(
          publish({ topic: "orders", partition: partitionOf(laneOf("a"), 8), partitions: 8, events: [event] })
        )).message,
        "topic orders is unavailable: it is another one now"
      )
      assert.match((yield* Effect.flip(prepare("orders"))).message, /it has 12 partitions/)
    }).pipe(Effect.scoped)
  )

  it.effect(
    "an unsafe topic is checked again within seconds, too: health shows no finding that was mended long ago",
    () =>
      Effect.gen(function* () {
        const { info, kinds, prepare } = yield* watching
        yield* firstLook
        yield* Ref.set(info, { ...sound, retention: { ...sound.retention, millis: 30 * day } })
        yield* TestClock.adjust("5 minutes")
        assert.deepStrictEqual(yield* kinds, ["unsafe"])
        assert.strictEqual(yield* prepare("orders"), 8)
        yield* Ref.set(info, sound)
        yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(yield* kinds, [])
        // The same holds for a topic that is not named at the start, once events were sent to it.
        yield* Ref.set(info, { ...sound, retention: { ...sound.retention, millis: 30 * day } })
        assert.strictEqual(yield* prepare("refunds"), 8)
        assert.deepStrictEqual(yield* kinds, ["unsafe"])
        yield* Ref.set(info, sound)
        yield* TestClock.adjust("10 seconds")
        assert.deepStrictEqual(yield* kinds, [])
      })
  )

  it.live("the embedded broker's topics have no finding", () =>
    Effect.gen(function* () {
      const checks = yield* TopicChecks
      assert.strictEqual((yield* Broker).name, "embedded")
      const { findings, info } = yield* checks.inspect("counters")
      assert.deepStrictEqual(findings, [])
      assert.strictEqual(info.retention?.millis, 7 * day)
      assert.deepStrictEqual(yield* checks.reports, [{ topic: "counters", findings: [] }])
    }).pipe(
      Effect.provide(
        TopicChecks.layer.pipe(
          Layer.provideMerge(TestProcess.broker),
          Layer.provideMerge(TestProcess.outbox),
          Layer.provideMerge(TestDatabase.layer)
        )
      )
    )
  )
})
