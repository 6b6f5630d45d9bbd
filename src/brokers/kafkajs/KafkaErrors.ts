/** What an error of kafkajs says about the batch, the topic or the broker. */
import { BrokerUnavailable, MessageRejected, type PublishError, TopicUnavailable } from "../Broker.ts"

/** An error of Kafka's protocol, by the name that kafkajs gives its code. */
interface ProtocolError {
  readonly type: string
  readonly message: string
}

/** kafkajs wraps: a retrier's error around the real one, an aggregate around one error per topic. Deeper than this is no wrapping. */
const maxDepth = 8

/** The answer of a broker inside the error, or undefined when no broker has answered. */
export const protocolErrorOf = (error: unknown): ProtocolError | undefined => {
  let current: unknown = error
  for (let depth = 0; depth < maxDepth && current instanceof Error; depth++) {
    if ("type" in current && typeof current.type === "string") return { type: current.type, message: current.message }
    current = "errors" in current && Array.isArray(current.errors) ? current.errors[0] : current.cause
  }
  return undefined
}

/** Whether a broker has answered with one of these errors. */
export const isProtocolError = (error: unknown, ...types: ReadonlyArray<string>): boolean => {
  const found = protocolErrorOf(error)
  return found !== undefined && types.includes(found.type)
}

/**
 * Refusals of what is in the batch. A broker checks the whole batch before it appends anything.
 *
 * CORRUPT_MESSAGE may also be a bit that flipped on the way, which passes at the next attempt: that attempt comes either way.
 * Taken for an outage, a record that stays corrupt would stop its lane for good; taken for a refusal, it ends as a dead letter.
 */
const rejections: ReadonlySet<string> = new Set([
  "MESSAGE_TOO_LARGE",
  "RECORD_LIST_TOO_LARGE",
  "INVALID_RECORD",
  "CORRUPT_MESSAGE"
])

const tooLarge: ReadonlySet<string> = new Set(["MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"])

/** Refusals that an operator can mend: a missing topic, missing rights, a clock that is off, settings that the cluster forbids. */
const refusals: ReadonlySet<string> = new Set([
  "UNKNOWN_TOPIC_OR_PARTITION",
  "UNKNOWN_TOPIC_ID",
  "INVALID_TOPIC_EXCEPTION",
  "TOPIC_AUTHORIZATION_FAILED",
  "GROUP_AUTHORIZATION_FAILED",
  "CLUSTER_AUTHORIZATION_FAILED",
  "INVALID_TIMESTAMP",
  "POLICY_VIOLATION",
  "INVALID_PARTITIONS",
  "INVALID_REPLICATION_FACTOR",
  "INVALID_REPLICA_ASSIGNMENT",
  "INVALID_CONFIG",
  "INVALID_REQUIRED_ACKS",
  "INVALID_GROUP_ID",
  "INVALID_SESSION_TIMEOUT",
  "INCONSISTENT_GROUP_PROTOCOL",
  "UNSUPPORTED_FOR_MESSAGE_FORMAT"
])

/** The generation of a group that a commit came from is over, or about to be: the partition is somebody's, and no longer ours. */
export const isOldGeneration = (error: unknown): boolean =>
  isProtocolError(error, "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID")

const reasonOf = ({ message, type }: ProtocolError): string =>
  type === "UNKNOWN_TOPIC_OR_PARTITION"
    ? "the broker does not know it, or not yet (UNKNOWN_TOPIC_OR_PARTITION)"
    : `${message} (${type})`

/** What an error of anything but a publish means. Whatever is no clear refusal is an outage: it says nothing about the topic. */
export const toUnavailable = (
  operation: string,
  topic: string,
  cause: unknown
): BrokerUnavailable | TopicUnavailable => {
  const found = protocolErrorOf(cause)
  return found !== undefined && refusals.has(found.type)
    ? new TopicUnavailable({ topic, reason: reasonOf(found) })
    : new BrokerUnavailable({ operation, cause })
}

/** What an error of a publish means for its batch. */
export const toPublishError = (topic: string, partition: number, cause: unknown): PublishError => {
  const found = protocolErrorOf(cause)
  return found !== undefined && rejections.has(found.type)
    ? new MessageRejected({ topic, partition, reason: reasonOf(found), isTooLarge: tooLarge.has(found.type) })
    : toUnavailable("publish", topic, cause)
}
