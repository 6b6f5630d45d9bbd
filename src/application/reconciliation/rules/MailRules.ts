/** Orders ↔ mail: a receipt for each payment, a notice for each refund. The task's key is the event's id. */
import { Effect } from "effect"
import { OrderId } from "../../../domain/Ids.ts"
import { keptSince } from "../../../platform/Retention.ts"
import { Tasks } from "../../../tasks/Tasks.ts"
import { TaskId } from "../../../tasks/TaskType.ts"
import { nameOfSql } from "../../mail/CustomerAddress.ts"
import { receipts } from "../../subscribers/Receipts.ts"
import type { Books } from "../Books.ts"
import { CantMend } from "../Difference.ts"
import { moneyText } from "../MoneyText.ts"
import { isGivenUp, isThrough, type SqlRule, within } from "../SqlRule.ts"
import { mayMail } from "../MayRepair.ts"

const books = "orders ↔ mail"

/** The movements of the orders `o` that receipts has gone through: from the ledger, which keeps them, and from the archive. */
const movements = `
  SELECT o.id, l.event_id, CASE l.debit_account WHEN 'gateway' THEN 'OrderPaid' ELSE 'OrderRefunded' END AS event_type
  FROM looked AS o JOIN billing_ledger AS l ON l.order_id = o.id
  UNION
  SELECT o.id, e.event_id, e.event_type
  FROM looked AS o JOIN event_log AS e ON e.aggregate_id = o.id::text AND e.aggregate_type = 'Order'
  WHERE e.event_type IN ('OrderPaid', 'OrderRefunded')`

/** Of the ledger's entries `l`, with the mail's task `t` of each. Tasks are deleted once they are old. */
export const mailTaskRules = (tasks: Tasks["Service"]): ReadonlyArray<SqlRule> => [
  {
    name: "mail-differs",
    books,
    means: "a customer reads of another amount, movement or order, or another customer reads it",
    repair: undefined,
    byHand:
      "if the mail is sent, write to the customer; then set the payload of the task in outbox_tasks right with psql: docs/operations.md",
    find: (sql, scope) => sql`
      SELECT l.event_id::text AS key, t.task_id::text AS id, o.id::text AS "orderId", NULL::text AS "paymentId",
             wanted.kind || ' of ' || wanted.amount || ' for this order to ' || wanted.name AS expected,
             concat_ws(' ', t.payload ->> 'kind', 'to', t.payload ->> 'to', 'with the subject', left(t.payload ->> 'subject', 100), 'and the text:',
                       left(t.payload ->> 'text', 300)) AS found
      FROM billing_ledger AS l
      JOIN orders AS o ON o.id = l.order_id
      JOIN outbox_tasks AS t ON t.task_type = 'email' AND t.idempotency_key = l.event_id::text
      CROSS JOIN LATERAL (SELECT CASE l.debit_account WHEN 'gateway' THEN 'receipt' ELSE 'refund-notice' END AS kind,
                                 CASE l.debit_account WHEN 'gateway' THEN 'OrderPaid' ELSE 'OrderRefunded' END AS event_type,
                                 ${sql.literal(moneyText("o.total_amount_minor", "o.currency"))} AS amount,
                                 -- An erasure names customer and address alike. The host is a setting, and may have changed.
                                 ${sql.literal(nameOfSql("o.customer_id"))} AS name) AS wanted
      WHERE ${within(sql, "l.event_id", scope)}
        -- The accounts of the entry may be wrong, or the event's type: those have rules of their own.
        AND NOT EXISTS (SELECT FROM event_log AS e WHERE e.event_id = l.event_id AND e.event_type <> wanted.event_type)
        AND (t.payload ->> 'kind' IS DISTINCT FROM wanted.kind
             OR split_part(t.payload ->> 'to', '@', 1) IS DISTINCT FROM wanted.name
             OR coalesce(strpos(t.payload ->> 'text', ' ' || wanted.amount || ' '), 0) = 0
             OR coalesce(strpos(t.payload ->> 'text', o.id::text), 0) = 0
             OR coalesce(strpos(t.payload ->> 'subject', o.id::text), 0) = 0)`
  },
  {
    name: "mail-sent-cancelled",
    books: "mail ↔ tasks",
    means: "the customer has the mail, and the books say that it was given up",
    repair: "its task runs anew, finds that the mail is sent, and ends",
    find: (sql, scope) => sql`
      SELECT l.event_id::text AS key, t.task_id::text AS id, l.order_id::text AS "orderId", NULL::text AS "paymentId",
             'a completed task: the mail is sent' AS expected, 'the task is ' || t.state AS found
      FROM billing_ledger AS l
      JOIN outbox_tasks AS t ON t.task_type = 'email' AND t.idempotency_key = l.event_id::text
      JOIN mail_deliveries AS m ON m.task_id = t.task_id
      WHERE ${within(sql, "l.event_id", scope)} AND t.state IN ('cancelled', 'dead') AND m.status = 'sent'`,
    mend: ({ id }, operator) =>
      tasks.retry(TaskId.make(id), operator).pipe(
        Effect.mapError(({ message }) => new CantMend({ reason: message })),
        Effect.asVoid
      )
  }
]

/** Of the orders. */
export const mailRules = ({ published }: Books, tasks: Tasks["Service"]): ReadonlyArray<SqlRule> => [
  {
    name: "mail-missing",
    books,
    means: "a customer has paid, or has money back, and hears nothing",
    repair:
      "the handler of receipts asks for the mail, with the event from the archive: who has had it gets it again, under the same Message-ID",
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
      FROM missing WHERE NOT ${sql.literal(isGivenUp("receipts", "missing.id", "missing.event_type"))}`,
    mend: ({ id, orderId }) =>
      Effect.gen(function* () {
        const eventType = id.endsWith("OrderPaid") ? "OrderPaid" : "OrderRefunded"
        const event = yield* published(orderId!, eventType)
        if (event === undefined) return yield* new CantMend({ reason: "the archive has dropped the event" })
        yield* mayMail(OrderId.make(orderId!), eventType, event.eventId)
        yield* receipts.handle(event).pipe(
          Effect.provideService(Tasks, tasks),
          Effect.mapError((error) => new CantMend({ reason: String(error) }))
        )
      })
  }
]
