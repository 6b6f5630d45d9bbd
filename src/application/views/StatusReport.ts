/** What waits, what is paused, and what needs a person: for `paid-once status` and the console's overview alike. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { InboxReport } from "../../operations/reports/InboxReport.ts"
import { OutboxReport } from "../../operations/reports/OutboxReport.ts"
import { PauseDecisions } from "../../operations/pauses/PauseDecisions.ts"
import { TaskReport } from "../../operations/reports/TaskReport.ts"
import * as Rows from "../../platform/Rows.ts"
import { plural } from "../../platform/Plural.ts"
import { UnsettledMail } from "../mail/UnsettledMail.ts"
import { ReconciliationRuns } from "../reconciliation/ReconciliationRuns.ts"
import { PaymentReport } from "./PaymentReport.ts"
import type { Decision, StatusView } from "./StatusView.ts"
import { emailType } from "../tasks/Email.ts"
import { Subscribers } from "../Timeline.ts"

const Ages = Schema.Struct({
  outbox: Schema.NullOr(Schema.Number),
  consumers: Schema.Array(
    Schema.Struct({ consumer: Schema.String, dead: Schema.NullOr(Schema.Number), gap: Schema.NullOr(Schema.Number) })
  )
})
/** Since when the first thing of each kind waits for a person, in seconds; null where nothing does. */
type Ages = typeof Ages.Type
const oneAges = Rows.one(Ages)

type Counted = Omit<StatusView, "decisions">

/** What the last reconciliation has left. */
type Open = Effect.Success<ReconciliationRuns["Service"]["open"]>

/** Dead tasks that are no mails, by type: a dead mail is decided about as a mail. */
const deadTasks = ({ mail, tasks }: Counted) =>
  tasks
    .filter(({ state }) => state === "dead")
    .map(({ count, type, ...dead }) => ({
      ...dead,
      type,
      count: type === emailType.name ? Math.max(0, count - mail.dead) : count
    }))
    .filter(({ count }) => count > 0)

const oldest = (ages: ReadonlyArray<number | null>) => {
  const known = ages.filter((age) => age !== null)
  return known.length === 0 ? null : Math.max(...known)
}

/** What needs a person, the oldest first. */
const decisionsIn = (counted: Counted, ages: Ages, open: Open): ReadonlyArray<Decision> => {
  const { consumers, mail, outbox, payments } = counted
  const dead = deadTasks(counted)
  const deadCount = dead.reduce((sum, { count }) => sum + count, 0)
  const all: ReadonlyArray<Decision> = [
    {
      kind: "payment",
      count: payments.manual,
      sinceSeconds: payments.manualSeconds,
      what: plural(payments.manual, "payment of unknown outcome", "payments of unknown outcome"),
      page: "payments?status=manual",
      command: "paid-once payments list --status manual"
    },
    {
      kind: "outbox event",
      count: outbox.dead,
      sinceSeconds: ages.outbox,
      what: plural(outbox.dead, "event that the broker refused", "events that the broker refused"),
      page: "dead-letters",
      command: "paid-once outbox list"
    },
    ...consumers.flatMap(({ consumer, dead, gaps }): ReadonlyArray<Decision> => {
      const since = ages.consumers.find((age) => age.consumer === consumer)
      return [
        {
          kind: "inbox event",
          consumer,
          count: dead,
          sinceSeconds: since?.dead ?? null,
          what: plural(dead, `event that ${consumer} can't apply`, `events that ${consumer} can't apply`),
          page: `dead-letters?side=inbox&consumer=${consumer}`,
          command: `paid-once inbox list --consumer ${consumer}`
        },
        {
          kind: "gap",
          consumer,
          count: gaps,
          sinceSeconds: since?.gap ?? null,
          what: plural(
            gaps,
            `order of which ${consumer} misses an event`,
            `orders of which ${consumer} misses an event`
          ),
          page: `dead-letters?side=inbox&consumer=${consumer}&status=gap`,
          command: `paid-once inbox list --consumer ${consumer} --status gap`
        }
      ]
    }),
    {
      kind: "task",
      count: deadCount,
      sinceSeconds: oldest(dead.map(({ sinceSeconds }) => sinceSeconds)),
      what: plural(deadCount, "dead task", "dead tasks"),
      page: "tasks?state=dead",
      command: "paid-once tasks list --by-cause"
    },
    {
      kind: "mail",
      count: mail.dead,
      sinceSeconds: mail.deadSeconds,
      what: plural(mail.dead, "mail that nobody sends any more", "mails that nobody sends any more"),
      page: "mail?status=dead",
      command: "paid-once mail list --status dead"
    },
    {
      kind: "difference",
      count: open.differences,
      sinceSeconds: open.sinceSeconds,
      what: plural(open.differences, "difference between the books", "differences between the books"),
      page: "reconciliation",
      command: "paid-once reconcile"
    }
  ]
  return all
    .filter(({ count }) => count > 0)
    .toSorted((one, other) => (other.sinceSeconds ?? 0) - (one.sinceSeconds ?? 0))
}

export class StatusReport extends Context.Service<
  StatusReport,
  {
    /** Reads it all, statement by statement: a report keeps one connection busy, and never many. */
    readonly read: Effect.Effect<StatusView>
  }
>()("paid-once/application/StatusReport") {
  static readonly layer: Layer.Layer<
    StatusReport,
    never,
    | InboxReport
    | OutboxReport
    | PauseDecisions
    | PaymentReport
    | ReconciliationRuns
    | SqlClient.SqlClient
    | Subscribers
    | TaskReport
    | UnsettledMail
  > = Layer.effect(
    StatusReport,
    Effect.gen(function* () {
      const inbox = yield* InboxReport
      const mail = yield* UnsettledMail
      const outbox = yield* OutboxReport
      const pauses = yield* PauseDecisions
      const payments = yield* PaymentReport
      const reconciliations = yield* ReconciliationRuns
      const sql = yield* SqlClient.SqlClient
      const tasks = yield* TaskReport
      const { names } = yield* Subscribers

      const age = (from: string) => sql.literal(`extract(epoch FROM clock_now() - (${from}))::float8`)
      /** Each age is the first entry of an index. */
      const ages = oneAges(sql`
          SELECT ${age("SELECT min(ended_at) FROM outbox_dead_letters WHERE status = 'dead'")} AS outbox,
                 (SELECT coalesce(json_agg(json_build_object(
                    'consumer', c.name,
                    'dead', ${age("SELECT min(ended_at) FROM inbox_dead_letters WHERE status = 'dead' AND consumer_name = c.name")},
                    'gap', ${age("SELECT min(held_at) FROM inbox_holds WHERE status = 'gap' AND consumer_name = c.name")})), '[]')
                  FROM unnest(${[...names]}::text[]) AS c(name)) AS consumers`)

      const read = Effect.gen(function* () {
        const paused = yield* pauses.all
        const counted: Counted = {
          outbox: yield* outbox.status,
          consumers: (yield* inbox.status(names)).map((one) => ({
            ...one,
            isPaused: paused.some(({ kind, name }) => kind === "consumer" && name === one.consumer)
          })),
          tasks: yield* tasks.counts,
          payments: yield* payments.counts,
          mail: yield* mail.counts,
          paused
        }
        return { ...counted, decisions: decisionsIn(counted, yield* Effect.orDie(ages), yield* reconciliations.open) }
      }).pipe(Effect.withSpan("StatusReport.read"))

      return StatusReport.of({ read })
    })
  )
}
