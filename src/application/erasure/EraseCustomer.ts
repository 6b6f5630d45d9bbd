/**
 * Erases a customer, as an operator asks: his id leaves each place where nothing needs it any more, and what it can't leave is named.
 *
 * It works on some orders in a transaction, so a customer with any number of them holds up nobody. Each such transaction locks its orders and looks
 * once more whether something is under way. What it has erased it has audited. A run that was cut off goes on with the next one.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { CustomerId } from "../../domain/Ids.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { Subscribers } from "../Timeline.ts"
import * as Places from "./Places.ts"
import * as UnderWay from "./UnderWay.ts"

/** Orders of one transaction: their locks last for a fraction of a second. */
const batchOrders = 500

/** Things under way that are named: more are counted. */
const namedLimit = 50

/** The result. Times are ISO 8601 in UTC. */
export const Erasure = Schema.Struct({
  dryRun: Schema.Boolean,
  /** The orders whose customer was erased; in a dry run those that have his id. */
  orders: Schema.Int,
  /** What is under way, at most {@link namedLimit} things. With one of them nothing more is erased. */
  underWay: Schema.Array(UnderWay.Pending),
  underWayCount: Schema.Int,
  /** Orders that have the customer's id at the end. */
  left: Schema.Int,
  answers: Places.Answers,
  /** When the last event of the orders occurred: its topic keeps it from then on. Null where no order had the id. */
  lastEventAt: Schema.NullOr(Schema.String)
})
export type Erasure = typeof Erasure.Type

/** The orders that a run has looked at, or erased. */
export interface Progress {
  readonly phase: "looking" | "erasing"
  readonly orders: number
}

const orderRows = Rows.all(Schema.Struct({ id: Schema.String, at: Schema.String }))
const oneCount = Rows.one(Schema.Struct({ count: Schema.Int }))

/** The nil UUID: before every order. */
const first = "00000000-0000-0000-0000-000000000000"

export class EraseCustomer extends Context.Service<
  EraseCustomer,
  {
    /** Erases the customer, unless something of his is under way. A dry run changes nothing. */
    readonly run: (
      customerId: CustomerId,
      operator: OperatorAudit.Operator | "dry run",
      tell: (progress: Progress) => Effect.Effect<void>
    ) => Effect.Effect<Erasure>
  }
>()("paid-once/application/erasure/EraseCustomer") {
  static readonly layer: Layer.Layer<EraseCustomer, never, Subscribers | PgClient.PgClient | SqlClient.SqlClient> =
    Layer.effect(
      EraseCustomer,
      Effect.gen(function* () {
        const client = yield* SqlClient.SqlClient
        const database = yield* PgClient.PgClient
        const { names } = yield* Subscribers

        /** The customer's next orders, locked, with what is under way of them. `act` runs where that is nothing. */
        const batch = <E>(
          customerId: CustomerId,
          after: string,
          act: (
            orders: ReadonlyArray<string>,
            mails: ReadonlyArray<UnderWay.Mail>
          ) => Effect.Effect<void, E, Transaction>
        ) =>
          Effect.gen(function* () {
            const { sql } = yield* Transaction
            // The order's lock comes first, as in every use case. From here on it gets no event, and no payment.
            const orders = yield* orderRows(sql`
              SELECT id::text AS id, ${sql.literal(isoTime("updated_at"))} AS at FROM orders
              WHERE customer_id = ${customerId} AND id > ${after}::uuid ORDER BY id LIMIT ${batchOrders} FOR UPDATE`)
            const ids = orders.map(({ id }) => id)
            const mails = yield* UnderWay.mailsOf(ids)
            const underWay = yield* UnderWay.of(ids, mails, names)
            if (ids.length > 0 && underWay.length === 0) yield* act(ids, mails)
            return { orders, underWay }
          }).pipe(Transaction.run, Effect.provideService(PgClient.PgClient, database), Effect.orDie)

        /** Goes through the customer's orders, batch by batch. Without `act` through all of them, else up to the first one that something is under way of. */
        const walk = Effect.fnUntraced(function* (
          customerId: CustomerId,
          act: Parameters<typeof batch>[2] | undefined,
          tell: (progress: Progress) => Effect.Effect<void>
        ) {
          const underWay: Array<UnderWay.Pending> = []
          let underWayCount = 0
          let orders = 0
          let lastEventAt = ""
          for (let after = first; ;) {
            const done = yield* batch(customerId, after, act ?? (() => Effect.void))
            underWay.push(...done.underWay.slice(0, namedLimit - underWay.length))
            underWayCount += done.underWay.length
            for (const { at } of done.orders) if (at > lastEventAt) lastEventAt = at
            const last = done.orders.at(-1)
            const isStopped = act !== undefined && underWayCount > 0
            if (last === undefined || isStopped) return { orders, underWay, underWayCount, lastEventAt }
            orders += done.orders.length
            yield* tell({ phase: act === undefined ? "looking" : "erasing", orders })
            after = last.id
          }
        })

        const run = Effect.fn("EraseCustomer.run")(function* (
          customerId: CustomerId,
          operator: OperatorAudit.Operator | "dry run",
          tell: (progress: Progress) => Effect.Effect<void>
        ) {
          const looked = yield* walk(customerId, undefined, tell)
          const dryRun = operator === "dry run"
          const erased =
            dryRun || looked.underWayCount > 0
              ? { ...looked, orders: dryRun ? looked.orders : 0 }
              : yield* walk(
                  customerId,
                  Effect.fnUntraced(function* (ids, mails) {
                    yield* Places.erase(customerId, ids, mails)
                    yield* OperatorAudit.recordEach(
                      {
                        ...operator,
                        action: Places.auditAction,
                        subject: Places.auditSubject,
                        before: { customer: "known" },
                        after: { customer: "erased" }
                      },
                      ids
                    )
                    const { afterCommit } = yield* Transaction
                    yield* afterCommit(
                      OperatorAudit.log(operator, `the customer of ${countOf(ids.length, "order")} is erased`)
                    )
                  }, Effect.orDie),
                  tell
                )
          const { count: left } = yield* Effect.orDie(
            oneCount(client`SELECT count(*)::int4 AS count FROM orders WHERE customer_id = ${customerId}`)
          )
          const answers = yield* Places.answers(customerId).pipe(Effect.provideService(SqlClient.SqlClient, client))
          return {
            dryRun,
            ...erased,
            lastEventAt: looked.lastEventAt === "" ? null : looked.lastEventAt,
            left,
            answers
          }
        })

        return EraseCustomer.of({ run })
      })
    )
}
