/** What kafkajs unpacks of foreign batches. */
import { assert, it } from "@effect/vitest"
import { CompressionCodecs, CompressionTypes } from "kafkajs"
import { gzipSync } from "node:zlib"
import { applyPatches } from "../../../src/brokers/kafkajs/KafkaPatches.ts"
import { maxUnpackedBytes } from "../../../src/brokers/kafkajs/patches/Compression.ts"

applyPatches()

const unpack = (packed: Buffer): Promise<Buffer> => CompressionCodecs[CompressionTypes.GZIP]().decompress(packed)

it("a batch of gzip is unpacked up to a limit, and no further", async () => {
  const small = Buffer.from("a batch")
  assert.deepStrictEqual(await unpack(gzipSync(small)), small)
  const bomb = gzipSync(Buffer.alloc(maxUnpackedBytes + 1))
  assert.isBelow(bomb.length, 100_000)
  const refused = await unpack(bomb).then(
    () => "unpacked",
    (error: NodeJS.ErrnoException) => error.code
  )
  assert.strictEqual(refused, "ERR_BUFFER_TOO_LARGE")
})

it("a codec that can't be read is named with its mending", () => {
  assert.throws(
    () => CompressionCodecs[CompressionTypes.LZ4](),
    /in lz4, which can't be read: set the topic's compression\.type/
  )
})
