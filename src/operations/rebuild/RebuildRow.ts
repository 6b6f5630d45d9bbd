/** The row of a rebuild that is under way or was cut off, and the versions that it has reached: statements for one transaction each. */
import { Effect, Schema } from "effect"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import type { Run } from "./AppliedRuns.ts"
import { cleanRows } from "./Swap.ts"

/** A rebuild that has not come to its end. */
export const Begun = Schema.Struct({ begunAt: Schema.String, actor: Schema.String })
export type Begun = typeof Begun.Type

const firstBegun = Rows.first(Begun)
const counted = Rows.one(Schema.Struct({ count: Schema.Int }))
const summed = Rows.one(Schema.Struct({ total: Schema.BigInt }))

/** The rebuild of this consumer that is under way or was cut off. */
export const find = (consumer: string) =>
  Effect.flatMap(Transaction, ({ sql }) =>
    firstBegun(
      sql`SELECT ${sql.literal(isoTime("begun_at"))} AS "begunAt", actor FROM rebuilds WHERE consumer_name = ${consumer}`
    )
  )

/** Makes the rebuild `id` the only one of the consumer that may write. One that is cut off, frozen or late finds its row taken. */
export const take = Effect.fnUntraced(function* (consumer: string, id: string, actor: string) {
  const { sql } = yield* Transaction
  yield* sql`
    INSERT INTO rebuilds (consumer_name, rebuild_id, begun_at, actor) VALUES (${consumer}, ${id}::uuid, clock_now(), ${actor})
    ON CONFLICT (consumer_name) DO UPDATE
    SET rebuild_id = excluded.rebuild_id, begun_at = excluded.begun_at, actor = excluded.actor, done = 0, total = 0`
})

/** Locks the row until the transaction ends, and notes how far the rebuild is. False where another rebuild has taken it. */
export const hold = (
  consumer: string,
  id: string,
  { done, total }: { readonly done: number; readonly total: number }
) =>
  Effect.flatMap(Transaction, ({ sql }) =>
    Effect.map(
      sql`UPDATE rebuilds SET done = ${done}::int8, total = ${total}::int8
          WHERE consumer_name = ${consumer} AND rebuild_id = ${id}::uuid RETURNING 1 AS one`,
      (rows) => rows.length > 0
    )
  )

/** The end of the rebuild, whose row is locked. */
export const drop = (consumer: string) =>
  Effect.flatMap(Transaction, ({ sql }) => sql`DELETE FROM rebuilds WHERE consumer_name = ${consumer}`)

/** How many versions the consumer has applied, over all aggregates. */
export const applied = (consumer: string) =>
  Effect.flatMap(Transaction, ({ sql }) =>
    Effect.map(
      summed(
        sql`SELECT coalesce(sum(version), 0)::int8 AS total FROM consumer_cursors WHERE consumer_name = ${consumer}`
      ),
      ({ total }) => Number(total)
    )
  )

/** Notes that the new tables have these versions. */
export const advance = Effect.fnUntraced(function* (consumer: string, runs: ReadonlyArray<Run>) {
  const { sql } = yield* Transaction
  yield* sql`
    INSERT INTO rebuild_cursors (consumer_name, aggregate_id, aggregate_type, version)
    SELECT ${consumer}, run.* FROM unnest(${runs.map(({ aggregateId }) => aggregateId)}::text[],
      ${runs.map(({ aggregateType }) => aggregateType)}::text[], ${runs.map(({ until }) => until)}::int4[]) AS run
    ON CONFLICT (consumer_name, aggregate_id, aggregate_type) DO UPDATE SET version = excluded.version`
})

/** Deletes some of the versions that a rebuild has reached. Returns how many. */
export const clean = Effect.fnUntraced(function* (consumer: string) {
  const { sql } = yield* Transaction
  const { count } = yield* counted(sql`
    WITH gone AS (
      DELETE FROM rebuild_cursors
      WHERE ctid = ANY(ARRAY(SELECT ctid FROM rebuild_cursors WHERE consumer_name = ${consumer} LIMIT ${cleanRows}))
      RETURNING 1)
    SELECT count(*)::int4 AS count FROM gone`)
  return count
})
