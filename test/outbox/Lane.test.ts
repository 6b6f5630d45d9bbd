import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { createRequire } from "node:module"
import { laneCount, laneOf, murmur2, partitionOf } from "../../src/outbox/Lane.ts"

/** kafkajs' own partitioner, which repeats the Java client's. */
const require = createRequire(import.meta.url)
const kafkajsMurmur2 = require("kafkajs/src/producer/partitioners/default/murmur2.js") as (key: string) => number

describe("Lane", () => {
  it.effect.prop(
    "murmur2 is the hash of Kafka's partitioner, for every key",
    [Schema.String],
    ([key]) =>
      Effect.sync(() => {
        // kafkajs hashes the UTF-8 bytes, too. A lone surrogate has none, and no key contains one.
        if (key.isWellFormed()) assert.strictEqual(murmur2(new TextEncoder().encode(key)), kafkajsMurmur2(key))
      }),
    { arbitrary: { runs: 500 } }
  )

  it.effect.prop(
    "a lane lies in the partition that Kafka picks for its keys, if the count divides 64",
    [Schema.String],
    ([key]) =>
      Effect.sync(() => {
        if (!key.isWellFormed()) return
        for (const partitions of [1, 2, 4, 8, 16, 32, 64]) {
          assert.strictEqual(partitionOf(laneOf(key), partitions), (kafkajsMurmur2(key) & 0x7fffffff) % partitions)
        }
      })
  )

  it("stored rows keep their lane: known keys have the same lanes for ever", () => {
    assert.deepStrictEqual(
      ["order-1", "order-2", "0190c5d0-9b6b-7b3e-8d2b-0a1b2c3d4e5f", "ü"].map((key) => Number(laneOf(key))),
      [54, 3, 8, 26]
    )
  })

  it("keys spread over all lanes", () => {
    const lanes = new Set(Array.from({ length: 2_000 }, (_, index) => laneOf(`order-${index}`)))
    assert.strictEqual(lanes.size, laneCount)
  })
})
