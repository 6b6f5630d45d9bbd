/** `paid-once audit list`: who decided what, and why. */
import { Option } from "effect"
import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { AuditReport, Cursor } from "../operations/reports/AuditReport.ts"
import { auditSubjects } from "../application/views/AuditSubjects.ts"
import { current } from "./Terminal.ts"
import { json, knownIfGiven, onDatabase, pageFilter, pageFlags, printPage } from "./Operator.ts"

const text = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.optional)

/** The state in what was recorded, or all of it where there is none. */
const stateOf = (recorded: unknown): string => {
  const { state, status = state } = (recorded ?? {}) as { readonly state?: unknown; readonly status?: unknown }
  return typeof status === "string" ? status : JSON.stringify(recorded)
}

const list = Command.make(
  "list",
  {
    json,
    actor: text("actor", "only decisions of this operator"),
    action: text("action", "only this kind of decision, for example retry or settle"),
    subject: text("subject", "only about this kind of thing, for example payment or 'outbox event'"),
    id: text("id", "only about the thing with this id or name"),
    ...pageFlags(Cursor)
  },
  Effect.fnUntraced(function* ({ action, actor, id, json, limit, subject, ...flags }) {
    const { cursor, ...ofTime } = pageFilter(flags)
    const filter = {
      actor: Option.getOrUndefined(actor),
      action: Option.getOrUndefined(action),
      subject: yield* knownIfGiven("subject", auditSubjects, subject),
      subjectId: Option.getOrUndefined(id),
      ...ofTime
    }
    const page = yield* onDatabase(AuditReport.use((report) => report.list(filter, { limit, cursor })))
    // A terminal has no room for the whole of both. A pipe does.
    const isTerminal = current().width !== undefined
    const changed = isTerminal ? ["CHANGE"] : ["BEFORE", "AFTER"]
    yield* printPage(json, page, ["AT", "WHO", "DID", "TO", ...changed, "WHY"], (entry) => [
      entry.at,
      entry.actor,
      entry.action,
      `${entry.subject} ${entry.subjectId}`,
      ...(isTerminal
        ? [`${stateOf(entry.before)} → ${stateOf(entry.after)}`]
        : [JSON.stringify(entry.before), JSON.stringify(entry.after)]),
      entry.reason
    ])
  })
).pipe(Command.withDescription("List operators' decisions, the newest first"))

/** The command. */
export const audit = Command.make("audit").pipe(Command.withSubcommands([list]))
