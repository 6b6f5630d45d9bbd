/** Orders ↔ billing ledger. An entry is written once for OrderPaid and once for OrderRefunded, and is never changed. */
import { Effect } from "effect"
import { skewInterval } from "../../../platform/Ids.ts"
import { isoTime } from "../../../platform/IsoTime.ts"
import { Transaction } from "../../../platform/Transaction.ts"
import { billing } from "../../subscribers/Billing.ts"
import type { Books } from "../Books.ts"
import { CantMend } from "../Difference.ts"
import { moneyText } from "../MoneyText.ts"
import { isGivenUp, isThrough, type SqlRule, within } from "../SqlRule.ts"

const books = "orders ↔ billing"

/** The entries that an order's status asks for, by the account that is debited. */
const wanted = `(VALUES ('gateway', 'a sale', 'OrderPaid'), ('refunds', 'a refund', 'OrderRefunded')) AS wanted(debit, what, event_type)`

/** An archived event `e` of the order `o` that announces the movement of its entry `l`. */
const isOfEntry = `
  e.aggregate_id = o.id::text AND e.aggregate_type = 'Order'
  AND e.event_type = CASE l.debit_account WHEN 'gateway' THEN 'OrderPaid' WHEN 'refunds' THEN 'OrderRefunded' END`

/** Of the orders. */
export const billingRules = ({ published }: Books): ReadonlyArray<SqlRule> => [
  {
    name: "billing-entry-missing",
    books,
    means: "the ledger shows less, or more, than the customers have paid",
    repair: "billing's own handler books the event from the archive",
    find: (sql, scope) => sql`
      WITH missing AS MATERIALIZED (
        SELECT o.id, wanted.* FROM orders AS o CROSS JOIN ${sql.literal(wanted)}
        WHERE ${within(sql, "o.id", scope)} AND (o.status = 'refunded' OR (o.status = 'paid' AND wanted.debit = 'gateway'))
          AND NOT EXISTS (SELECT FROM billing_ledger AS l WHERE l.order_id = o.id AND l.debit_account = wanted.debit)
          AND ${sql.literal(isThrough("billing"))})
      SELECT id::text AS key, id || ' ' || event_type AS id, id::text AS "orderId", NULL::text AS "paymentId",
             what || ' in the ledger' AS expected, 'no entry, and billing has gone through the order''s events' AS found
      FROM missing WHERE NOT ${sql.literal(isGivenUp("billing", "missing.id", "missing.event_type"))}`,
    mend: ({ id, orderId }) =>
      Effect.gen(function* () {
        const event = yield* published(orderId!, id.endsWith("OrderPaid") ? "OrderPaid" : "OrderRefunded")
        if (event === undefined) return yield* new CantMend({ reason: "the archive has dropped the event" })
        const { sql } = yield* Transaction
        const [booked] = yield* sql`SELECT FROM billing_ledger WHERE event_id = ${event.eventId}::uuid`
        if (booked !== undefined) {
          return yield* new CantMend({
            reason:
              "the ledger has booked the event for another order, or to other accounts: its entry is what is wrong"
          })
        }
        yield* Effect.mapError(billing.handle(event), (error) => new CantMend({ reason: String(error) }))
      })
  },
  {
    name: "billing-entry-differs",
    books,
    means: "the ledger tells another amount, payment, account, event or time than the order: its balances are wrong",
    repair: undefined,
    byHand:
      "paid-once events search --order names the order's events, and paid-once events show tells what each one says; let the accountant correct the entry, or set the order's row right with psql: docs/operations.md",
    find: (sql, scope) => sql`
      SELECT o.id::text AS key, l.event_id::text AS id, o.id::text AS "orderId", p.id::text AS "paymentId",
             ${sql.literal(moneyText("o.total_amount_minor", "o.currency"))} || ' of a payment of the order'
               || CASE l.debit_account WHEN 'refunds' THEN ' from gateway to refunds' ELSE ' from sales to gateway' END
               || coalesce(', by event ' || (SELECT min(e.event_id::text) FROM event_log AS e WHERE ${sql.literal(isOfEntry)}), '')
               || ', at the event''s time' AS expected,
             ${sql.literal(moneyText("l.amount_minor", "l.currency"))} || ' of ' || CASE WHEN p.id IS NULL THEN 'another payment' ELSE 'a payment of the order' END
               || ' from ' || l.credit_account || ' to ' || l.debit_account || ', by event ' || l.event_id || ', at ' || ${sql.literal(isoTime("l.occurred_at"))} AS found
      FROM orders AS o JOIN billing_ledger AS l ON l.order_id = o.id
      LEFT JOIN payments AS p ON p.id = l.payment_id AND p.order_id = o.id
      WHERE ${within(sql, "o.id", scope)}
        AND (l.amount_minor <> o.total_amount_minor OR l.currency <> o.currency OR p.id IS NULL
             -- Any event that the archive has of the movement, and not this one. An archive that has none can't tell.
             OR (SELECT NOT bool_or(e.event_id = l.event_id) FROM event_log AS e WHERE ${sql.literal(isOfEntry)})
             OR (l.debit_account, l.credit_account) NOT IN (('gateway', 'sales'), ('refunds', 'gateway'))
             OR NOT l.occurred_at BETWEEN uuid_v7_time(l.event_id) - ${skewInterval}::interval AND uuid_v7_time(l.event_id) + ${skewInterval}::interval)`
  },
  {
    name: "billing-entry-twice",
    books,
    means: "one movement counts twice in the ledger",
    repair: undefined,
    byHand:
      "paid-once events search --order names the one event that is right; let the accountant take the other entry out: docs/operations.md",
    find: (sql, scope) => sql`
      SELECT o.id::text AS key, o.id || ' ' || l.debit_account AS id, o.id::text AS "orderId", NULL::text AS "paymentId",
             'one entry that debits ' || l.debit_account AS expected, count(*) || ' entries' AS found
      FROM orders AS o JOIN billing_ledger AS l ON l.order_id = o.id
      WHERE ${within(sql, "o.id", scope)}
      GROUP BY o.id, l.debit_account HAVING count(*) > 1`
  }
]

/** Of the ledger's entries. */
export const ledgerRules: ReadonlyArray<SqlRule> = [
  {
    name: "billing-entry-unfounded",
    books,
    means: "the ledger counts money that no order has brought",
    repair: undefined,
    byHand:
      "ask the gateway whether the money has come; if it has, take the order from a backup, and else let the accountant take the entry out: docs/restore.md",
    find: (sql, scope) => sql`
      SELECT l.event_id::text AS key, l.event_id::text AS id, o.id::text AS "orderId", NULL::text AS "paymentId",
             CASE l.debit_account WHEN 'gateway' THEN 'a paid order' ELSE 'a refunded order' END AS expected,
             CASE WHEN o.id IS NULL THEN 'no order ' || l.order_id ELSE 'the order is ' || o.status END AS found
      FROM billing_ledger AS l LEFT JOIN orders AS o ON o.id = l.order_id
      WHERE ${within(sql, "l.event_id", scope)}
        AND (o.id IS NULL OR NOT o.status = ANY (CASE l.debit_account WHEN 'gateway' THEN ARRAY['paid', 'refunded'] ELSE ARRAY['refunded'] END))`
  }
]
