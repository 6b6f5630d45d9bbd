/**
 * The statement that hands tasks to a worker. It sets lease and fencing token by itself: a worker that dies right after it is recovered, too.
 *
 * `FOR UPDATE SKIP LOCKED` is right here, where it is wrong in the outbox: tasks have no order among each other, but for those with an
 * ordering key, and of a key the index `outbox_tasks_one_running` lets one be taken.
 */
import { Context, Effect, Layer, Schedule } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { isoTime } from "./TaskRows.ts"
import { TaskSettings } from "./TaskSettings.ts"
import { priorities, type TaskId } from "./TaskType.ts"

/** A task that was taken, with what its run and its end need. */
export interface ClaimedTask {
  readonly taskId: TaskId
  readonly typeName: string
  /** As it is stored. */
  readonly payload: unknown
  /** Which run this is, from 1. */
  readonly attempt: number
  /** Whoever ends this run has to show it. */
  readonly token: number
  readonly enqueuedAt: string
  readonly traceId: string | null
  readonly spanId: string | null
  /** Others may wait for its end. */
  readonly keyed: boolean
}

/** How many tasks of a type a worker has room for. */
export interface Wanted {
  readonly typeName: string
  readonly free: number
}

/** Two that claim tasks of one ordering key at once: the second sees the first one's in its next snapshot. */
const maxCollisions = 10

export class TaskClaim extends Context.Service<
  TaskClaim,
  {
    /**
     * Takes due tasks of these types, of each at most as many as there is room for: the highest priority first, then what was due first,
     * then in the order of enqueuing. One statement, whatever the number; nobody waits for a lock in it.
     */
    readonly claim: (wanted: ReadonlyArray<Wanted>, worker: string) => Effect.Effect<ReadonlyArray<ClaimedTask>>
    /** In how many milliseconds the next task of these types is due that is not yet; undefined where there is none. */
    readonly nextDueMillis: (typeNames: ReadonlyArray<string>) => Effect.Effect<number | undefined>
  }
>()("paid-once/tasks/TaskClaim") {
  static readonly layer: Layer.Layer<TaskClaim, never, SqlClient.SqlClient> = Layer.effect(
    TaskClaim,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { leaseMillis } = yield* TaskSettings
      // In the nested loop that a LATERAL is, the levels come in this order, and those behind a full one are never looked at.
      const levels = sql.literal(`generate_series(${priorities.highest}, ${priorities.lowest}, -1) AS level(priority)`)

      const claim = Effect.fnUntraced(
        function* (wanted: ReadonlyArray<Wanted>, worker: string) {
          return yield* sql<ClaimedTask>`
            WITH due AS (
              SELECT picked.task_id
              FROM unnest(${wanted.map(({ typeName }) => typeName)}::text[], ${wanted.map(({ free }) => free)}::int4[]) AS wanted(task_type, free)
              CROSS JOIN (SELECT clock_now() AS now) AS clock
              CROSS JOIN LATERAL (
                SELECT found.task_id FROM ${levels}
                CROSS JOIN LATERAL (
                  SELECT t.task_id FROM outbox_tasks AS t
                  WHERE t.state IN ('pending', 'failed')
                    AND t.task_type = wanted.task_type AND t.priority = level.priority AND t.execute_at <= clock.now
                    AND (t.ordering_key IS NULL OR (
                      NOT EXISTS (SELECT FROM outbox_tasks AS e WHERE e.ordering_key = t.ordering_key AND e.seq < t.seq
                                    AND e.state IN ('pending', 'failed', 'processing'))
                      -- A later one that came first: the order is lost, but still one at a time.
                      AND NOT EXISTS (SELECT FROM outbox_tasks AS e WHERE e.ordering_key = t.ordering_key AND e.state = 'processing')))
                  ORDER BY t.execute_at, t.seq LIMIT wanted.free
                  FOR UPDATE SKIP LOCKED
                ) AS found
                LIMIT wanted.free
              ) AS picked
            ), claimed AS (
              UPDATE outbox_tasks AS t
              SET state = 'processing', attempts = attempts + 1, token = token + 1, leased_by = ${worker}, 
                  lease_until = clock_now() + ${leaseMillis}::float8 * interval '1 millisecond',
                  -- Says why the last run failed, and no more that nobody handles the type.
                  last_error = history -> -1 ->> 'error'
              -- An array, for which the planner takes the primary key however many it expects.
              WHERE t.task_id = ANY (ARRAY(SELECT task_id FROM due))
              RETURNING *
            )
            SELECT task_id::text AS "taskId", task_type AS "typeName", payload, attempts AS attempt, token,
                   ${sql.literal(isoTime("enqueued_at"))} AS "enqueuedAt", trace_id AS "traceId", span_id AS "spanId",
                   ordering_key IS NOT NULL AS keyed
            FROM claimed ORDER BY priority DESC, execute_at, seq`
        },
        Effect.retry({
          while: (error) => SqlError.isSqlError(error) && error.reason._tag === "UniqueViolation",
          schedule: Schedule.recurs(maxCollisions)
        }),
        Effect.orDie
      )

      const nextDueMillis = Effect.fnUntraced(function* (typeNames: ReadonlyArray<string>) {
        const [row] = yield* sql<{ readonly millis: number | null }>`
          SELECT min(extract(epoch FROM next.execute_at - clock.now) * 1000)::float8 AS millis
          FROM unnest(${[...typeNames]}::text[]) AS wanted(task_type)
          CROSS JOIN (SELECT clock_now() AS now) AS clock
          CROSS JOIN ${levels}
          CROSS JOIN LATERAL (
            SELECT t.execute_at FROM outbox_tasks AS t
            WHERE t.state IN ('pending', 'failed')
              AND t.task_type = wanted.task_type AND t.priority = level.priority AND t.execute_at > clock.now
            ORDER BY t.execute_at, t.seq LIMIT 1
          ) AS next`
        return row?.millis ?? undefined
      }, Effect.orDie)

      return TaskClaim.of({
        claim: (wanted, worker) => (wanted.length === 0 ? Effect.succeed([]) : claim(wanted, worker)),
        nextDueMillis
      })
    })
  )
}
