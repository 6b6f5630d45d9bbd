/**
 * Upkeep of the mechanism's tables: partitions made ahead of their day, and dropped after retention; finished tasks
 * deleted. What a business transaction writes to is never locked, and what waits to be published is in none of these tables.
 *
 * Any number of processes may do it; each step is safe to repeat, short, and gives up rather than make somebody wait.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { RetentionSettings } from "../platform/Retention.ts"
import * as Supervised from "../platform/Supervised.ts"
import * as TaskCleanup from "../tasks/TaskCleanup.ts"
import * as DailyPartitions from "./DailyPartitions.ts"

/** Days made ahead: upkeep that stands still over a long weekend is noticed before the default partition fills. */
const daysAhead = 4

/** How often to look. A day has many of these; the first comes with the start. */
const everyMillis = 600_000

/** After somebody stood in the way of a step, the next try comes with the next look of {@link Supervised}'s watch. */
const napMillis = Supervised.stuckAfterMillis / 2

/** What one round did, or, in a dry run, would do. */
export type Report = ReadonlyArray<DailyPartitions.Step>

/** A table's upkeep that this room knows nothing of: how many rows it deleted, or, in a dry run, would delete at least. */
export interface Upkeep {
  readonly table: string
  readonly deleteExpired: (options: {
    readonly dryRun?: boolean
  }) => Effect.Effect<number, SqlError.SqlError, PgClient.PgClient | SqlClient.SqlClient>
}

/** The tables of the embedded broker, and of the service that is built on the mechanism. */
export const FurtherUpkeep = Context.Reference<ReadonlyArray<Upkeep>>("paid-once/operations/FurtherUpkeep", {
  defaultValue: () => []
})

/** One round of upkeep: says what it did, partition by partition; nothing where nothing was due. */
export const runOnce = Effect.fn("Maintenance.runOnce")(function* (options: { readonly dryRun?: boolean } = {}) {
  const { inboxDays, outboxDays, taskDays } = yield* RetentionSettings
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

/** Steps that were due and could not be done: worth another try soon. */
export const unfinished = (report: Report): Report => report.filter(({ outcome }) => outcome === "busy")

const log = (report: Report) =>
  Effect.forEach(
    report,
    ({ outcome, partition, rows }) => {
      const line = `maintenance: ${partition} ${outcome}${rows === undefined ? "" : `, ${rows} rows`}`
      // A day in the default partition costs no more than a slower search, but it tells that upkeep stood still for days.
      return outcome === "blocked"
        ? Effect.logWarning(`${line}: the default partition holds too many of its rows`)
        : outcome === "made" || outcome === "dropped" || outcome === "deleted"
          ? Effect.logInfo(line)
          : Effect.logDebug(line)
    },
    { discard: true }
  )

/** Runs upkeep for as long as the layer lives. */
export const layer: Layer.Layer<never, never, PgClient.PgClient | SqlClient.SqlClient | Supervised.Fibers> =
  Layer.effectDiscard(
    Supervised.forkLoop(
      "maintenance",
      Effect.fnUntraced(function* (stamp: Effect.Effect<void>) {
        const report = yield* runOnce()
        yield* log(report)
        // The wait is longer than a silence that counts as stuck.
        const naps = unfinished(report).length > 0 ? 1 : Math.ceil(everyMillis / napMillis)
        for (let nap = 0; nap < naps; nap++) yield* Effect.andThen(stamp, Effect.sleep(napMillis))
      })
    )
  )
