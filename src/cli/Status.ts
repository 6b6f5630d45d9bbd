/** `paid-once status`: one screen of what waits, what is paused, and what needs a person. */
import { Effect } from "effect"
import { Command } from "effect/cli"
import { PaymentReport } from "../application/PaymentReport.ts"
import * as Main from "../main.ts"
import { InboxReport } from "../operations/InboxReport.ts"
import { OutboxReport } from "../operations/OutboxReport.ts"
import { PauseDecisions } from "../operations/pauses/PauseDecisions.ts"
import { TaskReport } from "../operations/TaskReport.ts"
import { json, onDatabase, print, table } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

/** A person acts the same on more. */
const paymentLimit = 1_000

const read = Effect.gen(function* () {
  const payments = yield* PaymentReport
  const inbox = yield* InboxReport
  const waiting = yield* payments.list({}, paymentLimit)
  const paymentsIn = (status: string) => waiting.items.filter((payment) => payment.status === status).length
  return {
    outbox: yield* (yield* OutboxReport).status,
    consumers: yield* Effect.forEach(Main.consumerNames, (consumer) =>
      Effect.map(inbox.counts(consumer), (counts) => ({ consumer, ...counts }))
    ),
    tasks: yield* (yield* TaskReport).counts,
    payments: {
      manual: paymentsIn("manual"),
      charging: paymentsIn("charging"),
      refunding: paymentsIn("refunding"),
      areMore: waiting.nextCursor !== null
    },
    paused: yield* (yield* PauseDecisions).all
  }
})
type Found = Effect.Success<typeof read>

/** What needs a decision, each with the command that shows it. */
const decisionsIn = ({ consumers, outbox, payments, tasks }: Found): ReadonlyArray<string> => {
  const dead = tasks.filter(({ state }) => state === "dead").reduce((sum, { count }) => sum + count, 0)
  const needs: ReadonlyArray<readonly [number, string, string]> = [
    [outbox.dead, "events that the broker refused", "outbox list"],
    ...consumers.flatMap(({ consumer, dead, gaps }) => [
      [dead, `events that ${consumer} can't apply`, `inbox list --consumer ${consumer}`] as const,
      [gaps, `orders of which ${consumer} misses an event`, `inbox list --consumer ${consumer} --status gap`] as const
    ]),
    [dead, "dead tasks", "tasks list --by-cause"],
    [payments.manual, "payments of unknown outcome", "payments list --status manual"]
  ]
  return needs.flatMap(([count, what, command]) => (count === 0 ? [] : [`${count} ${what}: paid-once ${command}`]))
}

const shown = (found: Found): ReadonlyArray<string> => {
  const { consumers, outbox, paused, payments, tasks } = found
  const decisions = decisionsIn(found)
  return [
    ...table([
      [
        "outbox",
        `${outbox.queued} queued, the oldest for ${outbox.oldestQueuedSeconds.toFixed(1)} s`,
        `${outbox.retrying} retrying, ${outbox.parked} parked, ${outbox.dead} dead`
      ],
      ...consumers.map(({ consumer, dead, gaps, parked }) => [
        consumer,
        `${parked} parked`,
        `${dead} dead, ${gaps} gaps`
      ]),
      ["payments", `${payments.charging} charging, ${payments.refunding} refunding`, `${payments.manual} manual`],
      ...tasks.map(({ count, state, type }) => [`task ${type}`, `${count} ${state}`, ""])
    ]),
    ...(payments.areMore ? [`Payments are counted up to ${paymentLimit}, the newest ones.`] : []),
    ...paused.map(
      ({ actor, kind, name, pausedAt, reason }) => `Paused: ${kind} ${name}, since ${pausedAt} by ${actor}: ${reason}`
    ),
    "",
    ...(decisions.length === 0
      ? ["Nothing needs a decision."]
      : ["Needs a decision:", ...decisions.map((line) => `  ${line}`)])
  ]
}

/** The command. */
export const status = Command.make(
  "status",
  { json },
  Effect.fnUntraced(function* ({ json }) {
    const found = yield* onDatabase(read)
    const needsDecision = decisionsIn(found)
    yield* print(json, { ...found, needsDecision }, () => shown(found))
    if (needsDecision.length > 0) return yield* Effect.fail(new ExitStatus(1))
  })
).pipe(Command.withDescription("What waits, what is paused, and what needs a person; exit status 1 if something does"))
