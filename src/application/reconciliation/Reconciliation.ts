/**
 * The reconciliation: walks through all books, finds where two of them differ, and repairs what the use cases can repair.
 *
 * A difference counts if it is still there after a while: what was under way has ended by then. A run keeps a bounded number of differences, and
 * one page of rows. Repairs come one by one, each in a transaction of its own.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Semaphore, Struct } from "effect"
import { SqlError } from "effect/sql"
import { Cursors } from "../../inbox/Cursors.ts"
import { Inbox } from "../../inbox/Inbox.ts"
import { QueueSettings } from "../../outbox/Queue.ts"
import { Ids } from "../../platform/Ids.ts"
import type { Operator } from "../../platform/OperatorAudit.ts"
import { Outbox } from "../../outbox/Outbox.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import { GatewayLedger } from "../GatewayLedger.ts"
import { Idempotency } from "../Idempotency.ts"
import { Orders } from "../Orders.ts"
import { PaymentOutcomes } from "../PaymentOutcomes.ts"
import { Payments } from "../Payments.ts"
import { Subscribers } from "../Timeline.ts"
import * as Books from "./Books.ts"
import { type Found, isManual, type Mended, nameOf, type NotReadable, type Walk } from "./Difference.ts"
import { trustIn } from "./Doubts.ts"
import * as GatewayWalk from "./GatewayWalk.ts"
import {
  listedLimit,
  type ReconciliationReport,
  ReconciliationRuns,
  type ReportedDifference
} from "./ReconciliationRuns.ts"
import { manual } from "./Repair.ts"
import * as RevenueWalk from "./RevenueWalk.ts"
import { billingRules, ledgerRules } from "./rules/BillingRules.ts"
import { cursorRules, markRules } from "./rules/CursorRules.ts"
import { archiveRules, eventRules } from "./rules/EventRules.ts"
import { inventoryRules, reservationRules } from "./rules/InventoryRules.ts"
import { mailRules, mailTaskRules } from "./rules/MailRules.ts"
import { paymentRules } from "./rules/PaymentRules.ts"
import * as SqlRule from "./SqlRule.ts"
import { TopicHistory } from "./TopicHistory.ts"

export const ReconciliationSettings = Context.Reference<{
  /** How long a difference has to last. A payment's request, or an event's way to a consumer, takes less. */
  readonly graceMillis: number
}>("paid-once/application/reconciliation/ReconciliationSettings", { defaultValue: () => ({ graceMillis: 5_000 }) })

/** Differences of a rule that a run keeps, looks at again and repairs: some hundred kilobytes. Further ones are counted. */
const keptLimit = 1_000

/** Enough of an error for a person to see which field it is about. */
const reasonCharacters = 200

/** The differences of one walk: bounded lists, and counts. */
class Findings {
  readonly kept: Array<Found> = []
  readonly counts = new Map<string, number>()
  readonly #limit: number

  /** At most `limit` of a rule are kept. */
  constructor(limit: number) {
    this.#limit = limit
  }

  readonly add = (found: ReadonlyArray<Found>) =>
    Effect.sync(() => {
      for (const one of found) {
        const count = this.counts.get(one.rule) ?? 0
        this.counts.set(one.rule, count + 1)
        if (count < this.#limit) this.kept.push(one)
      }
    })
}

/** How a run is carried out. */
export interface RunOptions {
  /** The operator who asks, or the nightly round. */
  readonly actor: string
  /** Repairs what it can, with this reason in the audit. */
  readonly repair?: { readonly reason: string } | undefined
  /** How many differences of a rule the returned report lists. The stored one has {@link listedLimit}. */
  readonly listed?: number
  /** Called between two pages. */
  readonly progress?: Effect.Effect<void>
}

/** The conditions of a walk's repairs. */
interface Repairs {
  readonly operator: Operator
  /** Rules of earlier walks that have differences left. */
  readonly broken: ReadonlySet<string>
  /** Why nothing is repaired at all. */
  readonly refusal: string | undefined
}

/** The result of a walk: differences that are left, the results of repairs, or the reason why it could not look. */
interface Walked {
  readonly walk: Walk
  readonly rows: number
  readonly left: ReadonlyMap<string, number>
  readonly items: ReadonlyArray<ReportedDifference>
  readonly why: string | undefined
}

const reported = (found: Found, repair: Mended | null): ReportedDifference => ({
  ...Struct.omit(found, ["key"]),
  repair
})

export class Reconciliation extends Context.Service<
  Reconciliation,
  {
    /** Compares all books, and repairs if that is asked for. Runs of one process come one after another. The result is stored. */
    readonly run: (options: RunOptions) => Effect.Effect<ReconciliationReport>
    /** The result of the last run of any process. */
    readonly last: Effect.Effect<ReconciliationReport | undefined>
  }
>()("paid-once/application/reconciliation/Reconciliation") {
  static readonly layer: Layer.Layer<
    Reconciliation,
    never,
    | GatewayLedger
    | Idempotency
    | Ids
    | Orders
    | Outbox
    | PaymentOutcomes
    | Payments
    | PgClient.PgClient
    | ReconciliationRuns
    | Subscribers
    | Tasks
    | TopicHistory
  > = Layer.effect(
    Reconciliation,
    Effect.gen(function* () {
      const database = yield* PgClient.PgClient
      const ids = yield* Ids
      const runs = yield* ReconciliationRuns
      const history = yield* TopicHistory
      const { graceMillis } = yield* ReconciliationSettings
      const { archive } = yield* QueueSettings
      const { names: consumers } = yield* Subscribers
      const kept: SqlRule.Kept = { archive, consumers }
      const books = yield* Books.make
      const oneAtATime = yield* Semaphore.make(1)

      const table = (name: string, key: string, order: string, rules: ReadonlyArray<SqlRule.SqlRule>) =>
        SqlRule.walk(database, kept, { name, key, order }, rules)
      const walks: ReadonlyArray<Walk> = [
        yield* GatewayWalk.make,
        table("orders", "id", "id", [
          // First: other rules ask the cursors how far a consumer is.
          ...cursorRules(yield* Cursors),
          ...paymentRules(books),
          ...eventRules(books),
          ...billingRules(books),
          ...inventoryRules,
          ...mailRules(books, yield* Tasks)
        ]),
        table("event_log", "event_id", "aggregate_id", [...archiveRules, ...markRules(yield* Inbox)]),
        table("billing_ledger", "event_id", "order_id", [...ledgerRules, ...mailTaskRules(yield* Tasks)]),
        table("inventory_reservations", "order_id", "order_id", reservationRules),
        RevenueWalk.make(database, kept, graceMillis)
      ]

      /** A row that was changed by hand may be one that no use case can read. It stops its own repair, and no other. */
      const unreadable = (one: Found, defect: unknown) => {
        if (SqlError.isSqlError(defect)) return Effect.die(defect)
        const what = (defect instanceof Error ? defect.message : String(defect)).slice(0, reasonCharacters)
        return Effect.as(
          Effect.logError(`reconciliation: the repair of ${nameOf(one)} failed: ${what}`),
          manual(`its rows can't be read, and nothing was changed; look at them with psql: ${what}`)
        )
      }

      const mend = (walk: Walk, one: Found, { broken, operator, refusal }: Repairs) => {
        if (refusal !== undefined) return Effect.succeed(manual(refusal))
        const sources = walk.waitsFor?.filter((name) => broken.has(name)) ?? []
        if (sources.length > 0)
          return Effect.succeed(manual(`it waits for ${sources.join(", ")}: a person mends that first`))
        const rule = walk.rules.find(({ name }) => name === one.rule)
        return rule === undefined || isManual(rule)
          ? Effect.succeed(manual(rule?.byHand ?? ""))
          : trustIn(walks, one).pipe(
              Effect.flatMap((trust) => walk.mend(one, operator, trust)),
              Effect.catchDefect((defect) => unreadable(one, defect)),
              // Without the gateway nobody can confirm the order's payments, so nothing is built on them.
              Effect.catch(({ message }) => Effect.succeed(manual(message)))
            )
      }

      /** Repairs each in turn. Those that were repaired are looked at once more. */
      const mendAll = Effect.fnUntraced(function* (walk: Walk, found: ReadonlyArray<Found>, repairs: Repairs) {
        const results: Array<{ readonly one: Found; readonly mended: Mended }> = []
        for (const one of found) results.push({ one, mended: yield* mend(walk, one, repairs) })
        const touched = results.filter(({ mended }) => mended.outcome === "repaired").map(({ one }) => one)
        const still = new Set((yield* walk.again(touched)).map(nameOf))
        return results.map(({ mended, one }) =>
          mended.outcome === "repaired" && still.has(nameOf(one))
            ? { one, mended: { outcome: "manual" as const, why: "the repair did not help" } }
            : { one, mended }
        )
      })

      const walkThrough = Effect.fnUntraced(function* (
        walk: Walk,
        { listed = listedLimit, progress = Effect.void }: RunOptions,
        repairs: Repairs | undefined
      ): Effect.fn.Return<Walked, NotReadable> {
        const findings = new Findings(Math.max(keptLimit, listed))
        const rows = yield* walk.run((found) => Effect.andThen(findings.add(found), progress))
        if (findings.kept.length > 0) yield* Effect.sleep(graceMillis)
        const lasting = yield* walk.again(findings.kept)
        const now = new Map(lasting.map((one) => [nameOf(one), one]))
        const there = findings.kept.flatMap((one) => now.get(nameOf(one)) ?? [])
        yield* progress
        const mended =
          repairs === undefined ? there.map((one) => ({ one, mended: null })) : yield* mendAll(walk, there, repairs)
        const left = new Map(findings.counts)
        for (const { rule } of findings.kept) left.set(rule, (left.get(rule) ?? 0) - 1)
        for (const { mended: done, one } of mended) {
          if (done === null || done.outcome === "manual") left.set(one.rule, (left.get(one.rule) ?? 0) + 1)
        }
        return { walk, rows, left, items: mended.map(({ mended, one }) => reported(one, mended)), why: undefined }
      })

      const run = Effect.fn("Reconciliation.run")(function* (options: RunOptions) {
        const startedAt = yield* runs.now
        const before = yield* runs.last
        const { actor, listed = listedLimit, repair } = options
        const refusal = repair === undefined ? undefined : yield* history.refusal
        const walked: Array<Walked> = []
        for (const walk of walks) {
          const broken = new Set(
            walked.flatMap(({ left }) => [...left].flatMap(([rule, count]) => (count > 0 ? [rule] : [])))
          )
          const repairs =
            repair === undefined ? undefined : { operator: { actor, reason: repair.reason }, broken, refusal }
          walked.push(
            yield* Effect.catch(walkThrough(walk, options, repairs), ({ message }) => {
              // Nobody knows whether they have gone: the alert does not end because the gateway is away.
              const names = new Set(walk.rules.map(({ name }) => name))
              const counts = before?.rules.filter(({ rule }) => names.has(rule)) ?? []
              return Effect.succeed({
                walk,
                rows: 0,
                left: new Map(counts.map(({ count, rule }) => [rule, count])),
                items:
                  before?.items.filter(({ repair, rule }) => names.has(rule) && repair?.outcome !== "repaired") ?? [],
                why: message
              })
            })
          )
        }
        const rules = walked.flatMap(({ left, walk }) =>
          walk.rules.map(({ books, byHand, means, name, repair = null }) => ({
            rule: name,
            books,
            count: left.get(name) ?? 0,
            means,
            repair,
            ...(byHand === undefined ? {} : { byHand })
          }))
        )
        const all = walked.flatMap(({ items }) => items)
        const listOf = (limit: number) =>
          rules.flatMap(({ rule }) => all.filter((one) => one.rule === rule).slice(0, limit))
        const report = {
          id: ids.next(),
          startedAt,
          actor,
          differences: rules.reduce((sum, { count }) => sum + count, 0),
          compared: walked.map(({ rows, walk }) => ({ name: walk.name, rows })),
          notCompared: walked.flatMap(({ walk, why }) =>
            why === undefined ? [] : [{ rules: walk.rules.map(({ name }) => name), why }]
          ),
          rules,
          repaired: all.filter(({ repair }) => repair?.outcome === "repaired").length,
          items: listOf(listedLimit)
        }
        return { ...(yield* runs.store(report)), items: listOf(listed) }
      })

      return Reconciliation.of({ run: (options) => oneAtATime.withPermits(1)(run(options)), last: runs.last })
    })
  ).pipe(Layer.provide(Layer.merge(Cursors.layer, Inbox.layer)))
}
