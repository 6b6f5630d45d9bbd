/**
 * Gateway ledger ↔ payments, in both directions at once: both are in the order of the payment's id, which is the gateway's key. The gateway moves
 * on between its page and our rows. The second look at a difference reads our rows first, so the gateway has by then all that they claim.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Schema } from "effect"
import { OrderId, PaymentId } from "../../domain/Ids.ts"
import { PaymentStatus, refundKeyOf } from "../../domain/Payment.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { GatewayLedger, type LedgerEntry, ledgerPageSize } from "../GatewayLedger.ts"
import { PaymentOutcomes } from "../PaymentOutcomes.ts"
import { type Found, isManual, NotReadable, pageRows, type Walk } from "./Difference.ts"
import { type Broken, compare, gatewayRules, type RecordedPayment } from "./GatewayRules.ts"
import { inOneTransaction, lockOrder, manual } from "./Repair.ts"
import { inSnapshot } from "./SqlRule.ts"
import { mayGiveBack, mayRefund } from "./MayRepair.ts"

const Recorded = Schema.Struct({
  id: Schema.String,
  orderId: Schema.String,
  status: PaymentStatus,
  amountMinor: Schema.Number,
  currency: Schema.String,
  capturedMinor: Schema.Number,
  refundedMinor: Schema.Number
})
const recordedRows = Rows.all(Recorded)
const tellingRows = Rows.all(Schema.Struct({ id: Schema.String, orderId: Schema.String }))
const idRows = Rows.all(Schema.Struct({ id: Schema.String }))

const manualRules = new Set(gatewayRules.filter(isManual).map(({ name }) => name))

const columns = `
  p.id::text AS id, p.order_id::text AS "orderId", p.status, p.amount_minor::float8 AS "amountMinor", p.currency,
  p.captured_minor::float8 AS "capturedMinor", p.refunded_minor::float8 AS "refundedMinor"`

/** A key as Postgres writes a UUID: in that form the order of texts is the order of UUIDs. */
const isUuid = (key: string) => /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/.test(key)
const nil = "00000000-0000-0000-0000-000000000000"
const max = "ffffffff-ffff-ffff-ffff-ffffffffffff"

const foundOf = (key: string, payment: RecordedPayment | undefined, broken: Broken): Found => ({
  ...broken,
  key,
  id: key,
  orderId: payment?.orderId ?? null,
  paymentId: payment?.id ?? null
})

const unreadable = ({ message }: { readonly message: string }) => new NotReadable({ reason: message })

export const make = Effect.gen(function* () {
  const database = yield* PgClient.PgClient
  const ledger = yield* GatewayLedger
  const outcomes = yield* PaymentOutcomes

  const byIds = (ids: ReadonlyArray<string>) =>
    Effect.flatMap(Transaction, ({ sql }) =>
      recordedRows(sql`
        SELECT ${sql.literal(columns)} FROM payments AS p WHERE p.id = ANY (${[...ids]}::uuid[])`)
    )
  const idsOf = (orderId: string) =>
    Effect.flatMap(Transaction, ({ sql }) =>
      Effect.map(idRows(sql`SELECT id::text AS id FROM payments WHERE order_id = ${orderId}::uuid`), (rows) =>
        rows.map(({ id }) => id)
      )
    )
  /** The captured payments in a range. All others are of interest only where the gateway has their key. */
  const capturedIn = (after: string, until: string) =>
    Effect.flatMap(Transaction, ({ sql }) =>
      recordedRows(sql`
        SELECT ${sql.literal(columns)} FROM payments AS p
        WHERE p.id > ${after}::uuid AND p.id <= ${until}::uuid AND p.captured_minor > 0 ORDER BY p.id LIMIT ${pageRows}`)
    )
  const find = (keys: ReadonlyArray<string>) => Effect.mapError(ledger.find(keys), unreadable)

  const differences = (
    keys: Iterable<string>,
    payments: ReadonlyArray<RecordedPayment>,
    entries: ReadonlyArray<LedgerEntry>
  ) => {
    const [ours, theirs] = [
      new Map(payments.map((one) => [one.id, one])),
      new Map(entries.map((one) => [one.key, one]))
    ]
    return [...new Set(keys)].flatMap((key) => {
      const broken = compare(ours.get(key), theirs.get(key))
      return broken === undefined ? [] : [foundOf(key, ours.get(key), broken)]
    })
  }

  /**
   * A charge without a payment may be one that another book tells of: then the payment's row is lost, and its money is rightful. No index leads
   * there from ledger and events, so one statement asks for all charges of a page. Events of a payment are younger than it, and ids are by time.
   */
  const withOrder = Effect.fnUntraced(function* (found: ReadonlyArray<Found>) {
    const unknown = found.flatMap(({ key, paymentId }) => (paymentId === null && isUuid(key) ? [key] : []))
    if (unknown.length === 0) return found
    const telling = yield* inSnapshot(
      database,
      Effect.flatMap(Transaction, ({ sql }) =>
        tellingRows(sql`
          SELECT id, min(order_id) AS "orderId" FROM (
            SELECT payment_id::text AS id, order_id::text AS order_id FROM billing_ledger WHERE payment_id = ANY (${unknown}::uuid[])
            UNION ALL SELECT subject_id::text, substring(lower(path) FROM '/orders/([^/]+)/') FROM idempotency_keys
            WHERE subject_id = ANY (${unknown}::uuid[])
            UNION ALL SELECT data ->> 'paymentId', aggregate_id FROM outbox_status
            WHERE event_id > ${unknown.toSorted()[0]!}::uuid AND data ->> 'paymentId' = ANY (${unknown})) AS tells
          WHERE order_id IS NOT NULL GROUP BY id`)
      )
    )
    const orders = new Map(telling.map(({ id, orderId }) => [id, orderId]))
    return found.map((one): Found => {
      const orderId = one.paymentId === null ? orders.get(one.key) : undefined
      if (orderId === undefined) return one
      return {
        ...one,
        orderId,
        found: `${one.found}, and another book tells of it for this order: the payment's row is lost`
      }
    })
  })

  /** Captured payments of which the gateway has told nothing on its page: it is asked once more, for they may be younger than the page. */
  const missing = Effect.fnUntraced(function* (after: string, until: string, told: ReadonlySet<string>) {
    const all: Array<Found> = []
    let from = after
    for (let rows = pageRows; rows === pageRows;) {
      const payments = yield* inSnapshot(database, capturedIn(from, until))
      const untold = payments.filter(({ id }) => !told.has(id))
      for (let start = 0; start < untold.length; start += ledgerPageSize) {
        const some = untold.slice(start, start + ledgerPageSize)
        const keys = some.map(({ id }) => id)
        all.push(...differences(keys, some, yield* find(keys)))
      }
      rows = payments.length
      from = payments.at(-1)?.id ?? until
    }
    return all
  })

  const again = Effect.fnUntraced(function* (keys: ReadonlyArray<string>) {
    const all: Array<Found> = []
    for (let start = 0; start < keys.length; start += ledgerPageSize) {
      const some = keys.slice(start, start + ledgerPageSize)
      const payments = yield* inSnapshot(database, byIds(some.filter(isUuid)))
      all.push(...(yield* withOrder(differences(some, payments, yield* find(some)))))
    }
    return all
  })

  const walk: Walk = {
    name: "the gateway's ledger",
    rules: gatewayRules,
    run: Effect.fnUntraced(function* (tell) {
      let cursor = ""
      // The last key of ours that the gateway has told of.
      let after = nil
      for (let total = 0; ;) {
        const { items, nextCursor } = yield* Effect.mapError(ledger.page(cursor), unreadable)
        const keys = items.map(({ key }) => key)
        const ids = keys.filter(isUuid)
        const payments = yield* inSnapshot(database, byIds(ids))
        yield* tell(yield* withOrder(differences(keys, payments, items)))
        const until = nextCursor === null ? max : (ids.at(-1) ?? after)
        yield* tell(yield* missing(after, until, new Set(ids)))
        total += items.length
        if (nextCursor === null) return total
        cursor = nextCursor
        after = until
      }
    }),
    again: (found) => again(found.map(({ key }) => key)),
    doubts: Effect.fnUntraced(function* (orderId) {
      const ids = yield* inSnapshot(database, idsOf(orderId))
      const entries: Array<LedgerEntry> = []
      for (let start = 0; start < ids.length; start += ledgerPageSize) {
        entries.push(...(yield* find(ids.slice(start, start + ledgerPageSize))))
      }
      return Effect.map(Effect.orDie(byIds(ids)), (payments) =>
        differences(ids, payments, entries)
          .map(({ rule }) => rule)
          .filter((name) => manualRules.has(name))
      )
    }),
    mend: Effect.fnUntraced(function* (found, operator, trust) {
      const { key, orderId, paymentId, rule } = found
      const { byHand = "", repair } = gatewayRules.find(({ name }) => name === rule) ?? {}
      if (repair === undefined || orderId === null || paymentId === null) return manual(byHand)
      // Before the transaction: no call to another company inside one. A capture or a refund, once made, stays made.
      const entries = yield* find([key])
      const id = PaymentId.make(paymentId)
      const now = byIds([key])
      return yield* inOneTransaction(database, found, operator, {
        lock: lockOrder(orderId),
        isThere: Effect.map(now, (payments) => differences([key], payments, entries).some((one) => one.rule === rule)),
        trust,
        act: Effect.gen(function* () {
          const [payment] = yield* now
          const [entry] = entries
          const capture = entry?.charges.find(({ status }) => status === "captured")
          const refunds = entry?.refunds ?? []
          if (rule === "gateway-capture-unrecorded" && capture !== undefined) {
            yield* mayGiveBack(OrderId.make(orderId), id)
            const { amountMinor, currency } = capture
            yield* Effect.orDie(outcomes.charged(id, { _tag: "Captured", amountMinor, currency }))
          } else if (rule === "gateway-refund-unrecorded") {
            // The rule has found that all parts have the payment's currency, and sum up to what it has captured.
            yield* mayRefund(OrderId.make(orderId), id)
            const amountMinor = refunds.reduce((sum, one) => sum + one.amountMinor, 0)
            const isOurs = refunds.every((one) => one.key === refundKeyOf(id))
            yield* Effect.orDie(outcomes.refunded(id, { amount: { amountMinor, currency: payment?.currency }, isOurs }))
          }
        })
      })
    })
  }
  return walk
})
