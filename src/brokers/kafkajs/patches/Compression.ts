/** Batches that a foreign producer has compressed. Ours are not, and a topic that the service makes keeps none (KafkaTopicConfig.ts). */
import kafkajs from "kafkajs"
import { promisify } from "node:util"
import { gzip, unzip } from "node:zlib"

/** Sixty times what a topic accepts compressed, by default. What foreign producers write in earnest takes a tenth of that. */
export const maxUnpackedBytes = 64 * 1_048_576

const unreadable = (name: string) => () => {
  throw new Error(
    `somebody has written a batch in ${name}, which can't be read: set the topic's compression.type to uncompressed, and move the group past it`
  )
}

/**
 * kafkajs unpacks whatever a batch of gzip holds: a megabyte can be a gigabyte. And it fails on the other codecs in words that name no cause.
 *
 * Source: `src/protocol/message/compression`.
 */
export const boundUnpacking = () => {
  kafkajs.CompressionCodecs[kafkajs.CompressionTypes.GZIP] = () => ({
    compress: ({ buffer }: { readonly buffer: Buffer }) => promisify(gzip)(buffer),
    decompress: (packed: Buffer) => promisify(unzip)(packed, { maxOutputLength: maxUnpackedBytes })
  })
  const { LZ4, Snappy, ZSTD } = kafkajs.CompressionTypes
  kafkajs.CompressionCodecs[LZ4] = unreadable("lz4")
  kafkajs.CompressionCodecs[Snappy] = unreadable("snappy")
  kafkajs.CompressionCodecs[ZSTD] = unreadable("zstd")
}
