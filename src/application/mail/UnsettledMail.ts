/**
 * An operator's decisions about mail without a good end: it is sent again, called delivered, or given up.
 *
 * A mail has the id of its task. The task's row is locked before the delivery's, as in the transaction that ends a task.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { Preview } from "../../operations/reports/ReportSql.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import { TaskId, TaskState } from "../../tasks/TaskType.ts"
import {
  type DeadFilter,
  type ListFilter,
  type MailCause,
  type MailCounts,
  type MailFilter,
  type MailPage,
  MailStatus,
  over,
  statusSql
} from "./MailReport.ts"

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

/** The result of a retry of many: `skipped` mails were taken by somebody else meanwhile, `mayBeCopies` may arrive a second time. */
export const RetriedMail = Schema.Struct({ retried: Schema.Int, skipped: Schema.Int, mayBeCopies: Schema.Int })
export type RetriedMail = typeof RetriedMail.Type

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

const firstTask = Rows.first(Schema.Struct({ taskState: TaskState }))
const oneDelivery = Rows.first(Schema.Struct({ status: MailStatus, uncertainSends: Schema.Int }))

export class UnsettledMail extends Context.Service<
  UnsettledMail,
  {
    /** At most `limit` mails, newest first. */
    readonly list: (filter: ListFilter, limit: number) => Effect.Effect<MailPage>
    /** Why the mails that match were not sent, the most frequent cause first. */
    readonly causes: (filter: MailFilter, limit: number) => Effect.Effect<ReadonlyArray<MailCause>>
    readonly counts: Effect.Effect<MailCounts>
    /** Sends all dead mails that match again, those that were dead when it began. Each is audited. */
    readonly retryAll: (filter: DeadFilter, operator: OperatorAudit.Operator) => Effect.Effect<RetriedMail>
    /** What {@link retryAll} would send now. Changes nothing. */
    readonly preview: (filter: DeadFilter) => Effect.Effect<Preview>
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

        const { deadIds, ...report } = over(client)

        const retryAll = Effect.fn("UnsettledMail.retryAll")(function* (
          filter: DeadFilter,
          operator: OperatorAudit.Operator
        ) {
          const found = yield* deadIds(filter)
          let retried = 0
          let mayBeCopies = 0
          // One transaction each: the others don't wait for a mail that is being sent.
          for (const { id } of found) {
            const handled = yield* Effect.catch(retry(id, operator), () => Effect.succeed(undefined))
            if (handled?.changed !== true) continue
            retried += 1
            if (handled.mayBeCopy) mayBeCopies += 1
          }
          return { retried, skipped: found.length - retried, mayBeCopies }
        })

        return UnsettledMail.of({ ...report, retry, retryAll, resolve })
      })
    )
}
