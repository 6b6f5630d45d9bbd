/**
 * Whether orders, events, effects and money agree, for the orders of the last while: what a person looks at who has just broken something.
 *
 * Everything is read in one statement, and so of one moment. What is still under way is counted apart from what is missing.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { SumMinor } from "../../domain/Money.ts"
import { skewInterval } from "../../platform/Ids.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Rows from "../../platform/Rows.ts"
import { Subscribers } from "../Timeline.ts"

/** The amount of a currency in each of the books. */
export const Books = Schema.Struct({
  currency: Schema.String,
  /** Of paid orders. */
  paidMinor: SumMinor,
  /** Of payments: captured and not given back. */
  capturedMinor: SumMinor,
  /** Of the billing ledger: owed by the gateway. */
  bookedMinor: SumMinor
})

/** How far a consumer has come with the changes of these orders. */
export const Effects = Schema.Struct({
  consumer: Schema.String,
  applied: Schema.Int,
  /** It goes on without them: an operator has discarded them, or skipped those that never came. */
  givenUp: Schema.Int
})

export const SumsView = Schema.Struct({
  at: Schema.String,
  orders: Schema.Int,
  /** False where there are more orders than are looked at: then these are the newest ones. */
  areAll: Schema.Boolean,
  /** Changes of these orders. Each has one event. */
  changes: Schema.Int,
  published: Schema.Int,
  /** Queued, retrying or parked. */
  waiting: Schema.Int,
  dead: Schema.Int,
  discarded: Schema.Int,
  /** Payments without an outcome yet. */
  underWay: Schema.Int,
  effects: Schema.Array(Effects),
  books: Schema.Array(Books)
}).annotate({ identifier: "Sums" })
export type SumsView = typeof SumsView.Type

/** A demonstration's worth. Each order takes some index look-ups: a tenth of a second altogether. */
export const maxOrders = 2_000

const oneView = Rows.one(SumsView)

export class Sums extends Context.Service<
  Sums,
  {
    /** The sums over the orders that were placed in the last seconds, {@link maxOrders} at most. */
    readonly of: (sinceSeconds: number) => Effect.Effect<SumsView>
  }
>()("paid-once/application/Sums") {
  static readonly layer: Layer.Layer<Sums, never, SqlClient.SqlClient | Subscribers> = Layer.effect(
    Sums,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { names } = yield* Subscribers

      const of = Effect.fn("Sums.of")(
        (sinceSeconds: number) =>
          oneView(sql`
            WITH recent AS MATERIALIZED (
              SELECT id, id::text AS key, status, version, currency, total_amount_minor FROM orders
              WHERE created_at >= clock_now() - ${sinceSeconds}::float8 * interval '1 second'
                -- An id tells about when its order was placed: without this all older ones would be read.
                AND id >= (SELECT uuid_v7_floor_at(clock_now() - ${sinceSeconds}::float8 * interval '1 second' - ${skewInterval}::interval))
              ORDER BY id DESC LIMIT ${maxOrders + 1}),
            looked AS MATERIALIZED (SELECT * FROM recent ORDER BY id DESC LIMIT ${maxOrders}),
            events AS MATERIALIZED (
              SELECT s.status, s.event_id FROM looked JOIN LATERAL (
                SELECT status, event_id FROM outbox_status WHERE aggregate_id = looked.key AND aggregate_type = 'Order') AS s ON true),
            -- A cursor passes these without an effect.
            given_up AS (
              SELECT consumer, sum(changes) AS changes FROM (
                SELECT split_part(a.subject_id, ' ', 1) AS consumer, (a.after ->> 'version')::int4 - (a.before ->> 'version')::int4 AS changes
                FROM operator_audit AS a JOIN events ON events.event_id::text = split_part(a.subject_id, ' ', 2)
                WHERE a.subject = 'inbox event' AND a.action = 'skip' AND a.after ? 'version'
                UNION ALL
                SELECT d.consumer_name, 1 FROM inbox_dead_letters AS d JOIN events ON events.event_id::text = d.event_id
                WHERE d.status = 'discarded') AS passed
              GROUP BY consumer),
            books AS (
              SELECT currency, sum(total_amount_minor) AS paid, 0::numeric AS captured, 0::numeric AS booked
                FROM looked WHERE status = 'paid' GROUP BY currency
              UNION ALL SELECT p.currency, 0, sum(p.captured_minor - p.refunded_minor), 0
                FROM looked JOIN payments AS p ON p.order_id = looked.id GROUP BY p.currency
              UNION ALL SELECT l.currency, 0, 0,
                               sum(CASE 'gateway' WHEN l.debit_account THEN l.amount_minor WHEN l.credit_account THEN -l.amount_minor ELSE 0 END)
                FROM looked JOIN billing_ledger AS l ON l.order_id = looked.id GROUP BY l.currency)
            SELECT ${sql.literal(isoTime("clock_now()"))} AS at,
                   (SELECT count(*) FROM looked)::int4 AS orders,
                   (SELECT count(*) FROM recent) <= ${maxOrders} AS "areAll",
                   (SELECT coalesce(sum(version), 0) FROM looked)::int4 AS changes,
                   (SELECT count(*) FROM events WHERE status = 'published')::int4 AS published,
                   (SELECT count(*) FROM events WHERE status IN ('queued', 'retrying', 'parked'))::int4 AS waiting,
                   (SELECT count(*) FROM events WHERE status = 'dead')::int4 AS dead,
                   (SELECT count(*) FROM events WHERE status = 'discarded')::int4 AS discarded,
                   (SELECT count(*) FROM looked JOIN payments AS p ON p.order_id = looked.id
                    WHERE p.status IN ('charging', 'refunding', 'manual'))::int4 AS "underWay",
                   (SELECT coalesce(json_agg(json_build_object('consumer', consumer, 'applied', applied - given_up, 'givenUp', given_up) ORDER BY consumer), '[]')
                    FROM (SELECT consumer, coalesce(sum(c.version), 0)::int4 AS applied,
                                 coalesce((SELECT changes FROM given_up WHERE given_up.consumer = name.consumer), 0)::int4 AS given_up
                          FROM unnest(${[...names]}::text[]) AS name(consumer)
                          LEFT JOIN (looked JOIN consumer_cursors AS c ON c.aggregate_id = looked.key AND c.aggregate_type = 'Order')
                            ON c.consumer_name = consumer
                          GROUP BY consumer) AS effects) AS effects,
                   (SELECT coalesce(json_agg(json_build_object('currency', currency, 'paidMinor', paid::text, 'capturedMinor', captured::text,
                                                               'bookedMinor', booked::text) ORDER BY currency), '[]')
                    FROM (SELECT currency, sum(paid) AS paid, sum(captured) AS captured, sum(booked) AS booked
                          FROM books GROUP BY currency) AS summed) AS books`),
        Effect.orDie
      )

      return Sums.of({ of })
    })
  )
}
