/**
 * Lanes: the 64 streams that events travel in, from the queue to the topic's partitions. A lane is owned by one process at a time, the one whose
 * session holds its advisory lock (platform/Ownership.ts).
 */
import { Schema } from "effect"

/** Fixed for ever, since stored rows carry their lane. Every useful partition count divides 64. */
export const laneCount = 64

/** A lane's number, 0 … 63. */
export const Lane = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: laneCount - 1 })).pipe(
  Schema.brand("Lane")
)
export type Lane = typeof Lane.Type

const seed = 0x9747b28c
const multiplier = 0x5bd1e995

/**
 * The 32-bit murmur2 hash of `bytes`, signed.
 *
 * Source: `org.apache.kafka.common.utils.Utils.murmur2`; test/outbox/Lane.test.ts compares it with kafkajs' own.
 */
export const murmur2 = (bytes: Uint8Array): number => {
  const length = bytes.length
  let hash = seed ^ length
  const wholeWords = length & ~3
  for (let index = 0; index < wholeWords; index += 4) {
    let word = bytes[index]! | (bytes[index + 1]! << 8) | (bytes[index + 2]! << 16) | (bytes[index + 3]! << 24)
    word = Math.imul(word, multiplier)
    word ^= word >>> 24
    hash = Math.imul(hash, multiplier) ^ Math.imul(word, multiplier)
  }
  const rest = length & 3
  if (rest === 3) hash ^= bytes[wholeWords + 2]! << 16
  if (rest >= 2) hash ^= bytes[wholeWords + 1]! << 8
  if (rest >= 1) hash = Math.imul(hash ^ bytes[wholeWords]!, multiplier)
  hash ^= hash >>> 13
  hash = Math.imul(hash, multiplier)
  return hash ^ (hash >>> 15)
}

/** Every lane, in order. */
export const allLanes: ReadonlyArray<Lane> = Array.from({ length: laneCount }, (_, lane) => Lane.make(lane))

/**
 * The lane that an aggregate's events travel in.
 *
 * Equal keys give equal lanes for ever: stored rows depend on it. If a topic's partition count divides {@link laneCount}, then
 * {@link partitionOf} gives the partition that Kafka's own partitioner picks for the key. So a lane never spans two partitions.
 */
export const laneOf = (key: string): Lane => allLanes[(murmur2(Buffer.from(key)) & 0x7fffffff) % laneCount]!

/** The partition that a lane's records go to. Valid where `partitions` divides {@link laneCount}. */
export const partitionOf = (lane: Lane, partitions: number): number => lane % partitions
