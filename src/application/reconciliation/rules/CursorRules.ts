/**
 * Consumers' cursors ↔ their marks. A consumer marks an event as applied and moves the order's cursor in one transaction. So a cursor is never behind
 * its marks, unless somebody has deleted or changed it.
 */
import { Effect, Schema } from "effect"
import type { Cursors } from "../../../inbox/Cursors.ts"
import * as Rows from "../../../platform/Rows.ts"
import { Transaction } from "../../../platform/Transaction.ts"
import { type SqlRule, within } from "../SqlRule.ts"

const oneCursor = Rows.one(Schema.Struct({ version: Schema.NullOr(Schema.Int), marked: Schema.NullOr(Schema.Int) }))

/** The last version of an order behind `version` that the consumer has marked. Marks have no versions: the archive's events tell them. */
const markedBehind = (version: string, order: string, consumer: string) => `
  (SELECT max(e.aggregate_version) FROM event_log AS e
   WHERE e.aggregate_id = ${order} AND e.aggregate_type = 'Order' AND e.aggregate_version > ${version}
     AND EXISTS (SELECT FROM processed_events AS m WHERE m.consumer_name = ${consumer} AND m.event_id = e.event_id))`

/** Of the orders. Without the cursor a rebuild leaves the order out, and every other rule takes its effects for under way. */
export const cursorRules = ({ advance }: Cursors["Service"]): ReadonlyArray<SqlRule> => [
  {
    name: "cursor-lost",
    books: "consumers' cursors ↔ their marks",
    means: "a rebuild leaves the order out, the consumer holds its next event, and missing effects pass for under way",
    repair: "the cursor is set to the last version that the consumer has marked as applied",
    needsArchive: true,
    // An order whose cursors have its version is done with: few go on to the marks.
    find: (sql, scope, { consumers }) => sql`
      WITH behind AS MATERIALIZED (
        SELECT o.id, o.id::text AS aggregate, named.consumer, coalesce(c.version, 0) AS version
        FROM orders AS o CROSS JOIN unnest(${[...consumers]}::text[]) AS named(consumer)
        LEFT JOIN consumer_cursors AS c
          ON c.consumer_name = named.consumer AND c.aggregate_id = o.id::text AND c.aggregate_type = 'Order'
        WHERE ${within(sql, "o.id", scope)} AND coalesce(c.version, 0) < o.version),
      lost AS MATERIALIZED (
        SELECT *, ${sql.literal(markedBehind("behind.version", "behind.aggregate", "behind.consumer"))} AS marked FROM behind)
      SELECT aggregate AS key, aggregate || ' ' || consumer AS id, aggregate AS "orderId", NULL::text AS "paymentId",
             'a cursor of ' || consumer || ' at version ' || marked || ', which it has applied' AS expected,
             CASE version WHEN 0 THEN 'no cursor' ELSE 'a cursor at version ' || version END AS found
      FROM lost WHERE marked IS NOT NULL`,
    mend: ({ id, orderId }) =>
      Effect.gen(function* () {
        const { sql } = yield* Transaction
        const consumer = id.split(" ")[1] ?? ""
        const { marked, version } = yield* oneCursor(sql`
          SELECT c.version, ${sql.literal(markedBehind("coalesce(c.version, 0)", "o.id::text", "named.consumer"))} AS marked
          FROM orders AS o CROSS JOIN (SELECT ${consumer}::text AS consumer) AS named
          LEFT JOIN consumer_cursors AS c
            ON c.consumer_name = named.consumer AND c.aggregate_id = o.id::text AND c.aggregate_type = 'Order'
          WHERE o.id = ${orderId}::uuid`)
        if (marked === null) return
        // The consumer may move it at the same moment: then this transaction runs again.
        yield* advance(consumer, [
          { aggregateType: "Order", aggregateId: orderId!, from: version ?? undefined, to: marked }
        ])
      })
  }
]
