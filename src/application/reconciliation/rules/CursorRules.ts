/**
 * Consumers' cursors ↔ their marks. A consumer marks an event as applied and moves the order's cursor in one transaction. So a cursor is never behind
 * its marks, and an event that it has passed has one, unless somebody has deleted or changed a row.
 */
import { Effect, Schema } from "effect"
import type { Statement } from "effect/sql"
import type { Cursors } from "../../../inbox/Cursors.ts"
import type { Inbox } from "../../../inbox/Inbox.ts"
import { keptSince } from "../../../platform/Retention.ts"
import * as Rows from "../../../platform/Rows.ts"
import { Transaction } from "../../../platform/Transaction.ts"
import { CantMend } from "../Difference.ts"
import {
  isHeldOrGivenUp,
  isPassed,
  isReached,
  type Kept,
  type Scope,
  type Sql,
  type SqlRule,
  within
} from "../SqlRule.ts"
import { uuidOf } from "./EventRules.ts"

const oneCursor = Rows.one(Schema.Struct({ version: Schema.NullOr(Schema.Int), marked: Schema.NullOr(Schema.Int) }))
const aheadCursor = Rows.one(Schema.Struct({ version: Schema.Int, last: Schema.Int }))

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
  },
  {
    name: "cursor-ahead",
    books: "consumers' cursors ↔ orders",
    means: "the consumer takes the order's next events for duplicates, and drops them",
    repair: "the cursor of one consumer is set to the order's last version that was sent",
    // With an event behind the order's version it is the order's row that is wrong: event-without-change.
    find: (sql, scope, { consumers }) => sql`
      SELECT o.id::text AS key, o.id || ' ' || string_agg(c.consumer_name, ' ' ORDER BY c.consumer_name) AS id, o.id::text AS "orderId",
             NULL::text AS "paymentId", 'no cursor past version ' || o.version AS expected,
             string_agg(c.consumer_name || ' at version ' || c.version, ', ' ORDER BY c.consumer_name) AS found
      FROM orders AS o CROSS JOIN unnest(${[...consumers]}::text[]) AS named(consumer)
      JOIN consumer_cursors AS c ON c.consumer_name = named.consumer AND c.aggregate_id = o.id::text AND c.aggregate_type = 'Order'
      WHERE ${within(sql, "o.id", scope)} AND c.version > o.version
        AND NOT EXISTS (SELECT FROM event_log AS e
                        WHERE e.aggregate_id = o.id::text AND e.aggregate_type = 'Order' AND e.aggregate_version > o.version)
      GROUP BY o.id`,
    mend: ({ id, orderId }) =>
      Effect.gen(function* () {
        const { sql } = yield* Transaction
        const [consumer = "", ...others] = id.split(" ").slice(1)
        if (others.length > 0) {
          return yield* new CantMend({
            reason:
              "several consumers are ahead: after a restore it is the order that is behind, see paid-once roll-forward; else set the cursors back with psql: docs/restore.md"
          })
        }
        // An event that is queued will still be applied. One that was sent may have been dropped: then the rule of its effect gives it.
        const { last, version } = yield* aheadCursor(sql`
          SELECT c.version, coalesce((SELECT min(s.aggregate_version) - 1 FROM outbox_status AS s
                                      WHERE s.aggregate_type = 'Order' AND s.aggregate_id = o.id::text
                                        AND s.status IN ('queued', 'parked', 'retrying', 'dead')), o.version)::int4 AS last
          FROM orders AS o JOIN consumer_cursors AS c
            ON c.consumer_name = ${consumer} AND c.aggregate_id = o.id::text AND c.aggregate_type = 'Order'
          WHERE o.id = ${orderId}::uuid`)
        if (last === 0) return yield* new CantMend({ reason: "none of its events was sent yet: look again afterwards" })
        yield* advance(consumer, [{ aggregateType: "Order", aggregateId: orderId!, from: version, to: last }])
      })
  }
]

/** How many of the newest events are asked for the last ones that a consumer has marked. One that is further behind than these has an alarm: its lag. */
const newestEvents = 10_000

/** Opens a statement with the events in the scope that a consumer has not marked, and of which it may still have marks: `unmarked`. */
const unmarkedEvents = (sql: Sql, scope: Scope, { consumers }: Kept): Statement.Fragment => sql`
      WITH unmarked AS MATERIALIZED (
        SELECT e.event_id, e.event_type, e.aggregate_id, e.aggregate_version AS version, e.broker_partition, e.broker_offset, e.published_at,
               named.consumer
        FROM event_log AS e CROSS JOIN unnest(${[...consumers]}::text[]) AS named(consumer)
        WHERE ${within(sql, "e.event_id", scope)} AND e.aggregate_type = 'Order'
          AND uuid_v7_time(e.event_id) >= ${sql.literal(keptSince("processed_events"))}
          AND NOT EXISTS (SELECT FROM processed_events AS m WHERE m.consumer_name = named.consumer AND m.event_id = e.event_id))`

/** Of the archive's events. The rules of the effects follow the cursors: where the effect is missing, too, they name it. */
export const markRules = ({ markFirst }: Inbox["Service"]): ReadonlyArray<SqlRule> => [
  {
    name: "mark-lost",
    books: "consumers' marks ↔ their cursors",
    means: "the event counts as not applied, and its timeline never ends",
    repair: "the mark is written again: the cursor has passed the event, so it is not applied any more",
    needsArchive: true,
    find: (sql, scope, kept) => sql`
      ${unmarkedEvents(sql, scope, kept)}
      SELECT event_id::text AS key, event_id || ' ' || consumer AS id, ${sql.literal(uuidOf("aggregate_id"))}::text AS "orderId",
             NULL::text AS "paymentId", 'a mark of ' || consumer || ', whose cursor has passed version ' || version AS expected,
             'no mark of ' || event_type AS found
      FROM unmarked WHERE ${sql.literal(isPassed("unmarked.consumer", "unmarked"))}`,
    mend: ({ id }) => {
      const [eventId = "", consumer = ""] = id.split(" ")
      return Effect.asVoid(markFirst(consumer, [eventId]))
    }
  },
  {
    name: "event-skipped",
    books: "consumers' marks ↔ their place in the topic",
    means: "the consumer has gone on behind the event in its partition, and will never come to it",
    repair: undefined,
    byHand:
      "set the consumer back to the topic's first record, as docs/reconciliation.md says: over Kafka with paid-once roll-forward, in the embedded broker with psql. The consumer drops what it has applied, and applies the rest",
    isOfACopy: true,
    needsArchive: true,
    // A consumer takes a partition's events in the order of their offsets. A topic that was made anew begins at 0 again: hence the time, too. It is that of
    // the acknowledgement, and of two events the later one's may be some milliseconds less.
    // An event that was sent twice is archived with its second place, and was applied long before: it does not tell how far the consumer is.
    find: (sql, scope, kept) => sql`
      ${unmarkedEvents(sql, scope, kept)},
      unread AS MATERIALIZED (SELECT * FROM unmarked WHERE NOT ${sql.literal(isReached("unmarked.consumer", "unmarked"))}),
      place AS MATERIALIZED (
        SELECT DISTINCT ON (named.consumer, e.broker_partition) named.consumer, e.broker_partition, e.broker_offset, e.published_at
        FROM (SELECT event_id, broker_partition, broker_offset, published_at FROM event_log
              WHERE aggregate_type = 'Order' AND EXISTS (SELECT FROM unread) ORDER BY event_id DESC LIMIT ${newestEvents}) AS e
        CROSS JOIN unnest(${[...kept.consumers]}::text[]) AS named(consumer)
        WHERE EXISTS (SELECT FROM processed_events AS m
                      WHERE m.consumer_name = named.consumer AND m.event_id = e.event_id AND m.processed_at >= e.published_at - interval '1 second')
        ORDER BY named.consumer, e.broker_partition, e.published_at DESC, e.broker_offset DESC)
      SELECT event_id::text AS key, event_id || ' ' || consumer AS id, ${sql.literal(uuidOf("aggregate_id"))}::text AS "orderId",
             NULL::text AS "paymentId",
             event_type || ' applied by ' || consumer || ', which has applied offset ' || place.broker_offset || ' of partition ' || broker_partition AS expected,
             'no mark and no cursor at version ' || version || ', from offset ' || unread.broker_offset AS found
      FROM unread JOIN place USING (consumer, broker_partition)
      WHERE place.broker_offset > unread.broker_offset AND place.published_at >= unread.published_at - interval '1 second'
        AND NOT ${sql.literal(isHeldOrGivenUp("unread.consumer", "unread"))}`
  }
]
