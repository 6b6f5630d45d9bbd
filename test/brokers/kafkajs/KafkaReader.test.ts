/** A partition's reader, without kafkajs. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import type { EachBatchPayload } from "kafkajs"
import * as KafkaReader from "../../../src/brokers/kafkajs/KafkaReader.ts"

it("kafkajs goes on behind the records that a reader has, also after it has fetched older ones", () => {
  const reader = KafkaReader.make({
    topic: "orders",
    wireTopic: "orders",
    partition: 0,
    sliceSize: 10,
    handle: () => Effect.void,
    offsets: { note: () => undefined, run: Effect.never, settled: Effect.void }
  })
  let position = 0n
  /** Offers records, as kafkajs does. */
  const offer = (from: number, to: number) => {
    const messages = Array.from({ length: to - from }, (_, index) => ({ offset: String(from + index) }))
    reader.offer({
      batch: { messages, highWatermark: "20", lastOffset: () => String(to - 1) },
      resolveOffset: (offset: string) => {
        position = BigInt(offset) + 1n
      },
      pause: () => () => undefined
    } as unknown as EachBatchPayload)
  }
  offer(0, 10)
  assert.strictEqual(position, 10n)
  position = 3n
  offer(3, 8)
  assert.strictEqual(position, 10n)
  offer(8, 12)
  assert.strictEqual(position, 12n)
})
