/** The contract of `TopicReader` as tests, for every broker that has one: `topicReaderContract("KafkaBroker", harness)` runs them. */
import { assert, layer } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import type { TopicSlice } from "../../src/brokers/TopicReader.ts"
import {
  BrokerHarness,
  type Member,
  newMember,
  newTopic,
  numbers,
  publish,
  read,
  textOf,
  within
} from "./BrokerHarness.ts"

const testTimeoutMillis = 120_000

const readerOf = ({ topics }: Member) => {
  if (topics === undefined) throw new Error("this harness has members without a reader of topics")
  return topics
}

/** Reads the topic: each record as `partition: value`, the announced totals, and the records' times. */
const readAll = (
  member: Member,
  topic: string,
  onSlice: (slice: TopicSlice) => Effect.Effect<void, unknown> = () => Effect.void
) =>
  Effect.gen(function* () {
    const seen: Array<string> = []
    const sizes = new Set<number>()
    const times: Array<number> = []
    yield* within(
      "the topic's end",
      readerOf(member).read(topic, (slice) => {
        sizes.add(slice.ofAll)
        for (const record of slice.records) {
          seen.push(`${slice.partition}: ${textOf(record)}`)
          times.push(record.timestampMillis ?? Number.NaN)
        }
        return onSlice(slice)
      })
    )
    return { seen, sizes: [...sizes], times }
  })

export const topicReaderContract = (name: string, harness: Layer.Layer<BrokerHarness>): void =>
  layer(harness, { excludeTestServices: true, timeout: "120 seconds" })(`${name} reads whole topics`, (it) => {
    it.effect(
      "from the first record to the end, in the order of each partition, with the time at which each was appended",
      () =>
        Effect.gen(function* () {
          const member = yield* newMember
          const { topic } = yield* newTopic(member, 4)
          const began = Date.now()
          yield* publish(member, topic, numbers(0, 700), 1)
          yield* publish(member, topic, numbers(700, 700), 1)
          yield* publish(member, topic, numbers(0, 2), 3)
          const { seen, sizes, times } = yield* readAll(member, topic)
          assert.deepStrictEqual(
            seen.filter((line) => line.startsWith("1")),
            numbers(0, 1_400).map((value) => `1: ${value}`)
          )
          assert.deepStrictEqual(
            seen.filter((line) => !line.startsWith("1")),
            ["3: 0", "3: 1"]
          )
          assert.deepStrictEqual(sizes, [1_402])
          // The broker's clock may be another one.
          assert.isTrue(times.every((time) => Math.abs(time - began) < testTimeoutMillis))
        }),
      testTimeoutMillis
    )

    it.effect(
      "a topic without records is read at once; one that is not there is said to be missing",
      () =>
        Effect.gen(function* () {
          const member = yield* newMember
          const { topic } = yield* newTopic(member, 2)
          assert.deepStrictEqual((yield* readAll(member, topic)).seen, [])
          const error = yield* Effect.flip(readerOf(member).read("contract-missing", () => Effect.void))
          assert.strictEqual(error._tag, "TopicUnavailable")
        }),
      testTimeoutMillis
    )

    it.effect(
      "what is appended meanwhile is left to the next reading, and a group's offset stays where it is",
      () =>
        Effect.gen(function* () {
          const member = yield* newMember
          const { group, topic } = yield* newTopic(member)
          // Two slices: the second one's fetch could reach further.
          yield* publish(member, topic, numbers(0, 600))
          const reader = yield* read(member, { topic, group })
          yield* reader.take(600)
          yield* reader.stop
          const first = yield* readAll(member, topic, () => Effect.asVoid(publish(member, topic, ["later"])))
          assert.deepStrictEqual(
            first.seen,
            numbers(0, 600).map((value) => `0: ${value}`)
          )
          assert.deepStrictEqual((yield* readAll(member, topic)).seen.at(-1), "0: later")
          assert.deepInclude((yield* member.progress!.of(group, topic))[0], { committed: 600n })
        }),
      testTimeoutMillis
    )

    it.effect(
      "only the offsets that are asked for are read, and where each partition begins and ends is told",
      () =>
        Effect.gen(function* () {
          const member = yield* newMember
          const { topic } = yield* newTopic(member, 2)
          yield* publish(member, topic, numbers(0, 1_300), 0)
          yield* publish(member, topic, numbers(0, 3), 1)
          assert.deepStrictEqual(yield* readerOf(member).bounds(topic), [
            { partition: 0, start: 0n, end: 1_300n },
            { partition: 1, start: 0n, end: 3n }
          ])
          const seen: Array<string> = []
          yield* within(
            "the ranges' end",
            readerOf(member).read(
              topic,
              ({ ofAll, partition, records }) =>
                Effect.sync(() => {
                  assert.strictEqual(ofAll, 602)
                  seen.push(...records.map((record) => `${partition}: ${textOf(record)}`))
                }),
              [
                { partition: 1, start: 1n, end: 3n },
                { partition: 0, start: 650n, end: 1_250n }
              ]
            )
          )
          assert.deepStrictEqual(seen, ["1: 1", "1: 2", ...numbers(650, 600).map((value) => `0: ${value}`)])
        }),
      testTimeoutMillis
    )

    it.effect(
      "a failure of the handler ends the reading",
      () =>
        Effect.gen(function* () {
          const member = yield* newMember
          const { topic } = yield* newTopic(member)
          yield* publish(member, topic, numbers(0, 3))
          let slices = 0
          const error = yield* within(
            "the failure",
            Effect.flip(readerOf(member).read(topic, () => Effect.suspend(() => Effect.fail(`slice ${++slices}`))))
          )
          assert.strictEqual(error, "slice 1")
        }),
      testTimeoutMillis
    )
  })
