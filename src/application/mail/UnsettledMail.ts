/**
 * An operator's decisions about mail without a good end: it is sent again, called delivered, or given up.
 *
 * A mail has the id of its task. The task's row is locked before the delivery's, as in the transaction that ends a task.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { isoTime } from "../../platform/IsoTime.ts"
import * as TaskReport from "../../operations/reports/TaskReport.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import * as Pages from "../../platform/Pages.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { emailType } from "../tasks/Email.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import { TaskId, TaskState } from "../../tasks/TaskType.ts"

/**
 * The state of a mail's delivery. `retrying`: its last send failed, and another one follows; `failed`: none follows. `given-up`: it is not sent any
 * more, for its task was cancelled.
 */
export const MailStatus = Schema.Literals(["sending", "sent", "retrying", "failed", "uncertain", "refused", "given-up"])
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

/** Which mails. Without `status` those that were not sent at their last try, or are dead. */
export const MailFilter = Schema.Struct({
  status: Schema.optionalKey(MailState),
  /** Only mails that changed in these last seconds. */
  sinceSeconds: Schema.optionalKey(Schema.Finite),
  /** Only mails that are older than this one. */
  cursor: Schema.optionalKey(TaskId)
})

/** Mails without a good end, counted up to {@link countLimit}. */
export const MailCounts = Schema.Struct({
  /** Not sent at their last try, and sent again later. */
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

/** What has become of a mail whose outcome is unknown. */
export const Resolution = Schema.Literals(["delivered", "given-up"])
export type Resolution = typeof Resolution.Type

/** A mail after a decision. `changed` is false where it was so before. */
export const HandledMail = Schema.Struct({
  id: TaskId,
  status: MailStatus,
  changed: Schema.Boolean,
  /** An earlier send may have arrived: this one can be its second copy. */
  mayBeCopy: Schema.Boolean
})
export type HandledMail = typeof HandledMail.Type

/** No mail has this id. */
export class MailNotFound extends Schema.TaggedError<MailNotFound>()("MailNotFound", { id: Schema.String }) {
  override get message() {
    return `there is no mail ${this.id}: it was never begun, or cleanup has taken it away`
  }
}

/** The mail's state does not allow the decision. Nothing was changed. */
export class MailNotPossible extends Schema.TaggedError<MailNotPossible>()("MailNotPossible", {
  id: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `mail ${this.id} ${this.reason}`
  }
}

type Refusal = MailNotFound | MailNotPossible

const statusSql = `CASE WHEN m.status <> 'sent' AND t.state IN ('cancelled', 'completed') THEN 'given-up'
  WHEN m.status = 'failed' AND t.state <> 'dead' THEN 'retrying' ELSE m.status END`
const taskStateSql = "CASE t.state WHEN 'failed' THEN 'retrying' ELSE t.state END"

const allMails = Rows.all(ListedMail)
const oneCount = Rows.one(MailCounts)
const firstTask = Rows.first(Schema.Struct({ taskState: TaskState }))
const oneDelivery = Rows.first(Schema.Struct({ status: MailStatus, uncertainSends: Schema.Int }))

export class UnsettledMail extends Context.Service<
  UnsettledMail,
  {
    /** At most `limit` mails, newest first. */
    readonly list: (filter: typeof MailFilter.Type, limit: number) => Effect.Effect<MailPage>
    readonly counts: Effect.Effect<MailCounts>
    /** Sends the mail again, with its Message-ID. One that waits for its next try is sent now. Audited. */
    readonly retry: (id: TaskId, operator: OperatorAudit.Operator) => Effect.Effect<HandledMail, Refusal>
    /** Ends a mail by the operator's word: one of unknown outcome was delivered; or any unsent one is given up. Audited. */
    readonly resolve: (
      id: TaskId,
      as: Resolution,
      operator: OperatorAudit.Operator
    ) => Effect.Effect<HandledMail, Refusal>
  }
>()("paid-once/application/mail/UnsettledMail") {
  static readonly layer: Layer.Layer<UnsettledMail, never, Tasks | PgClient.PgClient | SqlClient.SqlClient> =
    Layer.effect(
      UnsettledMail,
      Effect.gen(function* () {
        const client = yield* SqlClient.SqlClient
        const database = yield* PgClient.PgClient
        const tasks = yield* Tasks
        const status_ = client.literal(statusSql)

        /** The mail, locked, and none that a worker is sending now. */
        const lock = Effect.fnUntraced(function* (id: TaskId) {
          const { sql } = yield* Transaction
          const task = yield* Effect.orDie(
            firstTask(sql`SELECT state AS "taskState" FROM outbox_tasks WHERE task_id = ${id}::uuid FOR UPDATE`)
          )
          const mail = yield* Effect.orDie(
            oneDelivery(sql`
              SELECT ${status_} AS status, m.uncertain_sends AS "uncertainSends"
              FROM mail_deliveries AS m JOIN outbox_tasks AS t USING (task_id) WHERE m.task_id = ${id}::uuid FOR UPDATE OF m`)
          )
          if (task === undefined || mail === undefined) return yield* new MailNotFound({ id })
          if (task.taskState === "processing") {
            return yield* new MailNotPossible({ id, reason: "is being sent now: look again in a minute" })
          }
          return { ...task, ...mail }
        })

        /** The operator's word about its last send: it has no outcome of its own any more, also where its worker died. */
        const mark = Effect.fnUntraced(function* (id: TaskId, status: "sent" | "uncertain") {
          const { sql } = yield* Transaction
          yield* Effect.orDie(sql`
            UPDATE mail_deliveries
            SET status = ${status}, updated_at = clock_now(), sent_at = CASE WHEN ${status} = 'sent' THEN clock_now() END,
                uncertain_sends = uncertain_sends + CASE WHEN status = 'sending' THEN 1 ELSE 0 END
            WHERE task_id = ${id}::uuid`)
        })

        type Locked = Effect.Success<ReturnType<typeof lock>>

        /** One decision: a transaction with its entry in the audit. `act` returns the mail's new status; undefined changes nothing. */
        const decide = <E>(
          id: TaskId,
          action: string,
          operator: OperatorAudit.Operator,
          act: (mail: Locked) => Effect.Effect<MailStatus | undefined, E, Transaction>
        ) =>
          Effect.gen(function* () {
            const mail = yield* lock(id)
            const { status: before, taskState, uncertainSends } = mail
            const mayBeCopy = uncertainSends > 0 || before === "sending"
            const status = yield* act(mail)
            if (status === undefined) return { id, status: before, changed: false, mayBeCopy }
            yield* Effect.orDie(
              OperatorAudit.record({
                ...operator,
                action,
                subject: "mail",
                subjectId: id,
                before: { status: before, taskState },
                after: { status }
              })
            )
            const { afterCommit } = yield* Transaction
            yield* afterCommit(OperatorAudit.log(operator, `${action} of mail ${id}: ${status}`))
            return { id, status, changed: true, mayBeCopy }
          }).pipe(Transaction.run, Effect.provideService(PgClient.PgClient, database))

        const impossible = (id: TaskId, reason: string) => Effect.fail(new MailNotPossible({ id, reason }))

        const list = Effect.fn("UnsettledMail.list")(function* (filter: typeof MailFilter.Type, limit: number) {
          const { cursor, sinceSeconds, status } = filter
          const wanted: Statement.Fragment =
            status === undefined
              ? client`m.status <> 'sent' AND t.state IN ('dead', 'pending', 'failed')`
              : status === "dead"
                ? client`m.status <> 'sent' AND t.state = 'dead'`
                : status === "sent"
                  ? client`m.status = 'sent'`
                  : client`m.status <> 'sent' AND ${status_} = ${status}`
          const found = yield* allMails(client`
            SELECT m.task_id::text AS id, m.kind, m.recipient, m.subject, ${status_} AS status, ${client.literal(taskStateSql)} AS "taskState", m.sends,
                   m.uncertain_sends AS "uncertainSends", m.last_error AS "lastError",
                   CASE WHEN t.state IN ('pending', 'failed') THEN ${client.literal(isoTime("t.execute_at"))} END AS "nextSendAt",
                   ${client.literal(isoTime("m.updated_at"))} AS "updatedAt"
            FROM mail_deliveries AS m JOIN outbox_tasks AS t USING (task_id)
            WHERE ${client.and([
              wanted,
              ...(cursor === undefined ? [] : [client`m.task_id < ${cursor}::uuid`]),
              ...(sinceSeconds === undefined
                ? []
                : [client`m.updated_at >= clock_now() - ${sinceSeconds}::float8 * interval '1 second'`])
            ])}
            ORDER BY m.task_id DESC LIMIT ${limit + 1}`)
          return Pages.page(found, limit)
        }, Effect.orDie)

        /** The deliveries behind tasks in these states, by an index of the tasks. */
        const unsent = (states: Statement.Fragment) => client`(
          SELECT m.status, t.finished_at FROM outbox_tasks AS t JOIN mail_deliveries AS m USING (task_id)
          WHERE t.task_type = ${emailType.name} AND ${states} AND m.status <> 'sent' LIMIT ${countLimit})`
        const counts = Effect.orDie(
          oneCount(client`
            SELECT (SELECT count(*) FROM ${unsent(client`t.state IN ('pending', 'failed')`)} AS w)::int4 AS waiting,
                   count(*)::int4 AS dead,
                   (count(*) FILTER (WHERE d.status IN ('uncertain', 'sending')))::int4 AS uncertain,
                   extract(epoch FROM clock_now() - min(d.finished_at))::float8 AS "deadSeconds"
            FROM ${unsent(client`t.state = 'dead'`)} AS d`)
        )

        const retry = Effect.fn("UnsettledMail.retry")((id: TaskId, operator: OperatorAudit.Operator) =>
          decide(id, "retry", operator, ({ status, taskState }) =>
            Effect.gen(function* () {
              if (status === "sent") return yield* impossible(id, "was delivered")
              if (taskState === "pending") return undefined
              // A mail whose worker died would be held once more, and not sent.
              if (status === "sending") yield* mark(id, "uncertain")
              const { changed } = yield* Effect.orDie(tasks.retry(id, operator))
              if (status === "sending") return "uncertain" as const
              return changed ? (status === "failed" ? "retrying" : status) : undefined
            })
          )
        )

        const resolve = Effect.fn("UnsettledMail.resolve")(
          (id: TaskId, as: Resolution, operator: OperatorAudit.Operator) =>
            decide(id, "resolve", operator, ({ status }) =>
              Effect.gen(function* () {
                if (as === "given-up") {
                  if (status === "sent") return yield* impossible(id, "was delivered")
                  if (status === "given-up") return undefined
                  yield* Effect.orDie(tasks.cancel(id, operator))
                  return "given-up" as const
                }
                if (status === "sent") return undefined
                if (status !== "uncertain" && status !== "sending") {
                  return yield* impossible(id, `is ${status}, and its outcome is known: send it again, or give it up`)
                }
                yield* mark(id, "sent")
                yield* tasks.settle(id)
                return "sent" as const
              })
            )
        )

        return UnsettledMail.of({ list, counts, retry, resolve })
      })
    )
}
