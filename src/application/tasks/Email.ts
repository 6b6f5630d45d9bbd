/**
 * The task `email`: one mail, whose Message-ID is made of its task's key, the event's id: a task that was lost and asked for again sends a copy, and no
 * second mail. A task without a key has its own id there.
 *
 * A mail can't be taken back, and a mail server has no idempotency keys. The mail is sent once, unless the worker fails between the send and
 * the commit of its outcome. Then the mail is `uncertain`, and its kind decides whether it is sent again.
 */
import { Effect, Schema } from "effect"
import { Faults } from "../../platform/Faults.ts"
import * as TaskHandler from "../../tasks/TaskHandler.ts"
import type { TaskType } from "../../tasks/TaskType.ts"
import { MailDeliveries, type UncertainPolicy } from "../mail/MailDeliveries.ts"
import { EmailAddress, MailSettings, MailTransport, Subject } from "../mail/MailTransport.ts"

const EmailKind = Schema.Literals(["receipt", "refund-notice"])

/** A customer reads two receipts for one order number as copies, but two notices of a refund as two refunds. */
const uncertainPolicies: Readonly<Record<typeof EmailKind.Type, UncertainPolicy>> = {
  receipt: "resend",
  "refund-notice": "hold"
}

const Payload = Schema.Struct({ kind: EmailKind, to: EmailAddress, subject: Subject, text: Schema.String })

/** The task type, for its callers. */
export const emailType: TaskType<typeof Payload.Type> = {
  name: "email",
  payload: Payload,
  // Mail servers count a client's connections, and some stop at ten.
  concurrency: 5,
  // Twice what a send may take: that leaves time to store its outcome.
  timeoutMillis: 60_000
}

/** Holds the mail until an operator, who has asked its receiver, retries the task. */
const hold = (reason: string) => new TaskHandler.TaskRefused({ reason: `${reason}; it is not sent again by itself` })

export const email = TaskHandler.make(
  emailType,
  Effect.fn("Email.run")(function* ({ idempotencyKey, payload: { kind, subject, text, to }, taskId }) {
    const deliveries = yield* MailDeliveries
    const transport = yield* MailTransport
    const faults = yield* Faults
    const { from } = yield* MailSettings
    const policy = uncertainPolicies[kind]

    const begun = yield* deliveries.begin({ taskId, kind, to, subject }, policy)
    if (begun._tag === "AlreadySent") return
    if (begun._tag === "Held") return yield* hold("an earlier run ended without a word of whether the mail was taken")
    const { send } = begun
    const messageId = `${idempotencyKey ?? taskId}@${from.slice(from.indexOf("@") + 1)}`
    yield* Effect.catchTags(transport.send({ messageId, to, subject, text }), {
      MailUnavailable: (error) => Effect.andThen(deliveries.record(send, "failed", error.message), Effect.fail(error)),
      MailRefused: ({ message }) =>
        Effect.andThen(deliveries.record(send, "refused", message), new TaskHandler.TaskRefused({ reason: message })),
      MailOutcomeUnknown: (error) =>
        Effect.andThen(
          deliveries.record(send, "uncertain", error.message),
          Effect.fail(policy === "hold" ? hold(error.message) : error)
        )
    })
    yield* faults.at("mail.after-send")
    return deliveries.sent(send)
  })
)
