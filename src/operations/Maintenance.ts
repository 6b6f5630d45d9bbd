/**
 * Upkeep of the tables: partitions are made ahead of their day and dropped after the retention, and finished tasks are deleted. It locks no
 * table that a business transaction writes to, and none of its tables holds an event that waits to be published.
 *
 * Any number of processes may run it. Each step is short and safe to repeat, and gives up rather than make another session wait.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import * as Retention from "../platform/Retention.ts"
import * as Supervised from "../platform/Supervised.ts"
import { countOf } from "../platform/Plural.ts"
import * as TaskCleanup from "../tasks/TaskCleanup.ts"
import * as DailyPartitions from "./DailyPartitions.ts"

/** Days made ahead: enough for upkeep that fails over a long weekend to be noticed before rows go to the default partition. */
const daysAhead = 4

/** Time between two rounds. The first round comes with the start. */
const everyMillis = 600_000

/** Time until the next round after a busy step. Naps are this short because {@link Supervised} reports a loop that is silent for longer. */
const napMillis = Supervised.stuckAfterMillis / 2

/** The steps of one round: done, or, in a dry run, due. */
export type Report = ReadonlyArray<DailyPartitions.Step>

/** The upkeep of a table of another room. Returns how many rows it deleted or, in a dry run, would delete at least. */
export interface Upkeep {
  readonly table: string
  /** How long this process keeps its rows, where a variable says so; 0 keeps them for ever. */
  readonly retentionDays?: number
  readonly deleteExpired: (options: {
    readonly dryRun?: boolean
  }) => Effect.Effect<number, SqlError.SqlError, PgClient.PgClient | SqlClient.SqlClient>
}

/** The tables of the embedded broker and of the business. */
export const FurtherUpkeep = Context.Reference<ReadonlyArray<Upkeep>>("paid-once/operations/FurtherUpkeep", {
  defaultValue: () => []
})

/** Notes how long this process of the service keeps things. Commands go by that ({@link Retention.noted}). */
export const noteKept = Effect.gen(function* () {
  const { inboxDays, outboxDays, taskDays } = yield* Retention.RetentionSettings
  const further = (yield* FurtherUpkeep).flatMap(({ retentionDays, table }) =>
    retentionDays === undefined ? [] : [[table, retentionDays] as const]
  )
  yield* Retention.note({
    event_log: outboxDays,
    processed_events: inboxDays,
    outbox_tasks: taskDays,
    ...Object.fromEntries(further)
  })
})

/** Notes it once, at the start: also in a process without upkeep, whose upkeep may be a cron job's command. */
export const layerNoted: Layer.Layer<never, never, SqlClient.SqlClient> = Layer.effectDiscard(
  Effect.catch(noteKept, (error) => Effect.logWarning("retention: it could not be noted", error))
)

/** One round of upkeep. Reports a step for each partition that was due. */
export const runOnce = Effect.fn("Maintenance.runOnce")(function* (options: { readonly dryRun?: boolean } = {}) {
  const { inboxDays, outboxDays, taskDays } = yield* Retention.RetentionSettings
  const tables: ReadonlyArray<DailyPartitions.DailyTable> = [
    { table: "event_log", timeColumn: "published_at", retentionDays: outboxDays },
    { table: "processed_events", timeColumn: "processed_at", retentionDays: inboxDays }
  ]
  const steps = yield* Effect.forEach(tables, (daily) =>
    Effect.zipWith(
      DailyPartitions.makeAhead(daily.table, daysAhead, options),
      DailyPartitions.dropExpired(daily, options),
      (made, dropped) => [...made, ...dropped]
    )
  )
  const tasks = yield* options.dryRun === true
    ? TaskCleanup.countExpired(taskDays)
    : TaskCleanup.deleteExpired(taskDays)
  const further = yield* Effect.forEach(yield* FurtherUpkeep, ({ deleteExpired, table }) =>
    Effect.map(deleteExpired(options), (deleted) =>
      deleted === 0 ? [] : [{ table, partition: table, outcome: "deleted", rows: deleted } as const]
    )
  )
  const report: Report = [
    ...steps.flat(),
    ...further.flat(),
    ...(tasks === 0
      ? []
      : [{ table: "outbox_tasks", partition: "outbox_tasks", outcome: "deleted", rows: tasks } as const])
  ]
  return report
})

/** Steps that were due and found a lock taken: worth another try soon. */
export const unfinished = (report: Report): Report => report.filter(({ outcome }) => outcome === "busy")

const log = (report: Report) =>
  Effect.forEach(
    report,
    ({ outcome, partition, rows }) => {
      const line = `maintenance: ${partition} ${outcome}${rows === undefined ? "" : `, ${countOf(rows, "row")}`}`
      // Rows in the default partition only make lookups slower, but they mean that upkeep has failed for days.
      return outcome === "blocked"
        ? Effect.logWarning(`${line}: the default partition holds too many of its rows`)
        : outcome === "made" || outcome === "dropped" || outcome === "deleted"
          ? Effect.logInfo(line)
          : Effect.logDebug(line)
    },
    { discard: true }
  )

/** Runs a round every ten minutes for as long as the layer lives. */
export const layer: Layer.Layer<never, never, PgClient.PgClient | SqlClient.SqlClient | Supervised.Fibers> =
  Layer.effectDiscard(
    Supervised.forkLoop(
      "maintenance",
      Effect.fnUntraced(function* (stamp: Effect.Effect<void>) {
        yield* noteKept
        const report = yield* runOnce()
        yield* log(report)
        const naps = unfinished(report).length > 0 ? 1 : Math.ceil(everyMillis / napMillis)
        for (let nap = 0; nap < naps; nap++) yield* Effect.andThen(stamp, Effect.sleep(napMillis))
      })
    )
  )
