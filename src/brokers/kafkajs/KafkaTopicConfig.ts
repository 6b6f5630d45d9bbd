/** The settings of a Kafka topic that the guarantees rest on: what is read of a topic, and what a new one gets. */
import { Result } from "effect"
import type { PartitionMetadata } from "kafkajs"
import type { TopicInfo } from "../Broker.ts"

/** What is asked for. Source: "Topic Configs" in Apache Kafka's documentation, which has the defaults, too. */
export const names = [
  "max.message.bytes",
  "cleanup.policy",
  "retention.ms",
  "segment.ms",
  "min.insync.replicas",
  "unclean.leader.election.enable"
] as const

const dayMillis = 86_400_000

/**
 * What a topic is made with: the cluster's defaults are unknown, and these are what the rest is built for.
 *
 * A segment of a day, where Kafka's default is a week: a record goes with its segment, so it is there for at most eight days, and the
 * inbox remembers as long. From three copies on, a majority of them acknowledges, so that one broker may be away and one may be lost.
 */
export const entriesOfNew = (replication: number): Array<{ name: (typeof names)[number]; value: string }> => [
  { name: "cleanup.policy", value: "delete" },
  { name: "retention.ms", value: String(7 * dayMillis) },
  { name: "segment.ms", value: String(dayMillis) },
  ...(replication < 3 ? [] : [{ name: "min.insync.replicas", value: String(Math.floor(replication / 2) + 1) } as const])
]

/** What is known of the topic. Only the size limit must be there; a cluster that keeps the others to itself is not checked for them. */
export const read = ({
  entries,
  partitions,
  topic,
  wireTopic
}: {
  readonly topic: string
  readonly wireTopic: string
  readonly partitions: ReadonlyArray<PartitionMetadata>
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
  /** Operators who mean for ever also write the largest number there is. */
  const duration = (name: (typeof names)[number]) => {
    const millis = Number(text(name) ?? Number.NaN)
    return Number.isNaN(millis) ? undefined : millis < 0 || millis > Number.MAX_SAFE_INTEGER ? Infinity : millis
  }
  const policy = text("cleanup.policy")
    ?.split(",")
    .map((word) => word.trim())
  const retentionMillis = duration("retention.ms")
  const segmentMillis = duration("segment.ms")
  const minInSync = number("min.insync.replicas")
  const unclean = text("unclean.leader.election.enable")
  return Result.succeed({
    topic,
    partitions: partitions.length,
    maxMessageBytes,
    ...(wireTopic === topic ? {} : { wireName: wireTopic }),
    ...(policy === undefined || retentionMillis === undefined || segmentMillis === undefined
      ? {}
      : {
          retention: {
            compacts: policy.includes("compact"),
            millis: policy.includes("delete") ? retentionMillis : Infinity,
            segmentMillis
          }
        }),
    ...(minInSync === undefined || unclean === undefined
      ? {}
      : {
          replication: {
            copies: Math.min(...partitions.map(({ replicas }) => replicas.length)),
            minInSync,
            uncleanElection: unclean === "true"
          }
        })
  })
}
