/**
 * Checks of a topic's settings against the guarantees of outbox and inbox: a table of pure functions from the settings to a sentence for
 * the operator. {@link TopicChecks} says when they run.
 */
import type { TopicInfo } from "../brokers/Broker.ts"
import { laneCount } from "../outbox/Lane.ts"

/**
 * What is wrong with a topic.
 *
 * - `stops`: publishing to it would break the order, lose events, or can't succeed. It refuses a start; later, publishing to the topic pauses.
 * - `unsafe`: a guarantee can break. It refuses a start; later, health reports it.
 * - `oversize`: the outbox accepts events that the topic will refuse, and each of them would end as a dead letter. Health and the log
 *   report it. Refusing the start or pausing the topic would only delay the other events.
 * - `weak`: every guarantee holds, with less margin than it could. A warning in the log.
 */
export interface Finding {
  readonly kind: "stops" | "unsafe" | "oversize" | "weak"
  /** A sentence without the topic's name: the setting, its value, what is needed, how to set it. */
  readonly sentence: string
}

/** The settings of the service that a topic is checked against. */
export interface Needs {
  readonly maxEventBytes: number
  readonly batchBytes: number
  /** 0: for ever. */
  readonly inboxDays: number
}

/** Whether one of the findings pauses publishing to the topic. */
export const stopsPublishing = (findings: ReadonlyArray<Finding>): boolean =>
  findings.some(({ kind }) => kind === "stops")

/** Whether one of the findings refuses a start. */
export const refusesStart = ({ kind }: Finding): boolean => kind === "stops" || kind === "unsafe"

type Check = (info: TopicInfo, needs: Needs) => Finding | undefined

const dayMillis = 86_400_000

const days = (millis: number) => {
  const count = Math.round((millis / dayMillis) * 10) / 10
  return millis === Infinity ? "for ever" : `${count} ${count === 1 ? "day" : "days"}`
}

/** The command that changes the topic's setting. */
const set = ({ replication, topic, wireName }: TopicInfo, config: string) =>
  `kafka-configs.sh --bootstrap-server ${replication?.brokers?.[0] ?? "HOST:PORT"} --alter --entity-type topics --entity-name ${wireName ?? topic} --add-config ${config}`

/** The topic's side of a choice. The embedded broker has no settings, so only the service's own setting is named there. */
const orSet = (info: TopicInfo, config: string) => (info.replication === undefined ? "" : `, or ${set(info, config)}`)

const compaction: Check = (info) => {
  if (info.retention?.compacts !== true) return undefined
  return {
    kind: "stops",
    sentence:
      "cleanup.policy is to compact: Kafka would keep an aggregate's newest event only, and consumers would miss the others; " +
      set(info, "cleanup.policy=delete")
  }
}

const acknowledgements: Check = (info) => {
  if (info.replication === undefined || info.replication.minInSync <= info.replication.copies) return undefined
  const { copies, minInSync } = info.replication
  return {
    kind: "stops",
    sentence:
      `min.insync.replicas is ${minInSync}, and it has ${copies} ${copies === 1 ? "copy" : "copies"}: no send can ever be acknowledged; ` +
      `add copies, or ${set(info, `min.insync.replicas=${Math.max(1, copies - 1)}`)}`
  }
}

const sizes: Check = (info, { batchBytes, maxEventBytes }) => {
  const { maxMessageBytes } = info
  if (maxMessageBytes < maxEventBytes) {
    return {
      kind: "oversize",
      sentence:
        `max.message.bytes is ${maxMessageBytes}, and an event may take ${maxEventBytes} bytes (OUTBOX_MAX_EVENT_BYTES): what is larger ` +
        `would be taken and never published; set OUTBOX_MAX_EVENT_BYTES to at most ${maxMessageBytes}` +
        orSet(info, `max.message.bytes=${Math.max(maxEventBytes, 1_048_588)}`)
    }
  }
  if (maxMessageBytes >= batchBytes) return undefined
  return {
    kind: "weak",
    sentence:
      `max.message.bytes is ${maxMessageBytes}, below a batch's ${batchBytes} bytes: large batches will be refused first and then sent ` +
      `in halves; set OUTBOX_BATCH_BYTES to at most ${maxMessageBytes}`
  }
}

/** The inbox must remember an event for as long as the topic keeps its record. Otherwise a consumer that starts over applies it again. */
const dedupeMemory: Check = (info, { inboxDays }) => {
  if (info.retention === undefined) return undefined
  const { millis, segmentMillis } = info.retention
  const remembered = inboxDays === 0 ? Infinity : inboxDays * dayMillis
  const longest = millis + segmentMillis
  const known = `an event is known as a duplicate for ${days(remembered)} only (INBOX_RETENTION_DAYS)`
  if (millis > remembered) {
    const enough = longest === Infinity ? 0 : Math.ceil(longest / dayMillis)
    return {
      kind: "unsafe",
      sentence:
        `it keeps records ${millis === Infinity ? "for ever" : `for ${days(millis)} (retention.ms)`}, and ${known}: ` +
        `a consumer that starts over would apply events twice; set INBOX_RETENTION_DAYS to ${enough}${enough === 0 ? ", which keeps them" : " or more"}` +
        orSet(info, `retention.ms=${Math.max(dayMillis, remembered - dayMillis)}`)
    }
  }
  if (longest <= remembered) return undefined
  return {
    kind: "weak",
    sentence:
      `a record goes with its segment, so it may be there for ${days(longest)} (retention.ms and segment.ms), and ${known}: ` +
      `a consumer that starts over could apply an event twice; set INBOX_RETENTION_DAYS to ${Math.ceil(longest / dayMillis)}` +
      orSet(info, `segment.ms=${dayMillis}`)
  }
}

const shortRetention: Check = (info) => {
  if (info.retention === undefined || info.retention.millis >= dayMillis) return undefined
  return {
    kind: "weak",
    sentence: `retention.ms is ${info.retention.millis}: a consumer that is away for longer misses events; ${set(info, `retention.ms=${7 * dayMillis}`)}`
  }
}

const retentionBySize: Check = (info) => {
  const bytes = info.retention?.bytes
  if (bytes === undefined) return undefined
  return {
    kind: "weak",
    sentence:
      `retention.bytes is ${bytes}: Kafka drops a partition's older events by size, however young they are, and whether or not consumers ` +
      `have read them; ${set(info, "retention.bytes=-1")}`
  }
}

/** What {@link examine} says of one copy. */
const oneCopy =
  "it has one copy: what was acknowledged is lost with its broker's disk; give it three (KAFKA_REPLICATION)"

/** Whether the finding is about one copy in a cluster that can't hold more: nothing about the topic can be mended. */
export const isOfOneBroker = ({ replication }: TopicInfo, { sentence }: Finding): boolean =>
  sentence === oneCopy && replication?.brokers?.length === 1

const copies: Check = (info) => {
  if (info.replication === undefined) return undefined
  const { copies, minInSync } = info.replication
  if (copies === 1) {
    return { kind: "weak", sentence: oneCopy }
  }
  if (minInSync === 1) {
    return {
      kind: "weak",
      sentence: `min.insync.replicas is 1: an acknowledgement may be one broker's word only; ${set(info, `min.insync.replicas=${Math.max(2, copies - 1)}`)}`
    }
  }
  if (minInSync !== copies) return undefined
  return {
    kind: "weak",
    sentence:
      `min.insync.replicas is ${minInSync} of ${copies} copies: nothing can be published while one broker is away; ` +
      "give it one copy more than have to acknowledge"
  }
}

const uncleanElection: Check = (info) => {
  if (info.replication === undefined) return undefined
  // With one copy there is no other to elect.
  if (!info.replication.uncleanElection || info.replication.copies === 1) return undefined
  return {
    kind: "weak",
    sentence:
      "unclean.leader.election.enable is true: a copy that lags behind may take over and drop what was acknowledged; " +
      set(info, "unclean.leader.election.enable=false")
  }
}

const compression: Check = (info) => {
  if (info.compression === undefined || info.compression === "uncompressed") return undefined
  return {
    kind: "weak",
    sentence:
      `compression.type is ${info.compression}: a foreign producer's batch in lz4, snappy or zstd would stop the consumers, and one of gzip ` +
      `could fill their memory; ${set(info, "compression.type=uncompressed")}`
  }
}

/** In the order in which a person should read the sentences. */
const checks: ReadonlyArray<Check> = [
  compaction,
  acknowledgements,
  sizes,
  dedupeMemory,
  shortRetention,
  retentionBySize,
  copies,
  uncleanElection,
  compression
]

/** The findings about the topic's settings. A setting that the broker does not report is not checked. */
export const examine = (info: TopicInfo, needs: Needs): ReadonlyArray<Finding> =>
  checks.flatMap((check) => check(info, needs) ?? [])

const divisors = Array.from({ length: laneCount }, (_, index) => index + 1).filter((count) => laneCount % count === 0)

/**
 * The finding about the topic's number of partitions. Its lanes are spread over `noted` of them: `undefined` where nothing was
 * published yet.
 *
 * Additional partitions are harmless, as nothing is sent to them. With fewer than noted, some lanes have no partition. They may move to others
 * only once consumers have read the rest, or an aggregate's events would change their order.
 */
export const examineCount = ({ partitions, topic }: TopicInfo, noted: number | undefined): ReadonlyArray<Finding> => {
  if (noted === undefined) {
    if (laneCount % partitions === 0) return []
    const next = divisors.find((count) => count > partitions) ?? laneCount
    const sentence =
      `it has ${partitions} partitions: ${laneCount} lanes need a count that divides ${laneCount} (${divisors.join(", ")}); ` +
      `make the topic anew, or, once its consumers have read all of it, give it ${next}`
    return [{ kind: "stops", sentence }]
  }
  if (partitions === noted) return []
  const usable = divisors.findLast((count) => count <= partitions) ?? 1
  const how =
    `stop the dispatchers, let consumers read what is there, then ` +
    `UPDATE outbox_topics SET partitions = ${usable} WHERE topic = '${topic}' (docs/operations.md, "More partitions")`
  if (partitions > noted) {
    const sentence =
      `it has ${partitions} partitions, and events go to the first ${noted}, as before it grew: aggregates that change their partition ` +
      `lose their order; ` +
      (usable > noted
        ? `to use ${usable === partitions ? "them all" : `${usable} of them, as many as divide ${laneCount}`}, ${how}`
        : `no more of them can be used, for their number has to divide ${laneCount}`)
    return [{ kind: "weak", sentence }]
  }
  const sentence = `it has ${partitions} partitions, and its lanes are spread over ${noted}: make it anew with ${noted}, or ${how}`
  return [{ kind: "stops", sentence }]
}
