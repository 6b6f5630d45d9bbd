/**
 * The delivery state of each mail. `sending` is committed before the first byte leaves: after a crash the row shows that a send had begun.
 *
 * sending → sent, refused (for good), failed (certainly not taken), uncertain (unknown). Every state but `sent` allows another send. Sends
 * are numbered, and only the outcome of the latest one is stored.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import type { TaskId } from "../../tasks/TaskType.ts"
import type { EmailAddress } from "./MailTransport.ts"

/** How a mail with an unknown outcome is handled: `resend` where a second copy does no harm, `hold` for an operator where it does. */
export type UncertainPolicy = "resend" | "hold"

/** One send of a mail; `number` counts from 1. */
export interface Send {
  readonly taskId: TaskId
  readonly number: number
}

export type Begun =
  | { readonly _tag: "Begun"; readonly send: Send }
  /** An earlier send succeeded. */
  | { readonly _tag: "AlreadySent" }
  /** An earlier send has no outcome, and the policy is not to send again. */
  | { readonly _tag: "Held" }

const delivery = Rows.one(Schema.Struct({ status: Schema.String, sends: Schema.Int }))

export class MailDeliveries extends Context.Service<
  MailDeliveries,
  {
    /** Begins a send, in a transaction of its own, unless the mail was sent already or is held. */
    readonly begin: (
      mail: { readonly taskId: TaskId; readonly kind: string; readonly to: EmailAddress; readonly subject: string },
      policy: UncertainPolicy
    ) => Effect.Effect<Begun>
    /** Stores a send's failure, in a transaction of its own. */
    readonly record: (send: Send, status: "failed" | "uncertain" | "refused", error: string) => Effect.Effect<void>
    /** Stores that the receiving side has accepted the mail. Commits together with the task's end. */
    readonly sent: (send: Send) => Effect.Effect<void, never, Transaction>
  }
>()("paid-once/application/mail/MailDeliveries") {
  static readonly layer: Layer.Layer<MailDeliveries, never, PgClient.PgClient> = Layer.effect(
    MailDeliveries,
    Effect.map(PgClient.PgClient, (client) => {
      const ownTransaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
        Effect.orDie(Effect.provideService(Transaction.run(effect), PgClient.PgClient, client))

      return MailDeliveries.of({
        begin: Effect.fn("MailDeliveries.begin")(function* ({ kind, subject, taskId, to }, policy) {
          const { sql } = yield* Transaction
          const added = yield* sql`
            INSERT INTO mail_deliveries (task_id, kind, recipient, subject, status, created_at, updated_at)
            SELECT ${taskId}::uuid, ${kind}, ${to}, ${subject}, 'sending', clock.now, clock.now
            FROM (SELECT clock_now() AS now) AS clock
            ON CONFLICT DO NOTHING RETURNING 1 AS one`
          if (added.length > 0) return { _tag: "Begun" as const, send: { taskId, number: 1 } }
          const { sends, status } = yield* delivery(sql`
            SELECT status, sends FROM mail_deliveries WHERE task_id = ${taskId}::uuid FOR UPDATE`)
          if (status === "sent") return { _tag: "AlreadySent" as const }
          // The earlier send has no stored outcome: its worker died, lost its lease, or could not store it. A held mail comes back here only
          // when an operator retries it, and that is the decision to send it again.
          const isSilent = status === "sending"
          const isHeld = isSilent && policy === "hold"
          yield* sql`
            UPDATE mail_deliveries
            SET status = ${isHeld ? "uncertain" : "sending"}, sends = sends + ${isHeld ? 0 : 1}::int4,
                uncertain_sends = uncertain_sends + ${isSilent ? 1 : 0}::int4, updated_at = clock_now()
            WHERE task_id = ${taskId}::uuid`
          return isHeld ? { _tag: "Held" as const } : { _tag: "Begun" as const, send: { taskId, number: sends + 1 } }
        }, ownTransaction),
        record: Effect.fn("MailDeliveries.record")(function* ({ number, taskId }, status, error) {
          const { sql } = yield* Transaction
          yield* sql`
            UPDATE mail_deliveries
            SET status = ${status}, last_error = ${error}, updated_at = clock_now(),
                uncertain_sends = uncertain_sends + ${status === "uncertain" ? 1 : 0}::int4
            WHERE task_id = ${taskId}::uuid AND sends = ${number}::int4 AND status = 'sending'`
        }, ownTransaction),
        sent: Effect.fn("MailDeliveries.sent")(function* ({ number, taskId }) {
          const { sql } = yield* Transaction
          yield* sql`
            UPDATE mail_deliveries SET status = 'sent', last_error = NULL, sent_at = clock_now(), updated_at = clock_now()
            WHERE task_id = ${taskId}::uuid AND sends = ${number}::int4`
        }, Effect.orDie)
      })
    })
  )
}
