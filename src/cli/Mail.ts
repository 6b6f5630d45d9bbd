/** `paid-once mail list|retry|resolve`: mail that was not sent, or of which nobody knows whether it arrived. */
import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { DeadMailState, type MailCause, MailState } from "../application/mail/MailReport.ts"
import { type HandledMail, Resolution, UnsettledMail } from "../application/mail/UnsettledMail.ts"
import type { Preview } from "../operations/reports/ReportSql.ts"
import { countOf, plural } from "../platform/Plural.ts"
import { TaskId } from "../tasks/TaskType.ts"
import {
  by,
  byCause,
  json,
  onDatabase,
  operatorOf,
  pageFilter,
  pageFlags,
  print,
  printPage,
  reason,
  since,
  table
} from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

const mailId = Argument.String("mail-id").pipe(
  Argument.withDescription("the mail's id, as `mail list` shows it"),
  Argument.withSchema(TaskId)
)

const filters = {
  cause: Flag.String("cause").pipe(
    Flag.withDescription("only mails that failed so, in the words of `mail list --by-cause`"),
    Flag.optional
  ),
  order: Flag.String("order").pipe(Flag.withDescription("only mails about the order with this id"), Flag.optional),
  customer: Flag.String("customer").pipe(
    Flag.withDescription("only mails to this customer, by id or address"),
    Flag.optional
  )
}
const filterOf = (flags: { readonly [Key in keyof typeof filters]: Option.Option<string> }) => ({
  cause: Option.getOrUndefined(flags.cause),
  order: Option.getOrUndefined(flags.order),
  customer: Option.getOrUndefined(flags.customer)
})

const grouped = (causes: ReadonlyArray<MailCause>) =>
  causes.length === 0
    ? ["None."]
    : table([
        ["MAILS", "STATUS", "TASK", "FIRST", "LAST", "CAUSE"],
        ...causes.map(({ cause, count, first, last, status, taskState }) => [
          String(count),
          status,
          taskState,
          first,
          last,
          cause
        ])
      ])

const list = Command.make(
  "list",
  {
    json,
    status: Flag.Literals("status", MailState.literals).pipe(
      Flag.withDescription("only mails in this state (default: all that are not sent, given up, or being sent)"),
      Flag.optional
    ),
    byCause,
    ...filters,
    ...pageFlags(TaskId)
  },
  Effect.fnUntraced(function* ({ byCause, json, limit, status, ...flags }) {
    const filter = { ...pageFilter(flags), ...filterOf(flags), status: Option.getOrUndefined(status) }
    if (byCause) {
      const causes = yield* onDatabase(UnsettledMail.use((mail) => mail.causes(filter, limit)))
      return yield* print(json, { items: causes }, () => grouped(causes))
    }
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

const previewed = ({ groups, matching }: Preview) => [
  matching === 0 ? "Nothing matches." : `${countOf(matching, "dead mail")} would be sent again:`,
  ...table(groups.map(({ cause, count }) => [String(count), cause]))
]

const retry = Command.make(
  "retry",
  {
    json,
    mailId: Argument.optional(mailId),
    all: Flag.Boolean("all").pipe(
      Flag.withDescription("every dead mail; or narrow it down with --status, --cause, --order, --customer, --since"),
      Flag.withDefault(false)
    ),
    status: Flag.Literals("status", DeadMailState.literals).pipe(
      Flag.withDescription("every dead mail in this state; dead means any"),
      Flag.optional
    ),
    ...filters,
    since,
    dryRun: Flag.Boolean("dry-run").pipe(
      Flag.withDescription("say how many mails it would send again, and why they were not sent; send none"),
      Flag.withDefault(false)
    ),
    reason: Flag.optional(reason),
    by
  },
  Effect.fnUntraced(function* ({ all, by, dryRun, json, mailId, reason, since, status, ...flags }) {
    const filter = {
      ...filterOf(flags),
      status: Option.getOrUndefined(status),
      sinceSeconds: Option.getOrUndefined(since)
    }
    const many = all || Object.values(filter).some((value) => value !== undefined)
    if (Option.isSome(mailId) === many || (dryRun && !many)) {
      yield* Console.error(
        "paid-once: retry takes a mail id, or else --all, --status, --cause, --order, --customer or --since, with --dry-run or without"
      )
      return yield* Effect.fail(new ExitStatus(2))
    }
    if (dryRun) {
      const preview = yield* onDatabase(UnsettledMail.use((mail) => mail.preview(filter)))
      return yield* print(json, preview, () => previewed(preview))
    }
    if (Option.isNone(reason)) {
      yield* Console.error("paid-once: retry needs --reason, but with --dry-run")
      return yield* Effect.fail(new ExitStatus(2))
    }
    const operator = operatorOf({ by, reason: reason.value })
    if (Option.isSome(mailId)) {
      const handled = yield* onDatabase(UnsettledMail.use((mail) => mail.retry(mailId.value, operator)))
      if (handled.mayBeCopy) {
        yield* Console.error("paid-once: an earlier send had no answer: its receiver may get a second copy")
      }
      return yield* printHandled(json, handled, "is sent again")
    }
    const done = yield* onDatabase(UnsettledMail.use((mail) => mail.retryAll(filter, operator)))
    if (done.mayBeCopies > 0) {
      yield* Console.error(
        `paid-once: of ${countOf(done.mayBeCopies, "mail")} an earlier send had no answer: ${plural(done.mayBeCopies, "its receiver", "their receivers")} may get a second copy`
      )
    }
    yield* print(json, done, () => [`Sending ${countOf(done.retried, "mail")} again.`])
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
export const mail = Command.make("mail").pipe(Command.withSubcommands([list, retry, resolve]))
