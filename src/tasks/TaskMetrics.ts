/** Samples waiting and dead tasks by type, and marks tasks whose type no process handles. */
import { Effect, Metric, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../platform/Rows.ts"
import * as Supervised from "../platform/Supervised.ts"

const pendingGauge = Metric.gauge("outbox_tasks_pending", {
  description:
    "Tasks that wait, sampled: due ones that have not failed (`pending`), and ones that will be tried again (`failed`)"
})
const deadGauge = Metric.gauge("outbox_tasks_dead", { description: "Tasks that wait for an operator, sampled" })

/** Often enough for an alert of minutes, seldom enough to cost nothing. */
const sampleMillis = 5_000

/** Counting stops here: an operator acts the same on more. */
export const countLimit = 10_000

/** No program has more types. Each type is a series of two metrics, so this bounds what a table full of foreign types can do. */
const typeLimit = 100

/** A task that no process has claimed for this long has no handler, unless all that handle its type are busy. */
const unclaimedSeconds = 5

/** The types that have tasks in the states of a partial index: one probe of the index for each type, however many tasks there are. */
const typesOf = (condition: string) => `
  WITH RECURSIVE type(name) AS (
    (SELECT task_type FROM outbox_tasks WHERE ${condition} ORDER BY task_type LIMIT 1)
    UNION ALL
    SELECT (SELECT t.task_type FROM outbox_tasks AS t WHERE ${condition} AND t.task_type > type.name ORDER BY t.task_type LIMIT 1)
    FROM type WHERE type.name IS NOT NULL
  )
  SELECT name FROM type WHERE name IS NOT NULL LIMIT ${typeLimit}`

const waits = "state IN ('pending', 'failed')"
const dead = "state = 'dead'"

const decodeWaiting = Rows.all(
  Schema.Struct({ typeName: Schema.String, pending: Schema.Finite, failed: Schema.Finite })
)
const decodeDead = Rows.all(Schema.Struct({ typeName: Schema.String, dead: Schema.Finite }))
const decodeNoted = Rows.all(Schema.Struct({ typeName: Schema.String }))

/**
 * Tasks by type that wait, and that are dead. `pending`: due, and not failed. `failed`: they will be tried again, now or later. Of each type
 * at most {@link countLimit} due tasks, later ones and dead ones are looked at.
 */
export const counts = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const waiting = (due: string) =>
    sql.literal(
      `(SELECT state FROM outbox_tasks AS t WHERE t.task_type = type.name AND ${waits} AND t.execute_at ${due} clock.now LIMIT ${countLimit})`
    )
  return {
    waiting: yield* decodeWaiting(sql`
      SELECT type.name AS "typeName", found.*
      FROM (${sql.literal(typesOf(waits))}) AS type, (SELECT clock_now() AS now) AS clock, LATERAL (
        SELECT count(*) FILTER (WHERE is_due AND state = 'pending')::float8 AS pending,
               count(*) FILTER (WHERE state = 'failed')::float8 AS failed
        FROM (SELECT state, true AS is_due FROM ${waiting("<=")} AS due
              UNION ALL SELECT state, false FROM ${waiting(">")} AS later) AS waiting
      ) AS found`),
    dead: yield* decodeDead(sql`
      SELECT type.name AS "typeName",
             (SELECT count(*) FROM (
                SELECT FROM outbox_tasks AS t WHERE t.task_type = type.name AND ${sql.literal(dead)} LIMIT ${countLimit}
              ) AS c)::float8 AS dead
      FROM (${sql.literal(typesOf(dead))}) AS type`)
  }
}).pipe(Effect.orDie)

/**
 * Writes `NoHandler` as the last error of tasks that are due for long and have none of the `handled` types. They stay as they are until a process
 * that handles their type claims them. Returns the types that were marked now.
 */
export const noteUnhandled = Effect.fnUntraced(function* (
  handled: ReadonlyArray<string>,
  found: ReadonlyArray<string>
) {
  const sql = yield* SqlClient.SqlClient
  const unhandled = found.filter((name) => !handled.includes(name))
  if (unhandled.length === 0) return []
  const noted = yield* decodeNoted(sql`
    WITH unclaimed AS (
      SELECT task_id FROM outbox_tasks, (SELECT clock_now() AS now) AS clock
      WHERE ${sql.literal(waits)} AND task_type = ANY (${unhandled}::text[])
        AND execute_at <= clock.now - ${unclaimedSeconds}::float8 * interval '1 second'
      LIMIT ${countLimit} FOR UPDATE SKIP LOCKED
    )
    UPDATE outbox_tasks SET last_error = 'NoHandler: no worker handles tasks of type "' || task_type || '"'
    WHERE task_id = ANY (ARRAY(SELECT task_id FROM unclaimed)) AND last_error IS DISTINCT FROM 'NoHandler: no worker handles tasks of type "' || task_type || '"'
    RETURNING task_type AS "typeName"`)
  return [...new Set(noted.map(({ typeName }) => typeName))]
}, Effect.orDie)

/** Samples for as long as the scope is open. */
export const sample = Effect.fnUntraced(function* (handled: ReadonlyArray<string>) {
  // A type that was counted once is set to 0 when it has no more tasks.
  const known = new Set(handled)
  const show = Effect.fnUntraced(function* (found: Partial<Effect.Success<typeof counts>>) {
    for (const { typeName } of [...(found.waiting ?? []), ...(found.dead ?? [])]) known.add(typeName)
    for (const task_type of known) {
      const waiting = found.waiting?.find((row) => row.typeName === task_type)
      for (const state of ["pending", "failed"] as const) {
        yield* Metric.update(Metric.withAttributes(pendingGauge, { task_type, state }), waiting?.[state] ?? 0)
      }
      const dead = found.dead?.find((row) => row.typeName === task_type)?.dead ?? 0
      yield* Metric.update(Metric.withAttributes(deadGauge, { task_type }), dead)
    }
  })
  yield* show({})
  yield* Supervised.forkLoop(
    "task metrics",
    Effect.gen(function* () {
      const found = yield* counts
      yield* show(found)
      const noted = yield* noteUnhandled(
        handled,
        found.waiting.map(({ typeName }) => typeName)
      )
      for (const typeName of noted) yield* Effect.logWarning(`no worker handles tasks of type "${typeName}"`)
      yield* Effect.sleep(sampleMillis)
    })
  )
})
