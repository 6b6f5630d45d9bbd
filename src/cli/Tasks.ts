/** `paid-once tasks list|show|retry|cancel|pause|resume`: durable work that waits, fails or has died. */
import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { taskTypeNames } from "../main/Names.ts"
import {
  AskedState,
  type Cause,
  type Details,
  shown as inWords,
  TaskReport,
  unfinished
} from "../operations/reports/TaskReport.ts"
import { countOf } from "../platform/Plural.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { TaskId } from "../tasks/TaskType.ts"
import {
  by,
  byCause,
  json,
  knownIfGiven,
  onDatabase,
  operatorOf,
  pageFilter,
  pageFlags,
  print,
  printPage,
  reason,
  since,
  table
} from "./Operator.ts"
import { pauseCommands } from "./Pauses.ts"
import { ExitStatus } from "./Process.ts"

const taskId = Argument.String("task-id").pipe(
  Argument.withDescription("the task's id, as `tasks list` shows it"),
  Argument.withSchema(TaskId)
)
const type = Flag.String("type").pipe(
  Flag.withDescription(`only tasks of this type: ${taskTypeNames.join(", ")}`),
  Flag.optional
)

/** Tasks of a type that this version no longer has may still be in the table: they are listed, and can't be asked for by name. */
const typeOf = (name: Option.Option<string>) => knownIfGiven("task type", taskTypeNames, name)

const grouped = (causes: ReadonlyArray<Cause>) =>
  causes.length === 0
    ? ["None."]
    : table([
        ["TASKS", "STATE", "TYPE", "FIRST", "LAST", "CAUSE"],
        ...causes.map(({ cause, count, first, last, state, type }) => [String(count), state, type, first, last, cause])
      ])

const list = Command.make(
  "list",
  {
    json,
    type,
    status: Flag.Literals("status", AskedState.literals).pipe(
      Flag.withDescription(
        "only tasks in this state (default: pending, processing, retrying and dead; failed means retrying)"
      ),
      Flag.optional
    ),
    byCause,
    ...pageFlags(TaskId)
  },
  Effect.fnUntraced(function* ({ byCause, json, limit, status, type, ...flags }) {
    const { cursor, ...ofTime } = pageFilter(flags)
    const filter = { type: yield* typeOf(type), ...ofTime }
    if (byCause) {
      const causes = yield* onDatabase(Effect.flatMap(TaskReport, (report) => report.causes(filter, limit)))
      return yield* print(json, { items: causes }, () => grouped(causes))
    }
    const states = Option.match(status, { onNone: () => unfinished, onSome: (one) => [one] })
    const page = yield* onDatabase(TaskReport.use((report) => report.list(states, filter, { limit, cursor })))
    yield* printPage(json, page, ["TASK", "STATE", "TYPE", "RUNS", "DUE", "LAST ERROR"], (task) => [
      task.taskId,
      task.state,
      task.type,
      String(task.attempts),
      task.finishedAt === null ? task.executeAt : "",
      task.lastError ?? ""
    ])
  })
).pipe(Command.withDescription("List tasks that wait, run, are retrying or dead, the newest first"))

const shown = (task: Details): ReadonlyArray<string> => [
  ...table([
    ["task", task.taskId],
    ["type", task.type],
    ["state", task.cancelRequested ? `${task.state}, to be cancelled` : task.state],
    ["runs", String(task.attempts)],
    ["priority", String(task.priority)],
    ...(task.idempotencyKey === null ? [] : [["key", task.idempotencyKey]]),
    ...(task.orderingKey === null ? [] : [["ordering key", task.orderingKey]]),
    ...(task.leasedBy === null || task.state !== "processing" ? [] : [["runs in", task.leasedBy]]),
    ...(task.traceId === null ? [] : [["trace", task.traceId]]),
    ...(task.finishedAt === null ? [["due", task.executeAt]] : []),
    ...(task.lastError === null ? [] : [["last error", task.lastError]])
  ]),
  // Its story, in the order of time.
  ...[
    { at: task.enqueuedAt, text: "enqueued" },
    ...task.history.map(({ at, attempt, error }) => ({ at, text: `run ${attempt}: ${error}` })),
    ...task.audit.map(({ action, actor, at, reason }) => ({ at, text: `${action} by ${actor}: ${reason}` })),
    ...(task.finishedAt === null ? [] : [{ at: task.finishedAt, text: task.state }])
  ]
    .toSorted((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0))
    .map(({ at, text }) => `${at}  ${text.replaceAll(/\s+/g, " ")}`)
]

const show = Command.make(
  "show",
  { json, taskId },
  Effect.fnUntraced(function* ({ json, taskId }) {
    const task = yield* onDatabase(Effect.flatMap(TaskReport, (report) => report.show(taskId)))
    yield* print(json, task, () => shown(task))
  })
).pipe(Command.withDescription("Show one task: its state, each failed run, and who did what to it"))

const retry = Command.make(
  "retry",
  {
    json,
    taskId: Argument.optional(taskId),
    all: Flag.Boolean("all").pipe(
      Flag.withDescription("every dead task; or narrow it down with --type, --since"),
      Flag.withDefault(false)
    ),
    type,
    since,
    reason,
    by
  },
  Effect.fnUntraced(function* ({ all, by, json, reason, since, taskId, type }) {
    const operator = operatorOf({ by, reason })
    const many = all || Option.isSome(type) || Option.isSome(since)
    if (Option.isSome(taskId) === many) {
      yield* Console.error("paid-once: retry takes a task id, or else --all, --type or --since")
      return yield* Effect.fail(new ExitStatus(2))
    }
    if (Option.isSome(taskId)) {
      const handled = yield* onDatabase(Effect.flatMap(Tasks, (tasks) => tasks.retry(taskId.value, operator))).pipe(
        Effect.map(inWords)
      )
      const { changed, state } = handled
      return yield* print(json, handled, () => [
        `Task ${taskId.value}${changed ? ": due now" : state === "completed" ? " is completed" : " is due already, or runs"}.`
      ])
    }
    const filter = { type: yield* typeOf(type), sinceSeconds: Option.getOrUndefined(since) }
    const done = yield* onDatabase(Effect.flatMap(TaskReport, (report) => report.retryAll(filter, operator)))
    yield* print(json, done, () => [`Retrying ${countOf(done.retried, "task")}.`])
  })
).pipe(Command.withDescription("Run a dead or cancelled task anew, with all its attempts; a waiting one now"))

const cancel = Command.make(
  "cancel",
  {
    json,
    taskId: Argument.optional(taskId),
    type: type.pipe(Flag.withDescription("instead of an id: every task of this type that waits or is retrying")),
    since,
    reason,
    by
  },
  Effect.fnUntraced(function* ({ by, json, reason, since, taskId, type }) {
    const operator = operatorOf({ by, reason })
    if (Option.isSome(taskId) === Option.isSome(type) || (Option.isSome(taskId) && Option.isSome(since))) {
      yield* Console.error("paid-once: cancel takes a task id, or else --type, which --since narrows down")
      return yield* Effect.fail(new ExitStatus(2))
    }
    if (Option.isSome(taskId)) {
      const id = taskId.value
      const handled = yield* onDatabase(Effect.flatMap(Tasks, (tasks) => tasks.cancel(id, operator))).pipe(
        Effect.map(inWords)
      )
      return yield* print(json, handled, () => [
        handled.state === "processing"
          ? `Task ${id} runs: its worker stops it with the next heartbeat.`
          : `Task ${id} is cancelled${handled.changed ? "" : " already"}.`
      ])
    }
    const filter = { type: (yield* typeOf(type))!, sinceSeconds: Option.getOrUndefined(since) }
    const cancelled = yield* onDatabase(TaskReport.use((report) => report.cancelAll(filter, operator)))
    yield* print(json, { cancelled }, () => [`Cancelled ${countOf(cancelled, "task")}.`])
  })
).pipe(Command.withDescription("Cancel a task, or all of a type; a payment whose recovery is cancelled becomes manual"))

/** The command. */
export const tasks = Command.make("tasks").pipe(
  Command.withSubcommands([
    list,
    show,
    retry,
    cancel,
    ...pauseCommands("task type", taskTypeNames, "Begin no more tasks of a type; those that run end.")
  ])
)
