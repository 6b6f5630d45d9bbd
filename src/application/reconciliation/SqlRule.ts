/** A rule as a value: the statement that finds its differences among some rows, and the walk that checks many rules on the way. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Schema } from "effect"
import { SqlClient, type SqlError, type Statement } from "effect/sql"
import type { Operator } from "../../platform/OperatorAudit.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { type CantMend, type Found, isManual, pageRows, type RuleText, type Walk } from "./Difference.ts"
import { inOneTransaction, lockOrder, manual } from "./Repair.ts"

/** The rows that a statement looks at: those of a page, or some by their keys. */
export type Scope = { readonly after: string; readonly until: string } | { readonly keys: ReadonlyArray<string> }

export type Sql = Statement.Constructor

/** What the installation keeps. */
export interface Kept {
  /** Whether published events are archived. */
  readonly archive: boolean
  /** The consumers of the orders topic. */
  readonly consumers: ReadonlyArray<string>
}

/** A rule that one statement checks. */
export type SqlRule = RuleText & {
  /** The statement's rows are {@link FoundRow}. It sees a snapshot, and says itself what is under way and so no difference. */
  readonly find: (sql: Sql, scope: Scope, kept: Kept) => Statement.Statement<unknown>
  /** Its repair, in a transaction that has locked the order and its payments and has found the difference again. */
  readonly mend?:
    | ((found: Found, operator: Operator) => Effect.Effect<void, CantMend | SqlError.SqlError, Transaction>)
    | undefined
  /** Whether the rule needs the archive of published events. */
  readonly needsArchive?: boolean
  /** Whether its differences say that a copy is lost, and of no row that it is wrong: repairs of the order need not wait. */
  readonly isOfACopy?: boolean
}

const FoundRow = Schema.Struct({
  key: Schema.String,
  id: Schema.String,
  orderId: Schema.NullOr(Schema.String),
  paymentId: Schema.NullOr(Schema.String),
  expected: Schema.String,
  found: Schema.String
})
const foundRows = Rows.all(FoundRow)
const keyRows = Rows.all(Schema.Struct({ key: Schema.String }))
const bounds = Rows.one(Schema.Struct({ until: Schema.NullOr(Schema.String), rows: Schema.Int }))

/** The rows in the scope, by the column of their key. */
export const within = (sql: Sql, column: string, scope: Scope): Statement.Fragment =>
  "keys" in scope
    ? sql`${sql.literal(column)} = ANY (${[...scope.keys]}::uuid[])`
    : sql`${sql.literal(column)} > ${scope.after}::uuid AND ${sql.literal(column)} <= ${scope.until}::uuid`

/**
 * Whether the consumer has gone through all events of the order with the alias `o`. Until then an effect that is missing is on its way: queued,
 * parked, unread, or waiting behind a dead letter or a gap, which have alerts of their own.
 */
export const isThrough = (consumer: string): string => `
  EXISTS (SELECT FROM consumer_cursors AS c
          WHERE c.consumer_name = '${consumer}' AND c.aggregate_id = o.id::text AND c.aggregate_type = 'Order' AND c.version >= o.version)`

/**
 * Whether an operator has given an event of these types up for the consumer: then its effect is missing by decision. `key` is the order's id, a uuid.
 * A record whose type could not be read may have been one of them.
 */
export const isGivenUp = (consumer: string, key: string, types: string): string => `
  (EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.aggregate_id = ${key}::text AND d.event_type IN (${types}))
   OR EXISTS (SELECT FROM inbox_dead_letters AS d WHERE d.consumer_name = '${consumer}' AND d.aggregate_id = ${key}::text
                AND (d.event_type IS NULL OR d.event_type IN (${types})))
   OR EXISTS (SELECT FROM operator_audit AS a
              WHERE a.subject = 'inbox event' AND a.action = 'skip'
                AND a.subject_id = ANY (ARRAY(SELECT '${consumer} ' || e.event_id FROM event_log AS e WHERE e.aggregate_id = ${key}::text))))`

/** Whether the consumer's cursor has jumped over the version, by a gap that it has taken or by an operator's skip. `event` has `aggregate_id` and `version`. */
export const isPassedOver = (consumer: string, event: string): string => `
  (EXISTS (SELECT FROM consumer_gaps AS g
           WHERE g.consumer_name = ${consumer} AND g.aggregate_id = ${event}.aggregate_id AND g.aggregate_type = 'Order'
             AND g.after_version < ${event}.version AND g.until_version >= ${event}.version)
   OR EXISTS (SELECT FROM operator_audit AS a
              WHERE a.subject = 'inbox event' AND a.action = 'skip'
                AND a.subject_id = ANY (ARRAY(SELECT ${consumer} || ' ' || s.event_id FROM event_log AS s WHERE s.aggregate_id = ${event}.aggregate_id))
                AND (a.before ->> 'version')::int4 < ${event}.version AND (a.after ->> 'version')::int4 >= ${event}.version))`

/** Whether the consumer holds an event, or was made to go on without it: it is parked, skipped, or given up at the inbox or the outbox. `event` has `event_id`, too. */
export const isHeldOrGivenUp = (consumer: string, event: string): string => `
  (EXISTS (SELECT FROM inbox_parked AS p WHERE p.consumer_name = ${consumer} AND p.event_id = ${event}.event_id::text)
   OR EXISTS (SELECT FROM inbox_dead_letters AS d WHERE d.consumer_name = ${consumer} AND d.event_id = ${event}.event_id::text)
   OR EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.event_id = ${event}.event_id)
   OR ${isPassedOver(consumer, event)})`

/** Whether the consumer's cursor has reached an event. `event` is the alias of a row with `aggregate_id` and `version`. */
export const isReached = (consumer: string, event: string): string => `
  EXISTS (SELECT FROM consumer_cursors AS c
          WHERE c.consumer_name = ${consumer} AND c.aggregate_id = ${event}.aggregate_id AND c.aggregate_type = 'Order' AND c.version >= ${event}.version)`

/** Whether the consumer's cursor has passed an event, and nothing tells that it did so without the event's effect. */
export const isPassed = (consumer: string, event: string): string =>
  `(${isReached(consumer, event)} AND NOT ${isHeldOrGivenUp(consumer, event)})`

/**
 * Every row that a rule looks at is found by the key of its order. Postgres could hash a whole table instead, as long as it takes the tables for
 * small: that would read millions of rows for each page.
 */
const byKey =
  "SELECT set_config(name, 'off', true) FROM unnest(ARRAY['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'jit']) AS name"

/** The nil UUID: before every key. */
const first = "00000000-0000-0000-0000-000000000000"

/**
 * Upkeep drops a day for a snapshot that is older than the drop, too, and such a snapshot does not see that the horizon has moved. So the days are locked
 * before the snapshot is taken. Upkeep does not wait for that: it tries again later.
 */
const keepDays = "LOCK TABLE event_log, processed_events IN ACCESS SHARE MODE"

/** Runs in a transaction that sees one moment. */
export const inSnapshot = <A, E>(
  database: PgClient.PgClient,
  effect: Effect.Effect<A, E, Transaction>
): Effect.Effect<A> =>
  Transaction.run(
    Effect.andThen(
      Transaction.use(({ sql }) => sql.unsafe(keepDays)),
      effect
    )
  ).pipe(
    Effect.provideService(SqlClient.BeginTransaction, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
    Effect.provideService(PgClient.PgClient, database),
    Effect.orDie
  )

/**
 * Walks through a table in the order of a key, up to the last one at its start, and checks the rules. `order` is the column with the order's id. Each
 * page is one snapshot: within it nothing is half done.
 */
export const walk = (
  database: PgClient.PgClient,
  kept: Kept,
  table: { readonly name: string; readonly key: string; readonly order: string },
  rules: ReadonlyArray<SqlRule>
): Walk => {
  const usable = rules.filter(({ needsArchive }) => kept.archive || needsArchive !== true)
  const findIn = Effect.fnUntraced(function* (scope: Scope, some: ReadonlyArray<SqlRule> = usable) {
    const { sql } = yield* Transaction
    yield* sql.unsafe(byKey)
    const all: Array<Found> = []
    for (const { find, name } of some) {
      for (const row of yield* foundRows(find(sql, scope, kept))) all.push({ rule: name, ...row })
    }
    return all
  })

  const lastKey = Effect.flatMap(Transaction, ({ sql }) => {
    const key = sql.literal(table.key)
    return Effect.map(
      keyRows(sql`SELECT ${key}::text AS key FROM ${sql.literal(table.name)} ORDER BY ${key} DESC LIMIT 1`),
      ([row]) => row?.key ?? first
    )
  })

  const page = Effect.fnUntraced(function* (after: string, last: string) {
    const { sql } = yield* Transaction
    const key = sql.literal(table.key)
    const { rows, until } = yield* bounds(sql`
      SELECT (array_agg(key ORDER BY key DESC))[1]::text AS until, count(*)::int4 AS rows FROM (
        SELECT ${key} AS key FROM ${sql.literal(table.name)}
        WHERE ${key} > ${after}::uuid AND ${key} <= ${last}::uuid ORDER BY ${key} LIMIT ${pageRows}) AS next`)
    return until === null ? undefined : { until, rows, found: yield* findIn({ after, until }) }
  })

  return {
    name: table.name,
    rules: usable,
    run: Effect.fnUntraced(function* (tell) {
      // Rows come faster than a page of a few is compared: a walk that went on to the newest would never end.
      const last = yield* inSnapshot(database, lastKey)
      let after = first
      for (let total = 0; ;) {
        const next = yield* inSnapshot(database, page(after, last))
        if (next === undefined) return total
        yield* tell(next.found)
        after = next.until
        total += next.rows
      }
    }),
    again: Effect.fnUntraced(function* (found) {
      const keys = [...new Set(found.map(({ key }) => key))]
      const broken = usable.filter(({ name }) => found.some(({ rule }) => rule === name))
      const all: Array<Found> = []
      for (let start = 0; start < keys.length; start += pageRows) {
        all.push(...(yield* inSnapshot(database, findIn({ keys: keys.slice(start, start + pageRows) }, broken))))
      }
      return all
    }),
    doubts: (orderId) =>
      Effect.succeed(
        Effect.gen(function* () {
          const { sql } = yield* Transaction
          const [key, name, order] = [sql.literal(table.key), sql.literal(table.name), sql.literal(table.order)]
          const rows = yield* keyRows(sql`SELECT DISTINCT ${key}::text AS key FROM ${name} WHERE ${order} = ${orderId}`)
          const found = yield* findIn(
            { keys: rows.map(({ key }) => key) },
            usable.filter((rule) => isManual(rule) && rule.isOfACopy !== true)
          )
          return found.map(({ rule }) => rule)
        }).pipe(Effect.orDie)
      ),
    mend: (found, operator, trust) => {
      const rule = usable.find(({ name }) => name === found.rule)
      if (rule?.mend === undefined || found.orderId === null) return Effect.succeed(manual(rule?.byHand ?? ""))
      const { mend } = rule
      return inOneTransaction(database, found, operator, {
        lock: lockOrder(found.orderId),
        isThere: Effect.map(findIn({ keys: [found.key] }, [rule]), (now) => now.some(({ id }) => id === found.id)),
        trust,
        act: Effect.suspend(() => mend(found, operator))
      })
    }
  }
}
