/**
 * The operator's view of mail: lists, counts, causes, and the preview of a retry of many.
 *
 * A mail begins as a task, and has a row of its own from its first send on: what waits behind a pause is a task alone.
 */
import { Effect, Schema } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import {
  causeOf,
  failedSo,
  listLimit,
  preview as previewOf,
  type Preview,
  countLimit as bulkLimit
} from "../../operations/reports/ReportSql.ts"
import * as TaskReport from "../../operations/reports/TaskReport.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Pages from "../../platform/Pages.ts"
import * as Rows from "../../platform/Rows.ts"
import { TaskId } from "../../tasks/TaskType.ts"
import { emailType } from "../tasks/Email.ts"
import { nameOf } from "./CustomerAddress.ts"

/**
 * The state of a mail's delivery. `waiting`: no send has begun. `retrying`: its last send failed, and another one follows; `failed`: none
 * follows. `given-up`: it is not sent any more, for its task was cancelled.
 */
export const MailStatus = Schema.Literals([
  "waiting",
  "sending",
  "sent",
  "retrying",
  "failed",
  "uncertain",
  "refused",
  "given-up"
])
export type MailStatus = typeof MailStatus.Type

/** A mail. Times are ISO 8601 in UTC. */
export const ListedMail = Schema.Struct({
  id: TaskId,
  kind: Schema.String,
  recipient: Schema.String,
  subject: Schema.String,
  status: MailStatus,
  /** Of its task: a dead one is sent by nobody until an operator decides. */
  taskState: TaskReport.State,
  sends: Schema.Int,
  /** Sends without an answer: each may have arrived. */
  uncertainSends: Schema.Int,
  lastError: Schema.NullOr(Schema.String),
  /** Of the next send; null where none is planned. */
  nextSendAt: Schema.NullOr(Schema.String),
  updatedAt: Schema.String
}).annotate({ identifier: "Mail" })
export type ListedMail = typeof ListedMail.Type

export const MailPage = Schema.Struct({
  items: Schema.Array(ListedMail),
  nextCursor: Schema.NullOr(TaskId)
}).annotate({ identifier: "MailPage" })
export type MailPage = typeof MailPage.Type

/** A state to list: `dead` is a mail that is sent by nobody until an operator decides, whatever its status is. */
export const MailState = Schema.Literals([...MailStatus.literals, "dead"])

/** The states of a dead mail; `dead` is any of them. */
export const DeadMailState = Schema.Literals(["dead", "uncertain", "refused", "failed", "sending"])

/** Which mails; a field that is not set matches all. */
export interface MailFilter {
  readonly cause?: string | undefined
  /** Only mails about this order. */
  readonly order?: string | undefined
  /** Only mails to this customer, by id or address. */
  readonly customer?: string | undefined
  /** Only mails that changed in these last seconds. */
  readonly sinceSeconds?: number | undefined
}

/** Which mails of a list. Without `status` those that are not sent yet, or are dead. */
export interface ListFilter extends MailFilter {
  readonly status?: typeof MailState.Type | undefined
  /** Only mails that are older than this one. */
  readonly cursor?: TaskId | undefined
}

/** Which dead mails. */
export interface DeadFilter extends MailFilter {
  readonly status?: typeof DeadMailState.Type | undefined
}

/** Mails that were not sent for the same reason: their last errors differ in numbers and ids alone. */
export const MailCause = Schema.Struct({
  status: MailStatus,
  taskState: TaskReport.State,
  cause: Schema.String,
  count: Schema.Int,
  /** When the first and the last of them were asked for. */
  first: Schema.String,
  last: Schema.String
})
export type MailCause = typeof MailCause.Type

/** Mails without a good end, counted up to {@link countLimit}. */
export const MailCounts = Schema.Struct({
  /** Not sent yet, and sent by itself: its first send has to come, or its last one failed. */
  waiting: Schema.Int,
  /** Sent by nobody until an operator decides. */
  dead: Schema.Int,
  /** Of the dead ones, those that may have arrived. */
  uncertain: Schema.Int,
  /** Since the first of the dead ones waits; null where there is none. */
  deadSeconds: Schema.NullOr(Schema.Number)
})
export type MailCounts = typeof MailCounts.Type

/** A person acts the same on more. */
const countLimit = 1_000

/** The status of the mail `m` with the task `t`. */
export const statusSql = `CASE WHEN m.status IS NULL THEN 'waiting'
  WHEN m.status <> 'sent' AND t.state IN ('cancelled', 'completed') THEN 'given-up'
  WHEN m.status = 'failed' AND t.state <> 'dead' THEN 'retrying' ELSE m.status END`
const taskStateSql = "CASE t.state WHEN 'failed' THEN 'retrying' ELSE t.state END"
/** A worker that dies during a send leaves its error with the task alone. */
const errorSql = "coalesce(m.last_error, t.last_error)"
const recipientSql = "coalesce(m.recipient, t.payload ->> 'to', '')"

const allMails = Rows.all(ListedMail)
const allCauses = Rows.all(MailCause)
const oneCount = Rows.one(MailCounts)
const ids = Rows.all(Schema.Struct({ id: TaskId }))

/** The reports over a database. */
export const over = (sql: SqlClient.SqlClient) => {
  const status = sql.literal(statusSql)
  const taskState = sql.literal(taskStateSql)
  const mails = sql`outbox_tasks AS t LEFT JOIN mail_deliveries AS m USING (task_id)`

  /** Dead tasks that never began a send are decided about as tasks. */
  const dead = sql`t.state = 'dead' AND m.status <> 'sent'`
  const waiting = sql`t.state IN ('pending', 'failed') AND m.status IS DISTINCT FROM 'sent'`
  const inStatus = (asked: ListFilter["status"]): Statement.Fragment => {
    if (asked === undefined) return sql`((${dead}) OR (${waiting}))`
    if (asked === "dead") return dead
    if (asked === "sent") return sql`m.status = 'sent'`
    if (asked === "waiting") return sql`${waiting} AND m.status IS NULL`
    return sql`m.status <> 'sent' AND ${status} = ${asked}`
  }
  const matching = ({ cause, customer, order, sinceSeconds }: MailFilter) =>
    sql.and([
      sql`t.task_type = ${emailType.name}`,
      failedSo(sql, errorSql, cause),
      // An event asks for a mail by its id.
      ...(order === undefined
        ? []
        : [sql`t.idempotency_key IN (SELECT event_id::text FROM event_log WHERE aggregate_id = ${order})`]),
      ...(customer === undefined
        ? []
        : [
            sql`(${sql.literal(recipientSql)} = ${customer} OR split_part(${sql.literal(recipientSql)}, '@', 1) = ${nameOf(customer)})`
          ]),
      ...(sinceSeconds === undefined
        ? []
        : [sql`coalesce(m.updated_at, t.enqueued_at) >= clock_now() - ${sinceSeconds}::float8 * interval '1 second'`])
    ])
  const deadAnd = ({ status, ...filter }: DeadFilter) =>
    sql`${dead} AND ${matching(filter)} ${status === undefined || status === "dead" ? sql`` : sql`AND m.status = ${status}`}`

  const list = Effect.fn("MailReport.list")(function* (
    { cursor, status: asked, ...filter }: ListFilter,
    limit: number
  ) {
    const found = yield* allMails(sql`
      SELECT t.task_id::text AS id, coalesce(m.kind, t.payload ->> 'kind', '') AS kind, ${sql.literal(recipientSql)} AS recipient,
             coalesce(m.subject, t.payload ->> 'subject', '') AS subject, ${status} AS status, ${taskState} AS "taskState",
             coalesce(m.sends, 0) AS sends, coalesce(m.uncertain_sends, 0) AS "uncertainSends", ${sql.literal(errorSql)} AS "lastError",
             CASE WHEN t.state IN ('pending', 'failed') THEN ${sql.literal(isoTime("t.execute_at"))} END AS "nextSendAt",
             ${sql.literal(isoTime("coalesce(m.updated_at, t.enqueued_at)"))} AS "updatedAt"
      FROM ${mails} WHERE ${inStatus(asked)} AND ${matching(filter)}
        AND ${cursor === undefined ? sql`TRUE` : sql`t.task_id < ${cursor}::uuid`}
      ORDER BY t.task_id DESC LIMIT ${limit + 1}`)
    return Pages.page(found, limit)
  }, Effect.orDie)

  const causes = Effect.fn("MailReport.causes")(
    (filter: MailFilter, limit: number) =>
      allCauses(sql`
        SELECT status, "taskState", cause, count(*)::int4 AS count, ${sql.literal(isoTime("min(enqueued_at)"))} AS first,
               ${sql.literal(isoTime("max(enqueued_at)"))} AS last
        FROM (SELECT ${status} AS status, ${taskState} AS "taskState", ${sql.literal(causeOf(errorSql))} AS cause, t.enqueued_at
              FROM ${mails} WHERE ((${dead}) OR (${waiting} AND t.state = 'failed')) AND ${matching(filter)} LIMIT ${bulkLimit}) AS failed
        GROUP BY status, "taskState", cause ORDER BY count DESC, status, "taskState", cause LIMIT ${Math.min(limit, listLimit)}`),
    Effect.orDie
  )

  /** The mails behind tasks in these states, by an index of the tasks. */
  const unsent = (states: Statement.Fragment) => sql`(
    SELECT m.status, t.finished_at FROM ${mails} WHERE t.task_type = ${emailType.name} AND ${states} LIMIT ${countLimit})`
  const counts: Effect.Effect<MailCounts> = Effect.orDie(
    oneCount(sql`
      SELECT (SELECT count(*) FROM ${unsent(waiting)} AS w)::int4 AS waiting,
             count(*)::int4 AS dead,
             (count(*) FILTER (WHERE d.status IN ('uncertain', 'sending')))::int4 AS uncertain,
             extract(epoch FROM clock_now() - min(d.finished_at))::float8 AS "deadSeconds"
      FROM ${unsent(dead)} AS d`)
  )

  const preview = Effect.fn("MailReport.preview")((filter: DeadFilter): Effect.Effect<Preview> =>
    Effect.orDie(
      previewOf(
        sql,
        sql`SELECT t.task_id::text AS id, ${sql.literal(errorSql)} AS last_error FROM ${mails} WHERE ${deadAnd(filter)}`
      )
    )
  )

  /** The dead mails that match, the oldest first. */
  const deadIds = (filter: DeadFilter) =>
    Effect.orDie(
      ids(sql`
        SELECT t.task_id::text AS id FROM ${mails} WHERE ${deadAnd(filter)} ORDER BY t.finished_at LIMIT ${bulkLimit}`)
    )

  return { list, causes, counts, preview, deadIds }
}
