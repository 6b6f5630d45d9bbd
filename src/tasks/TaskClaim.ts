/**
 * The statement that hands tasks to a worker. It sets the lease and the fencing token itself, so the tasks of a worker that dies right after it
 * are recovered, too.
 *
 * `FOR UPDATE SKIP LOCKED` is right here and wrong in the outbox: tasks have no order. Tasks of one ordering key have one, and the index
 * `outbox_tasks_one_running` lets only one of them be claimed at a time.
 */
import { Context, Effect, Layer, Schedule, Schema } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { isoTime } from "../platform/IsoTime.ts"
import * as Rows from "../platform/Rows.ts"
import { TaskSettings } from "./TaskSettings.ts"
import { priorities, type TaskId } from "./TaskType.ts"

/** A claimed task. */
export interface ClaimedTask {
  readonly taskId: TaskId
  readonly typeName: string
  /** As it is stored. */
  readonly payload: unknown
  readonly idempotencyKey: string | null
  /** Which run this is, from 1. */
  readonly attempt: number
  /** The fencing token: a statement that ends this run must name it. */
  readonly token: number
  readonly enqueuedAt: string
  readonly traceId: string | null
  readonly spanId: string | null
  /** It has an ordering key: other tasks may wait for its end. */
  readonly keyed: boolean
}

/** The number of tasks of a type that a worker has room for. */
export interface Wanted {
  readonly typeName: string
  readonly free: number
}

/** When two workers claim tasks of one ordering key at once, the second one fails, and its next snapshot shows the first one's claim. */
const maxCollisions = 10

/** The answer to when the next task is due. */
export interface NextDue {
  /** Milliseconds until then, not above 0 where it is due by now; undefined where no task waits for its time. */
  readonly millis: number | undefined
  /** The time of this question, by the database's clock. */
  readonly askedAt: string
}

const decodeNextDue = Rows.one(Schema.Struct({ millis: Schema.NullOr(Schema.Finite), askedAt: Schema.String }))

export class TaskClaim extends Context.Service<
  TaskClaim,
  {
    /**
     * Claims due tasks of these types, of each type at most `free`: by priority, then by due time, then in the order of enqueuing. It is one
     * statement for any number of tasks, and it never waits for a lock.
     */
    readonly claim: (wanted: ReadonlyArray<Wanted>, worker: string) => Effect.Effect<ReadonlyArray<ClaimedTask>>
    /**
     * When the first task of these types that became due after `since`, or that will, is due. Give the `askedAt` of a question before the last claim: then
     * a task that became due after that claim is in the answer. Older ones are left out. The claim saw them and left them for a reason that takes more
     * than time, as an earlier task of their ordering key, or another worker's lock. Without `since` all are asked for.
     */
    readonly nextDue: (typeNames: ReadonlyArray<string>, since?: string) => Effect.Effect<NextDue>
  }
>()("paid-once/tasks/TaskClaim") {
  static readonly layer: Layer.Layer<TaskClaim, never, SqlClient.SqlClient> = Layer.effect(
    TaskClaim,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { leaseMillis } = yield* TaskSettings
      // LATERAL is a nested loop: the levels come in this order, and the LIMIT ends it before the levels that are not needed.
      const levels = sql.literal(`generate_series(${priorities.highest}, ${priorities.lowest}, -1) AS level(priority)`)

      const claim = Effect.fnUntraced(
        function* (wanted: ReadonlyArray<Wanted>, worker: string) {
          // oxlint-disable-next-line paid-once/decoded-rows -- every claim; a payload is decoded by its handler
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
            SELECT task_id::text AS "taskId", task_type AS "typeName", payload, idempotency_key AS "idempotencyKey", attempts AS attempt, token,
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

      const nextDue = Effect.fnUntraced(function* (typeNames: ReadonlyArray<string>, since?: string) {
        const { askedAt, millis } = yield* decodeNextDue(sql`
          -- As text, which keeps the microseconds, for this server alone.
          SELECT clock.now::text AS "askedAt", (
            -- Rounded up: a timer knows whole milliseconds, and one that ends before the task is due has to be set again.
            SELECT ceil(extract(epoch FROM min(next.execute_at) - clock.now) * 1000)::float8
            FROM unnest(${[...typeNames]}::text[]) AS wanted(task_type)
            CROSS JOIN ${levels}
            CROSS JOIN LATERAL (
              SELECT t.execute_at FROM outbox_tasks AS t
              WHERE t.state IN ('pending', 'failed') AND t.task_type = wanted.task_type AND t.priority = level.priority
                AND t.execute_at > ${since ?? "-infinity"}::timestamptz
              ORDER BY t.execute_at, t.seq LIMIT 1
            ) AS next
          ) AS millis
          FROM (SELECT clock_now() AS now) AS clock`)
        return { askedAt, millis: millis ?? undefined }
      }, Effect.orDie)

      return TaskClaim.of({
        claim: (wanted, worker) => (wanted.length === 0 ? Effect.succeed([]) : claim(wanted, worker)),
        nextDue
      })
    })
  )
}
