/** The shapes of what `paid-once status` and the console's overview show alike. StatusReport.ts reads it. */
import { Schema } from "effect"
import { MailCounts } from "../mail/MailReport.ts"
import { PaymentCounts } from "./PaymentReport.ts"
import * as InboxReport from "../../operations/reports/InboxReport.ts"
import * as OutboxReport from "../../operations/reports/OutboxReport.ts"
import { Pause } from "../../operations/pauses/Pauses.ts"
import * as TaskReport from "../../operations/reports/TaskReport.ts"

/** Things of one kind that wait for a person. */
export const Decision = Schema.Struct({
  kind: Schema.Literals(["outbox event", "inbox event", "gap", "task", "payment", "mail", "difference"]),
  /** Of events that a consumer can't apply. */
  consumer: Schema.optionalKey(Schema.String),
  count: Schema.Int,
  /** Since the first of them waits; null where its time is not known. */
  sinceSeconds: Schema.NullOr(Schema.Number),
  /** In words: `events that the broker refused`. */
  what: Schema.String,
  /** The console's page that lists them, relative to /console/. */
  page: Schema.String,
  /** The command that lists them. */
  command: Schema.String
}).annotate({ identifier: "Decision" })
export type Decision = typeof Decision.Type

/** A consumer, without its partitions: those the broker knows. */
export const ConsumerStatus = Schema.Struct({ ...InboxReport.Status.fields, isPaused: Schema.Boolean })

export const StatusView = Schema.Struct({
  outbox: OutboxReport.Status,
  consumers: Schema.Array(ConsumerStatus),
  tasks: Schema.Array(TaskReport.Count),
  payments: PaymentCounts,
  mail: MailCounts,
  paused: Schema.Array(Pause),
  /** What needs a person, the oldest first. */
  decisions: Schema.Array(Decision)
})
export type StatusView = typeof StatusView.Type

/** How fast money and events move at one moment. Null: not known at that moment. */
export const Sample = Schema.Struct({
  /** Rises from sample to sample, and stays comparable across processes and restarts: the milliseconds of `at`. */
  id: Schema.Int,
  /** By the database's clock. */
  at: Schema.String,
  /** Payments captured in the last minute. */
  ordersPaidPerMinute: Schema.Int,
  /** Records that the topics got since the sample before. Null for the first sample after a gap, and while the broker does not tell. */
  eventsPublishedPerSecond: Schema.NullOr(Schema.Number),
  /** From the event's commit to its acknowledgement, of the last events of the last minute; null where none was published. */
  publishLatencyMillis: Schema.NullOr(Schema.Struct({ p50: Schema.Number, p99: Schema.Number })),
  /** Records that each consumer has done with since the sample before. A consumer of which that is not known is missing. */
  effectsPerSecond: Schema.Record(Schema.String, Schema.Number),
  /** Events in the queue, counted up to a bound; null for a time at which nobody looked. */
  queued: Schema.NullOr(Schema.Int),
  /** 0 when the queue is empty; null for a time at which nobody looked. */
  oldestQueuedSeconds: Schema.NullOr(Schema.Number),
  /** The slowest consumer has yet to read a record that is at least so old; 0 when all have read all, null where that is not known. */
  lagSecondsWorst: Schema.NullOr(Schema.Number)
}).annotate({ identifier: "Sample" })
export type Sample = typeof Sample.Type
