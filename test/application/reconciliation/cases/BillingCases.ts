/** Books that differ between the ledger and the revenue. */
import { Effect } from "effect"
import * as Subscribed from "../../../support/Subscribed.ts"
import type { Case } from "./Case.ts"

export const billingCases: ReadonlyArray<Case> = [
  {
    of: "a day to come has revenue",
    rule: "revenue-differs",
    broken: (_, sql) => sql`INSERT INTO revenue_daily (day, currency, amount_minor) VALUES ('2090-01-01', 'EUR', 100)`,
    by: "use case"
  },
  {
    of: "an entry was deleted from the ledger",
    rule: "billing-entry-missing",
    broken: ({ paid }, sql) => sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`,
    by: "use case"
  },
  {
    of: "an entry was deleted from the ledger, and an operator has given up another event of its order",
    rule: "billing-entry-missing",
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
        yield* sql`
          INSERT INTO inbox_dead_letters (consumer_name, aggregate_id, position, event_id, event_type, topic, broker_partition, broker_offset,
                                          record_headers, parked_at, status, attempts, history, ended_at)
          SELECT 'billing', aggregate_id, aggregate_version, event_id, event_type, topic, 0, 0, '{}', clock_now(), 'discarded', 1, '[]', clock_now()
          FROM event_log WHERE aggregate_id = ${paid.orderId} AND aggregate_version = 1`
      }),
    by: "use case"
  },
  {
    of: "an entry of a refund was deleted from the ledger, and its event from the archive",
    rule: "billing-entry-missing",
    also: ["event-unarchived"],
    broken: ({ refunded }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM billing_ledger WHERE order_id = ${refunded.orderId}::uuid AND debit_account = 'refunds'`
        yield* sql`DELETE FROM event_log WHERE aggregate_id = ${refunded.orderId} AND event_type = 'OrderRefunded'`
        yield* sql`UPDATE revenue_daily SET amount_minor = amount_minor + 100`
      }),
    by: "person"
  },
  {
    of: "the amount of an entry was changed",
    rule: "billing-entry-differs",
    broken: ({ paid }, sql) => sql`UPDATE billing_ledger SET amount_minor = 90 WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "an entry has its accounts the other way round, and its mail is right",
    rule: "billing-entry-differs",
    also: ["billing-entry-missing", "billing-entry-unfounded"],
    broken: ({ paid }, sql) =>
      sql`UPDATE billing_ledger SET debit_account = credit_account, credit_account = debit_account WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "an entry credits another account",
    rule: "billing-entry-differs",
    broken: ({ paid }, sql) =>
      sql`UPDATE billing_ledger SET credit_account = 'refunds' WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "an entry has the time of another day",
    rule: "billing-entry-differs",
    broken: ({ paid }, sql) =>
      sql`UPDATE billing_ledger SET occurred_at = occurred_at - interval '3 days' WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "an entry names an event that is nobody's",
    rule: "billing-entry-differs",
    broken: ({ paid }, sql) =>
      // As near as can be: its time stays.
      sql`
        UPDATE billing_ledger SET event_id = overlay(event_id::text placing '000000000000' from 25)::uuid
        WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "a sale was booked twice, and no second receipt is asked for",
    rule: "billing-entry-twice",
    also: ["billing-entry-differs"],
    broken: ({ paid }, sql) =>
      sql`
        INSERT INTO billing_ledger SELECT ${Subscribed.newId()}::uuid, order_id, payment_id, debit_account, credit_account, amount_minor, currency,
                                          occurred_at, recorded_at FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "a sale of an order that is not paid was booked",
    rule: "billing-entry-unfounded",
    also: ["billing-entry-differs"],
    broken: ({ cancelled, paid }, sql) =>
      sql`
        INSERT INTO billing_ledger SELECT ${Subscribed.newId()}::uuid, ${cancelled}::uuid, payment_id, debit_account, credit_account, amount_minor, currency,
                                          occurred_at, recorded_at FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`,
    by: "person"
  },
  {
    of: "the task of a receipt was deleted, and its sale was booked twice",
    rule: "billing-entry-twice",
    also: ["billing-entry-differs", "mail-missing"],
    broken: ({ paid }, sql) =>
      Effect.gen(function* () {
        yield* sql`DELETE FROM outbox_tasks WHERE task_type = 'email' AND payload ->> 'text' LIKE ${`%received%${paid.orderId}%`}`
        yield* sql`
          INSERT INTO billing_ledger SELECT ${Subscribed.newId()}::uuid, order_id, payment_id, debit_account, credit_account, amount_minor, currency,
                                            occurred_at, recorded_at FROM billing_ledger WHERE order_id = ${paid.orderId}::uuid`
      }),
    by: "person"
  },
  {
    of: "a day's revenue was changed",
    rule: "revenue-differs",
    broken: (_, sql) => sql`UPDATE revenue_daily SET amount_minor = amount_minor - 7`,
    by: "use case"
  },
  {
    of: "a day's revenue was deleted",
    rule: "revenue-differs",
    broken: (_, sql) => sql`DELETE FROM revenue_daily`,
    by: "use case"
  }
]
