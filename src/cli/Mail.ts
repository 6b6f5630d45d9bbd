/** `paid-once mail list|retry|resolve`: mail that was not sent, or of which nobody knows whether it arrived. */
import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { type HandledMail, MailState, Resolution, UnsettledMail } from "../application/mail/UnsettledMail.ts"
import { TaskId } from "../tasks/TaskType.ts"
import { by, json, onDatabase, operatorOf, pageFilter, pageFlags, print, printPage, reason } from "./Operator.ts"

const mailId = Argument.String("mail-id").pipe(
  Argument.withDescription("the mail's id, as `mail list` shows it"),
  Argument.withSchema(TaskId)
)

const list = Command.make(
  "list",
  {
    json,
    status: Flag.Literals("status", MailState.literals).pipe(
      Flag.withDescription("only mails in this state (default: all that are not sent, given up, or being sent)"),
      Flag.optional
    ),
    ...pageFlags(TaskId)
  },
  Effect.fnUntraced(function* ({ json, limit, status, ...flags }) {
    const filter = { ...pageFilter(flags), ...(Option.isSome(status) ? { status: status.value } : {}) }
    const page = yield* onDatabase(UnsettledMail.use((mail) => mail.list(filter, limit)))
    yield* printPage(json, page, ["MAIL", "STATUS", "TASK", "KIND", "TO", "SENDS", "NEXT", "LAST ERROR"], (mail) => [
      mail.id,
      mail.status,
      mail.taskState,
      mail.kind,
      mail.recipient,
      String(mail.sends),
      mail.nextSendAt ?? "",
      mail.lastError ?? ""
    ])
  })
).pipe(Command.withDescription("List mails that were not sent, or of unknown outcome; newest first"))

const printHandled = (asJson: boolean, mail: HandledMail, done: string) =>
  print(asJson, mail, () => [
    `Mail ${mail.id} ${mail.changed ? done : `is ${mail.status} already, or about to be sent`}.`
  ])

const retry = Command.make(
  "retry",
  { json, mailId, reason, by },
  Effect.fnUntraced(function* ({ by, json, mailId, reason }) {
    const handled = yield* onDatabase(UnsettledMail.use((mail) => mail.retry(mailId, operatorOf({ by, reason }))))
    if (handled.mayBeCopy) {
      yield* Console.error("paid-once: an earlier send had no answer: its receiver may get a second copy")
    }
    yield* printHandled(json, handled, "is sent again")
  })
).pipe(Command.withDescription("Send a mail again, now; where its outcome is unknown that may be a second copy"))

const resolve = Command.make(
  "resolve",
  {
    json,
    mailId,
    as: Flag.Literals("as", Resolution.literals).pipe(
      Flag.withDescription("delivered, where its receiver has it; given-up, where it is not to be sent any more")
    ),
    reason,
    by
  },
  Effect.fnUntraced(function* ({ as, by, json, mailId, reason }) {
    const handled = yield* onDatabase(UnsettledMail.use((mail) => mail.resolve(mailId, as, operatorOf({ by, reason }))))
    yield* printHandled(json, handled, `is ${handled.status} by your word`)
  })
).pipe(Command.withDescription("Say what has become of a mail of unknown outcome, or give an unsent one up"))

/** The command. */
export const mail = Command.make("mail").pipe(
  Command.withDescription("Mail that was not sent, or of unknown outcome: look, send again, resolve"),
  Command.withSubcommands([list, retry, resolve])
)
