import { assert, describe, it } from "@effect/vitest"
import { createRequire } from "node:module"
import { crc32 } from "node:zlib"
import type { BrokerRecord } from "../../../src/brokers/Broker.ts"
import { crc32c } from "../../../src/brokers/kafkajs/Crc32c.ts"
import * as RecordBatch from "../../../src/brokers/kafkajs/RecordBatch.ts"

const require = createRequire(import.meta.url)

interface Encoder {
  readonly buffer: Buffer
}
const kafkajs = {
  record: require("kafkajs/src/protocol/recordBatch/record/v0/index.js") as (record: unknown) => Encoder,
  batch: (
    require("kafkajs/src/protocol/recordBatch/v0/index.js") as {
      readonly RecordBatch: (batch: unknown) => Promise<Encoder>
    }
  ).RecordBatch,
  crc32c: require("kafkajs/src/protocol/recordBatch/crc32C/index.js") as (bytes: Uint8Array) => number
}

/** The same batch by kafkajs' own encoder. Kafka's own client writes -1 where the producer is not idempotent. */
const byKafkajs = async (records: ReadonlyArray<BrokerRecord>, timestampMillis: number) => {
  const { buffer } = await kafkajs.batch({
    firstTimestamp: timestampMillis,
    maxTimestamp: timestampMillis,
    partitionLeaderEpoch: -1,
    lastOffsetDelta: records.length - 1,
    producerEpoch: -1,
    firstSequence: -1,
    records: records.map(({ headers, key, value }, offsetDelta) =>
      kafkajs.record({ offsetDelta, timestampDelta: 0, key, value: Buffer.from(value), headers })
    )
  })
  return buffer
}

const record = (key: string, value: string, headers: Readonly<Record<string, string>> = {}): BrokerRecord => ({
  key,
  value: Buffer.from(value),
  headers
})

const timestampMillis = 1_764_000_000_123

const cases: Readonly<Record<string, ReadonlyArray<BrokerRecord>>> = {
  "one record with headers": [
    record("order-1", `{"a":1}`, { "event-id": "42", outbox_id: "42", "schema-version": "1" })
  ],
  "a record with nothing in it": [record("", "")],
  "text that is not ASCII, in each place": [
    record("clé-鍵-🔑", "wért-値", { "kopf-é": "ß", ascii: "🙂", empty: "" }),
    record("a".repeat(63) + "é", "x", { long: "é".repeat(200) })
  ],
  "lengths around each further byte of a varint": [31, 32, 63, 64, 8_191, 8_192, 1_048_576].map((length) =>
    record("k".repeat(Math.min(length, 9_000)), "v".repeat(length), { h: "h".repeat(Math.min(length, 9_000)) })
  ),
  "a thousand records": Array.from({ length: 1_000 }, (_, index) =>
    record(`key-${index % 7}`, "v".repeat(index), { "event-id": String(index), "event-type": "Counted" })
  )
}

describe("RecordBatch", () => {
  for (const [name, records] of Object.entries(cases)) {
    it(`its bytes are kafkajs': ${name}`, async () => {
      const ours = RecordBatch.encode(records, timestampMillis)
      assert.isTrue(ours.equals(await byKafkajs(records, timestampMillis)))
    })
  }

  it("CRC-32C is kafkajs', from every start and for every rest of eight", () => {
    const bytes = Uint8Array.from({ length: 300 }, (_, index) => (index * 31 + (index >>> 3)) & 0xff)
    for (let start = 0; start < 40; start++) {
      assert.strictEqual(crc32c(bytes, start), kafkajs.crc32c(bytes.subarray(start)))
    }
    // The check value from the catalogue of CRC algorithms, independent of Node's zlib.
    const check = new TextEncoder().encode("123456789")
    assert.strictEqual(crc32c(check, 0), 0xe3069283)
    assert.notStrictEqual(crc32c(check, 0), crc32(check))
  })
})
