/** The frame of every repair: one transaction that locks, looks again, acts, and writes the audit. */
import { PgClient } from "@effect/sql-pg"
import { Effect } from "effect"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { CantMend, type Difference, type Mended } from "./Difference.ts"

const repaired: Mended = { outcome: "repaired", why: null }
const gone: Mended = { outcome: "gone", why: null }

/** Nothing repairs the differences of this rule. */
export const manual = (why: string): Mended => ({ outcome: "manual", why })

/** The thing that the audit names: the payment, else the order, else the day of the revenue. */
const subjectOf = ({ id, orderId, paymentId }: Difference) =>
  paymentId !== null
    ? { subject: "payment", subjectId: paymentId }
    : orderId !== null
      ? { subject: "order", subjectId: orderId }
      : { subject: "revenue", subjectId: id }

/** Locks the order, and then its payments, as every use case does. */
export const lockOrder = Effect.fnUntraced(function* (orderId: string) {
  const { sql } = yield* Transaction
  yield* sql`SELECT FROM orders WHERE id = ${orderId}::uuid FOR UPDATE`
  yield* sql`SELECT FROM payments WHERE order_id = ${orderId}::uuid ORDER BY id FOR UPDATE`
})

/**
 * Repairs a difference in one transaction. `lock` takes the locks under which it can't change, `isThere` looks again, `trust` asks the other rules, and `act` goes through the
 * use cases. An act that fails is rolled back.
 */
export const inOneTransaction = <E1, E2, E3>(
  database: PgClient.PgClient,
  difference: Difference,
  operator: OperatorAudit.Operator,
  steps: {
    readonly lock: Effect.Effect<void, E1, Transaction>
    readonly isThere: Effect.Effect<boolean, E2, Transaction>
    /** Fails where another difference doubts the rows: see Doubts.ts. */
    readonly trust: Effect.Effect<void, CantMend, Transaction>
    readonly act: Effect.Effect<void, E3 | CantMend, Transaction>
  }
): Effect.Effect<Mended> =>
  Transaction.run(
    Effect.gen(function* () {
      yield* steps.lock
      if (!(yield* steps.isThere)) return gone
      yield* steps.trust
      yield* steps.act
      const { expected, found, rule } = difference
      yield* OperatorAudit.record({
        ...operator,
        action: "reconcile",
        ...subjectOf(difference),
        before: { rule, expected, found },
        after: { rule, repaired: true }
      })
      const { afterCommit } = yield* Transaction
      yield* afterCommit(OperatorAudit.log(operator, `repaired ${rule} ${difference.id}`))
      return repaired
    })
  ).pipe(
    Effect.provideService(PgClient.PgClient, database),
    Effect.catch((error: unknown) =>
      error instanceof CantMend ? Effect.succeed(manual(error.reason)) : Effect.die(error)
    )
  )
