/** Orders ↔ mail: a receipt for each payment, a notice for each refund. The task's key is the event's id. */
import { Effect, Schema } from "effect"
import { OrderId } from "../../../domain/Ids.ts"
import { isoTime } from "../../../platform/IsoTime.ts"
import { keptSince } from "../../../platform/Retention.ts"
import * as Rows from "../../../platform/Rows.ts"
import { Transaction } from "../../../platform/Transaction.ts"
import { Tasks } from "../../../tasks/Tasks.ts"
import { receipts } from "../../subscribers/Receipts.ts"
import { envelopeOf } from "../Books.ts"
import { CantMend } from "../Difference.ts"
import { isGivenUp, isThrough, type SqlRule, within } from "../SqlRule.ts"

/** The movements of the orders `o` that receipts has gone through: from the ledger, which keeps them, and from the archive. */
const movements = `
  SELECT o.id, l.event_id, CASE l.debit_account WHEN 'gateway' THEN 'OrderPaid' ELSE 'OrderRefunded' END AS event_type
  FROM looked AS o JOIN billing_ledger AS l ON l.order_id = o.id
  UNION
  SELECT o.id, e.event_id, e.event_type
  FROM looked AS o JOIN event_log AS e ON e.aggregate_id = o.id::text AND e.aggregate_type = 'Order'
  WHERE e.event_type IN ('OrderPaid', 'OrderRefunded')`

const firstPayment = Rows.first(
  Schema.Struct({
    customerId: Schema.String,
    paymentId: Schema.String,
    amountMinor: Schema.Number,
    currency: Schema.String,
    occurredAt: Schema.String
  })
)

/** Of the orders. */
export const mailRules = (tasks: Tasks["Service"]): ReadonlyArray<SqlRule> => [
  {
    name: "mail-missing",
    books: "orders ↔ mail",
    means: "a customer has paid, or has money back, and hears nothing",
    repair: "the handler of receipts asks for the mail, under the event's id",
    // Tasks are deleted once they are old: of an older event nobody knows whether there was a mail.
    find: (sql, scope) => sql`
      WITH looked AS MATERIALIZED (
        SELECT o.id FROM orders AS o
        WHERE ${within(sql, "o.id", scope)} AND o.status IN ('paid', 'refunded') AND ${sql.literal(isThrough("receipts"))}),
      moved AS MATERIALIZED (${sql.literal(movements)}),
      missing AS MATERIALIZED (
        SELECT * FROM moved
        WHERE uuid_v7_time(event_id) > ${sql.literal(keptSince("outbox_tasks"))}
          AND NOT EXISTS (SELECT FROM outbox_tasks AS t WHERE t.task_type = 'email' AND t.idempotency_key = moved.event_id::text))
      SELECT id::text AS key, event_id || ' ' || event_type AS id, id::text AS "orderId", NULL::text AS "paymentId",
             CASE event_type WHEN 'OrderPaid' THEN 'a receipt' ELSE 'a notice of the refund' END AS expected,
             'no mail, and receipts has gone through the order''s events' AS found
      FROM missing WHERE NOT ${sql.literal(isGivenUp("receipts", "missing.id"))}`,
    mend: ({ id, orderId }) =>
      Effect.gen(function* () {
        const { sql } = yield* Transaction
        const [eventId = "", eventType = ""] = id.split(" ")
        const payment = yield* firstPayment(sql`
          SELECT o.customer_id AS "customerId", p.id AS "paymentId", o.total_amount_minor::float8 AS "amountMinor", o.currency,
                 ${sql.literal(isoTime(`uuid_v7_time(event.id)`))} AS "occurredAt"
          FROM orders AS o JOIN payments AS p ON p.order_id = o.id AND p.captured_minor > 0 AND p.decline_reason IS NULL,
               (SELECT ${eventId}::uuid AS id) AS event
          WHERE o.id = ${orderId}::uuid ORDER BY p.id DESC LIMIT 1`)
        if (payment === undefined) return yield* new CantMend({ reason: "no payment of the order was captured" })
        const { amountMinor, currency, customerId, occurredAt, paymentId } = payment
        const event = {
          eventId,
          eventType,
          schemaVersion: 1,
          occurredAt,
          data: { customerId, paymentId, amount: { amountMinor, currency } }
        }
        yield* receipts.handle(envelopeOf(OrderId.make(orderId!), event)).pipe(
          Effect.provideService(Tasks, tasks),
          Effect.mapError((error) => new CantMend({ reason: String(error) }))
        )
      })
  }
]
