/** Books that differ in lines, reservations and mail. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { Break, Case } from "./Case.ts"

const namesAnother =
  (part: "text" | "subject"): Break =>
  ({ paid, pending }, sql) =>
    sql`
      UPDATE outbox_tasks
      SET payload = jsonb_set(payload::jsonb, ARRAY[${part}], to_jsonb(replace(payload ->> ${part}, ${paid.orderId}, ${pending})))::json
      WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`

export const goodsAndMailCases: ReadonlyArray<Case> = [
  {
    of: "a line's price was changed",
    rule: "lines-differ",
    also: ["event-differs"],
    broken: ({ paid }, sql) =>
      sql`UPDATE order_lines SET unit_amount_minor = unit_amount_minor + 1 WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "all lines of an order are gone, and its reservation",
    rule: "lines-differ",
    also: ["event-differs"],
    broken: ({ pending }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM order_lines WHERE order_id = ${pending}::uuid`
        yield* sql`DELETE FROM inventory_reservations WHERE order_id = ${pending}::uuid`
      }),
    by: "person"
  },
  {
    of: "a receipt tells another amount",
    rule: "mail-differs",
    broken: ({ paid }, sql) =>
      sql`
        UPDATE outbox_tasks SET payload = replace(payload::text, ' 1.00 EUR', ' 11.00 EUR')::json
        WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`,
    by: "person"
  },
  {
    of: "a receipt goes to another customer",
    rule: "mail-differs",
    broken: ({ paid }, sql) =>
      sql`
        UPDATE outbox_tasks SET payload = jsonb_set(payload::jsonb, '{to}', to_jsonb('eve@' || split_part(payload ->> 'to', '@', 2)))::json
        WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`,
    by: "person"
  },
  {
    of: "the text of a receipt names another order",
    rule: "mail-differs",
    broken: namesAnother("text"),
    by: "person"
  },
  {
    of: "the subject of a receipt names another order",
    rule: "mail-differs",
    broken: namesAnother("subject"),
    by: "person"
  },
  {
    of: "the task of a mail that was sent says cancelled",
    rule: "mail-sent-cancelled",
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`
          INSERT INTO mail_deliveries (task_id, kind, recipient, subject, status, created_at, updated_at, sent_at)
          SELECT task_id, 'receipt', 'a@b.example', 's', 'sent', clock_now(), clock_now(), clock_now() FROM outbox_tasks
          WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
        yield* sql`
          UPDATE outbox_tasks SET state = 'cancelled', finished_at = clock_now()
          WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
      }),
    by: "use case",
    afterwards: ({ paid }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT state FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
        assert.deepStrictEqual(rows, [{ state: "pending" }])
      })
  },
  {
    of: "a reservation was deleted",
    rule: "reservation-missing",
    broken: ({ paid }, sql) => sql`DELETE FROM inventory_reservations WHERE order_id = ${paid.orderId}::uuid`,
    by: "use case"
  },
  {
    of: "a cancelled order holds goods",
    rule: "reservation-left-over",
    broken: ({ cancelled }, sql) =>
      sql`UPDATE inventory_reservations SET status = 'reserved' WHERE order_id = ${cancelled}::uuid`,
    by: "use case"
  },
  {
    of: "a reservation has another quantity than the order",
    rule: "reservation-unfounded",
    broken: ({ paid }, sql) =>
      sql`UPDATE inventory_reservations SET quantity = 7 WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "goods are held for an order that is gone",
    rule: "reservation-unfounded",
    broken: (_, sql) =>
      sql`
        INSERT INTO inventory_reservations SELECT gen_random_uuid(), 'book', 1, 'reserved', false, clock_now(), clock_now()`,
    by: "person"
  },
  {
    of: "the task of a receipt was deleted",
    rule: "mail-missing",
    broken: ({ paid }, sql) =>
      sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`,
    by: "use case",
    // The key makes the Message-ID: a customer who has had the receipt gets a copy of it.
    afterwards: ({ paid }, sql) =>
      Effect.gen(function* () {
        const rows = yield* sql`
          SELECT t.idempotency_key = e.event_id::text AS "isTheEvents" FROM outbox_tasks AS t, event_log AS e
          WHERE e.aggregate_id = ${paid.orderId} AND e.event_type = 'OrderPaid' AND t.payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
        assert.deepStrictEqual(rows, [{ isTheEvents: true }])
      })
  }
]
