/** Orders ↔ mail: a receipt for each payment, a notice for each refund. The task's key is the event's id. */
import { Effect } from "effect"
import { keptSince } from "../../../platform/Retention.ts"
import { Tasks } from "../../../tasks/Tasks.ts"
import { receipts } from "../../subscribers/Receipts.ts"
import type { Books } from "../Books.ts"
import { CantMend } from "../Difference.ts"
import { isGivenUp, isThrough, type SqlRule, within } from "../SqlRule.ts"

const books = "orders ↔ mail"

/** The movements of the orders `o` that receipts has gone through: from the ledger, which keeps them, and from the archive. */
const movements = `
  SELECT o.id, l.event_id, CASE l.debit_account WHEN 'gateway' THEN 'OrderPaid' ELSE 'OrderRefunded' END AS event_type
  FROM looked AS o JOIN billing_ledger AS l ON l.order_id = o.id
  UNION
  SELECT o.id, e.event_id, e.event_type
  FROM looked AS o JOIN event_log AS e ON e.aggregate_id = o.id::text AND e.aggregate_type = 'Order'
  WHERE e.event_type IN ('OrderPaid', 'OrderRefunded')`

/** Of the orders. */
export const mailRules = ({ published }: Books, tasks: Tasks["Service"]): ReadonlyArray<SqlRule> => [
  {
    name: "mail-missing",
    books,
    means: "a customer has paid, or has money back, and hears nothing",
    repair: "the handler of receipts asks for the mail, with the event from the archive",
    // An order is paid once and refunded once. A second row about the same is no second movement, and asks for no second mail.
    // Tasks are deleted once they are old: of an older event nobody knows whether there was a mail.
    find: (sql, scope) => sql`
      WITH looked AS MATERIALIZED (
        SELECT o.id FROM orders AS o
        WHERE ${within(sql, "o.id", scope)} AND o.status IN ('paid', 'refunded') AND ${sql.literal(isThrough("receipts"))}),
      moved AS MATERIALIZED (${sql.literal(movements)}),
      missing AS MATERIALIZED (
        SELECT id, event_type FROM moved GROUP BY id, event_type
        HAVING bool_and(uuid_v7_time(event_id) > ${sql.literal(keptSince("outbox_tasks"))}
                        AND NOT EXISTS (SELECT FROM outbox_tasks AS t WHERE t.task_type = 'email' AND t.idempotency_key = event_id::text)))
      SELECT id::text AS key, id || ' ' || event_type AS id, id::text AS "orderId", NULL::text AS "paymentId",
             CASE event_type WHEN 'OrderPaid' THEN 'a receipt' ELSE 'a notice of the refund' END AS expected,
             'no mail, and receipts has gone through the order''s events' AS found
      FROM missing WHERE NOT ${sql.literal(isGivenUp("receipts", "missing.id"))}`,
    mend: ({ id, orderId }) =>
      Effect.gen(function* () {
        const event = yield* published(orderId!, id.endsWith("OrderPaid") ? "OrderPaid" : "OrderRefunded")
        if (event === undefined) return yield* new CantMend({ reason: "the archive has dropped the event" })
        yield* receipts.handle(event).pipe(
          Effect.provideService(Tasks, tasks),
          Effect.mapError((error) => new CantMend({ reason: String(error) }))
        )
      })
  }
]
