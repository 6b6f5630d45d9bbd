/** The operator's view of the tasks: counts by type and state, lists, failures by cause, and the redrive of many. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { isoTime } from "../../platform/IsoTime.ts"
import type { Operator } from "../../platform/OperatorAudit.ts"
import * as Pages from "../../platform/Pages.ts"
import * as Rows from "../../platform/Rows.ts"
import { TaskView, viewColumns } from "../../tasks/TaskRows.ts"
import { TaskNotFound, Tasks } from "../../tasks/Tasks.ts"
import { TaskId, TaskState } from "../../tasks/TaskType.ts"
import {
  causeOf,
  countLimit,
  failedSo,
  inLast,
  listLimit,
  type PageOptions,
  type Preview,
  preview,
  unionAll
} from "./ReportSql.ts"

/** Which tasks; a field that is not set matches all. */
export interface Filter {
  readonly type?: string | undefined
  /** Only tasks that were enqueued in these last seconds. */
  readonly sinceSeconds?: number | undefined
  /** Only tasks that failed so, in the words of a {@link Cause}. */
  readonly cause?: string | undefined
}

/** A task's state as operators read it: `retrying` has failed, and is tried again. The table says `failed`. */
export const State = Schema.Literals(["pending", "processing", "retrying", "dead", "completed", "cancelled"])
export type State = typeof State.Type

/** A state to ask for; `failed` is the table's word for `retrying`. */
export const AskedState = Schema.Literals([...State.literals, "failed"])
export type AskedState = typeof AskedState.Type

const storedAs = (state: AskedState): TaskState => (state === "retrying" ? "failed" : state)

/** The same with its state in the words of operators. */
export const shown = <A extends { readonly state: TaskState }>(
  of: A
): Omit<A, "state"> & { readonly state: State } => ({
  ...of,
  state: of.state === "failed" ? "retrying" : of.state
})

/** A task in a list. */
export const Listed = Schema.Struct({ ...TaskView.fields, state: State }).annotate({ identifier: "ListedTask" })
export type Listed = typeof Listed.Type

/** Tasks of a type in a state, counted up to `countLimit`. */
export const Count = Schema.Struct({
  type: Schema.String,
  state: State,
  count: Schema.Int,
  /** Of retrying tasks since the first of them was enqueued, of dead ones since the first of them ended; null in other states. */
  sinceSeconds: Schema.NullOr(Schema.Finite)
})
export type Count = typeof Count.Type

/** Tasks of a type that wait for the same reason: their last errors differ in numbers and ids alone. */
export const Cause = Schema.Struct({
  type: Schema.String,
  state: State,
  cause: Schema.String,
  count: Schema.Int,
  /** When the first and the last of them were enqueued. */
  first: Schema.String,
  last: Schema.String
})
export type Cause = typeof Cause.Type

/** A task with what operators did to it. */
export const Details = Schema.Struct({
  ...Listed.fields,
  idempotencyKey: Schema.NullOr(Schema.String),
  orderingKey: Schema.NullOr(Schema.String),
  /** The process that runs it now. */
  leasedBy: Schema.NullOr(Schema.String),
  traceId: Schema.NullOr(Schema.String),
  audit: Schema.Array(
    Schema.Struct({ at: Schema.String, actor: Schema.String, action: Schema.String, reason: Schema.String })
  )
})
export type Details = typeof Details.Type

/** The result of a redrive: `skipped` tasks were taken by somebody else meanwhile. */
export const Retried = Schema.Struct({ retried: Schema.Int, skipped: Schema.Int })
export type Retried = typeof Retried.Type

/** Audit entries of one task that are shown: the last ones. */
const auditLimit = 20

/** The states in which a task waits for something, and those that are looked up by time alone. */
export const unfinished: ReadonlyArray<State> = ["pending", "processing", "retrying", "dead"]

const allViews = Rows.all(TaskView)
const allCounts = Rows.all(Count)
const allCauses = Rows.all(Cause)
const firstDetails = Rows.first(Schema.Struct({ ...Details.fields, state: TaskState }))

/** The column that says since when tasks of a state wait. */
const sinceColumns: Partial<Record<State, string>> = { retrying: "enqueued_at", dead: "finished_at" }
const taskIds = Rows.all(Schema.Struct({ taskId: TaskId }))

export class TaskReport extends Context.Service<
  TaskReport,
  {
    /** Tasks that are not finished, or dead, by type and state. */
    readonly counts: Effect.Effect<ReadonlyArray<Count>>
    /** Tasks in one of these states, the newest first. */
    readonly list: (
      states: ReadonlyArray<AskedState>,
      filter: Filter,
      page: PageOptions<TaskId>
    ) => Effect.Effect<Pages.Page<Listed, TaskId>>
    /** Why the retrying and dead tasks that match wait, the most frequent cause first. */
    readonly causes: (filter: Filter, limit: number) => Effect.Effect<ReadonlyArray<Cause>>
    /** All that is known of a task, but its payload, which may hold personal data. */
    readonly show: (taskId: TaskId) => Effect.Effect<Details, TaskNotFound>
    /** Runs all dead tasks that match anew, those that were dead when it began. Each is audited. */
    readonly retryAll: (filter: Filter, operator: Operator) => Effect.Effect<Retried>
    /** What {@link retryAll} would take up now. Changes nothing. */
    readonly preview: (filter: Filter) => Effect.Effect<Preview>
    /** Cancels all waiting and retrying tasks that match, those that waited when it began, up to `countLimit`. Each is audited. Returns how many. */
    readonly cancelAll: (filter: Filter & { readonly type: string }, operator: Operator) => Effect.Effect<number>
  }
>()("paid-once/operations/reports/TaskReport") {
  static readonly layer: Layer.Layer<TaskReport, never, SqlClient.SqlClient | Tasks> = Layer.effect(
    TaskReport,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const tasks = yield* Tasks

      /** The states are literals, so that the partial indexes answer. */
      const inState = (state: AskedState) => sql.literal(`t.state = '${storedAs(state)}'`)
      const matching = ({ cause, sinceSeconds, type }: Filter) =>
        sql.and([
          type === undefined ? sql`TRUE` : sql`t.task_type = ${type}`,
          inLast(sql, "t.enqueued_at", sinceSeconds),
          failedSo(sql, "t.last_error", cause)
        ])

      const counts = Effect.orDie(
        allCounts(
          sql`${unionAll(
            sql,
            unfinished.map(
              (state) => sql`
              SELECT t.task_type AS type, ${state}::text AS state, count(*)::int4 AS count,
                     extract(epoch FROM clock_now() - min(t.since))::float8 AS "sinceSeconds"
              FROM (SELECT task_type, ${sql.literal(sinceColumns[state] ?? "NULL::timestamptz")} AS since FROM outbox_tasks AS t WHERE ${inState(state)} LIMIT ${countLimit}) AS t
              GROUP BY t.task_type`
            ),
            sql`ORDER BY type, state`
          )}`
        )
      )

      const list = Effect.fn("TaskReport.list")(function* (
        states: ReadonlyArray<AskedState>,
        filter: Filter,
        page: PageOptions<TaskId>
      ) {
        const limit = Math.min(page.limit, listLimit)
        const older = page.cursor === undefined ? sql`TRUE` : sql`t.task_id < ${page.cursor}::uuid`
        // Ids are in the order of time.
        const found = unionAll(
          sql,
          states.map(
            (state) => sql`(
              SELECT * FROM outbox_tasks AS t WHERE ${inState(state)} AND ${matching(filter)} AND ${older}
              ORDER BY t.task_id DESC LIMIT ${limit + 1})`
          ),
          sql``
        )
        const views = yield* allViews(
          sql`SELECT ${sql.literal(viewColumns)} FROM (${found}) AS t ORDER BY t.task_id DESC LIMIT ${limit + 1}`
        )
        return Pages.pageBy(views.map(shown), limit, ({ taskId }) => taskId)
      }, Effect.orDie)

      const causes = Effect.fn("TaskReport.causes")(
        (filter: Filter, limit: number) =>
          allCauses(sql`
            SELECT type, state, cause, count(*)::int4 AS count, ${sql.literal(isoTime("min(enqueued_at)"))} AS first,
                   ${sql.literal(isoTime("max(enqueued_at)"))} AS last
            FROM (${unionAll(
              sql,
              (["retrying", "dead"] as const).map(
                (state) => sql`(
                SELECT t.task_type AS type, ${state}::text AS state, ${sql.literal(causeOf("t.last_error"))} AS cause, t.enqueued_at
                FROM outbox_tasks AS t WHERE ${inState(state)} AND ${matching(filter)} LIMIT ${countLimit})`
              ),
              sql``
            )}) AS waiting
            GROUP BY type, state, cause ORDER BY count DESC, type, state, cause LIMIT ${Math.min(limit, listLimit)}`),
        Effect.orDie
      )

      const show = Effect.fn("TaskReport.show")(function* (taskId: TaskId) {
        const details = yield* Effect.orDie(
          firstDetails(sql`
            SELECT ${sql.literal(viewColumns)}, idempotency_key AS "idempotencyKey", ordering_key AS "orderingKey", leased_by AS "leasedBy",
                   trace_id AS "traceId",
                   (SELECT coalesce(json_agg(json_build_object('at', ${sql.literal(isoTime("a.at"))}, 'actor', a.actor, 'action', a.action, 'reason', a.reason) ORDER BY a.audit_id), '[]')
                    FROM (SELECT * FROM operator_audit WHERE subject = 'task' AND subject_id = ${taskId}::text
                          ORDER BY audit_id DESC LIMIT ${auditLimit}) AS a) AS audit
            FROM outbox_tasks WHERE task_id = ${taskId}::uuid`)
        )
        return shown(details ?? (yield* new TaskNotFound({ taskId })))
      })

      const retryAll = Effect.fn("TaskReport.retryAll")(function* (filter: Filter, operator: Operator) {
        const found = yield* Effect.orDie(
          taskIds(sql`
            SELECT t.task_id::text AS "taskId" FROM outbox_tasks AS t WHERE ${inState("dead")} AND ${matching(filter)}
            ORDER BY t.finished_at LIMIT ${countLimit}`)
        )
        let retried = 0
        // One transaction each: a task may have a worker's lock, and the others don't wait for it.
        for (const { taskId } of found) {
          const handled = yield* Effect.catchTag(tasks.retry(taskId, operator), "TaskNotFound", () =>
            Effect.succeed(undefined)
          )
          if (handled?.changed === true) retried += 1
        }
        return { retried, skipped: found.length - retried }
      })

      const cancelAll = Effect.fn("TaskReport.cancelAll")(function* (filter: Filter, operator: Operator) {
        const found = yield* Effect.orDie(
          taskIds(sql`
            SELECT t.task_id::text AS "taskId" FROM outbox_tasks AS t
            WHERE (${inState("pending")} OR ${inState("retrying")}) AND ${matching(filter)}
            ORDER BY t.enqueued_at LIMIT ${countLimit}`)
        )
        let cancelled = 0
        for (const { taskId } of found) {
          // Whichever has ended meanwhile stays as it is.
          const handled = yield* Effect.orElseSucceed(tasks.cancel(taskId, operator), () => undefined)
          if (handled?.changed === true) cancelled += 1
        }
        return cancelled
      })

      const previewAll = Effect.fn("TaskReport.preview")(
        (filter: Filter) =>
          preview(
            sql,
            sql`SELECT t.task_id::text AS id, t.last_error FROM outbox_tasks AS t WHERE ${inState("dead")} AND ${matching(filter)}`
          ),
        Effect.orDie
      )

      return TaskReport.of({ counts, list, causes, show, retryAll, preview: previewAll, cancelAll })
    })
  )
}
