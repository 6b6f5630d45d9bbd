/** Classifies an error of kafkajs: a refusal of the batch, a refusal of the topic, or an outage. */
import type { Clock } from "effect"
import { BrokerUnavailable, MessageRejected, type PublishError, TopicUnavailable } from "../Broker.ts"
import * as KafkaAccess from "./KafkaAccess.ts"

/** An error of Kafka's protocol, by the name that kafkajs gives its code. */
interface ProtocolError {
  readonly type: string
  readonly message: string
}

/** kafkajs wraps errors: in one of its retrier, and in an aggregate with one error per topic. This bounds the search. */
const maxDepth = 8

/** The broker's error inside `error`, or undefined when no broker has responded. */
export const protocolErrorOf = (error: unknown): ProtocolError | undefined => {
  let current: unknown = error
  for (let depth = 0; depth < maxDepth && current instanceof Error; depth++) {
    if ("type" in current && typeof current.type === "string") return { type: current.type, message: current.message }
    current = "errors" in current && Array.isArray(current.errors) ? current.errors[0] : current.cause
  }
  return undefined
}

/** Whether a broker has responded with one of these errors. */
export const isProtocolError = (error: unknown, ...types: ReadonlyArray<string>): boolean => {
  const found = protocolErrorOf(error)
  return found !== undefined && types.includes(found.type)
}

/**
 * Refusals of the batch. A broker checks the whole batch before it appends anything.
 *
 * CORRUPT_MESSAGE may also come from a bit that flipped on the wire, and then the next attempt succeeds. As an outage, a record that
 * stays corrupt would stop its lane for ever; as a refusal, it ends as a dead letter.
 */
const rejections: ReadonlySet<string> = new Set([
  "MESSAGE_TOO_LARGE",
  "RECORD_LIST_TOO_LARGE",
  "INVALID_RECORD",
  "CORRUPT_MESSAGE"
])

const tooLarge: ReadonlySet<string> = new Set(["MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"])

/** Refusals of the topic, which an operator can repair: a missing topic, missing rights, a wrong clock, settings that the cluster forbids. */
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

/** Whether the group has left the generation of a commit, or is about to: the partition may belong to another member. */
export const isOldGeneration = (error: unknown): boolean =>
  isProtocolError(error, "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID")

const reasonOf = ({ message, type }: ProtocolError): string =>
  type === "UNKNOWN_TOPIC_OR_PARTITION"
    ? "the broker does not know it, or not yet (UNKNOWN_TOPIC_OR_PARTITION)"
    : `${message} (${type})`

/** A right that a request needs, with the names that Kafka's access lists use. */
export interface Right {
  readonly operation: "Create" | "Delete" | "Describe" | "DescribeConfigs" | "Read" | "Write"
  /** The topic's name on the wire. */
  readonly topic: string
  /** The group's name on the wire, for requests of a group. */
  readonly group?: string
}

/** Errors of a process that has this access. */
export const make = (access: KafkaAccess.KafkaAccess, clock: Clock.Clock) => {
  const user = KafkaAccess.principalOf(access) ?? "the user of this service"

  /** A missing right, as a sentence that names the entry of the access list. */
  const denied = ({ group, operation, topic }: Right, { type }: ProtocolError): string | undefined => {
    const on = type === "GROUP_AUTHORIZATION_FAILED" && group !== undefined ? `group ${group}` : `topic ${topic}`
    const or = operation === "Create" ? ", or make the topic and set KAFKA_CREATE_TOPICS to off" : ""
    return type.endsWith("_AUTHORIZATION_FAILED")
      ? `Kafka denies ${user} the operation ${operation} on ${on}: allow it in an ACL${or} (${type})`
      : undefined
  }

  /** The meaning of an error, except of a publish. Every error that is no known refusal is an outage: it says nothing about the topic. */
  const toUnavailable = (
    operation: string,
    topic: string,
    right: Right,
    cause: unknown
  ): BrokerUnavailable | TopicUnavailable => {
    const found = protocolErrorOf(cause)
    if (found !== undefined && refusals.has(found.type)) {
      return new TopicUnavailable({ topic, reason: denied(right, found) ?? reasonOf(found) })
    }
    const refusal = KafkaAccess.explain(cause, access, clock.currentTimeMillisUnsafe())
    return new BrokerUnavailable({ operation, cause, ...(refusal === undefined ? {} : { refusal }) })
  }

  /** The meaning of a publish's error for its batch. */
  const toPublishError = (topic: string, wireTopic: string, partition: number, cause: unknown): PublishError => {
    const found = protocolErrorOf(cause)
    return found !== undefined && rejections.has(found.type)
      ? new MessageRejected({ topic, partition, reason: reasonOf(found), isTooLarge: tooLarge.has(found.type) })
      : toUnavailable("publish", topic, { operation: "Write", topic: wireTopic }, cause)
  }

  /** For one step of a request with several: a missing right as it is, any other error unchanged. */
  const orDenied =
    (topic: string, right: Right) =>
    (cause: unknown): unknown => {
      const found = protocolErrorOf(cause)
      const reason = found === undefined ? undefined : denied(right, found)
      return reason === undefined ? cause : new TopicUnavailable({ topic, reason })
    }

  return { toUnavailable, toPublishError, orDenied }
}
