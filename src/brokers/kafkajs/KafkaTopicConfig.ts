/** The settings of a Kafka topic that guarantees depend on: those that are read, and those of a new topic. */
import { Result } from "effect"
import type { PartitionMetadata } from "kafkajs"
import type { TopicInfo } from "../Broker.ts"

/** The settings that are read. Source: "Topic Configs" in Apache Kafka's documentation, with their defaults. */
export const names = [
  "max.message.bytes",
  "cleanup.policy",
  "retention.ms",
  "retention.bytes",
  "segment.ms",
  "min.insync.replicas",
  "unclean.leader.election.enable",
  "compression.type"
] as const

const dayMillis = 86_400_000

/**
 * The settings of a topic that is created. The cluster's defaults are unknown, and the guarantees need these.
 *
 * - A segment lasts a day; Kafka's default is a week. A record is deleted with its segment, so Kafka keeps it for at most eight days. The inbox
 *   recognises duplicates for as long.
 * - What a foreign producer has compressed is unpacked by Kafka, whose limits on size hold for it then. kafkajs reads gzip alone.
 * - With three or more replicas a majority acknowledges: one broker may be down, and another one be lost.
 */
export const entriesOfNew = (replication: number): Array<{ name: (typeof names)[number]; value: string }> => [
  { name: "cleanup.policy", value: "delete" },
  { name: "retention.ms", value: String(7 * dayMillis) },
  { name: "retention.bytes", value: "-1" },
  { name: "segment.ms", value: String(dayMillis) },
  { name: "compression.type", value: "uncompressed" },
  ...(replication < 3 ? [] : [{ name: "min.insync.replicas", value: String(Math.floor(replication / 2) + 1) } as const])
]

/** A topic's settings. Only the size limit is required; a setting that the cluster does not tell is not checked. */
export const read = ({
  brokers,
  entries,
  partitions,
  topic,
  wireTopic
}: {
  readonly topic: string
  readonly wireTopic: string
  readonly partitions: ReadonlyArray<PartitionMetadata>
  readonly brokers: ReadonlyArray<string>
  readonly entries: ReadonlyArray<{ readonly configName: string; readonly configValue: string }>
}): Result.Result<TopicInfo, Error> => {
  const text = (name: (typeof names)[number]) => entries.find(({ configName }) => configName === name)?.configValue
  const number = (name: (typeof names)[number]) => {
    const value = Number(text(name) ?? Number.NaN)
    return Number.isSafeInteger(value) ? value : undefined
  }
  const maxMessageBytes = number("max.message.bytes")
  if (maxMessageBytes === undefined) {
    return Result.fail(new Error(`max.message.bytes of ${wireTopic} is ${JSON.stringify(text("max.message.bytes"))}`))
  }
  /** Operators also write the largest number for "for ever". */
  const duration = (name: (typeof names)[number]) => {
    const millis = Number(text(name) ?? Number.NaN)
    return Number.isNaN(millis) ? undefined : millis < 0 || millis > Number.MAX_SAFE_INTEGER ? Infinity : millis
  }
  const policy = text("cleanup.policy")
    ?.split(",")
    .map((word) => word.trim())
  const retentionMillis = duration("retention.ms")
  const segmentMillis = duration("segment.ms")
  const bytes = number("retention.bytes")
  const minInSync = number("min.insync.replicas")
  const unclean = text("unclean.leader.election.enable")
  const compression = text("compression.type")
  return Result.succeed({
    topic,
    partitions: partitions.length,
    maxMessageBytes,
    ...(wireTopic === topic ? {} : { wireName: wireTopic }),
    ...(compression === undefined ? {} : { compression }),
    ...(policy === undefined || retentionMillis === undefined || segmentMillis === undefined
      ? {}
      : {
          retention: {
            compacts: policy.includes("compact"),
            millis: policy.includes("delete") ? retentionMillis : Infinity,
            segmentMillis,
            ...(bytes === undefined || bytes < 0 || !policy.includes("delete") ? {} : { bytes })
          }
        }),
    ...(minInSync === undefined || unclean === undefined
      ? {}
      : {
          replication: {
            copies: Math.min(...partitions.map(({ replicas }) => replicas.length)),
            minInSync,
            uncleanElection: unclean === "true",
            brokers
          }
        })
  })
}
