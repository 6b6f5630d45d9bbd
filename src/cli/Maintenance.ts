/** `paid-once maintenance run [--dry-run]`: one round of the upkeep that `serve` does every ten minutes, and what it did. */
import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import type { Step } from "../operations/DailyPartitions.ts"
import { type Report, unfinished } from "../operations/Maintenance.ts"
import { ExitStatus } from "./Process.ts"
import { countOf } from "../platform/Plural.ts"

const done: Readonly<Record<Step["outcome"], string>> = {
  made: "made",
  dropped: "dropped",
  deleted: "deleted old rows from",
  kept: "kept, for it holds younger rows:",
  blocked: "can't make, for the default partition holds too many of its rows:",
  busy: "in use, to be tried again later:"
}
const would: Readonly<Record<Step["outcome"], string>> = {
  ...done,
  made: "would make",
  dropped: "would drop",
  deleted: "would delete old rows from",
  kept: "would keep, for it holds younger rows:"
}

const lines = (report: Report, dryRun: boolean) =>
  report.length === 0
    ? "Nothing to do."
    : report
        .map(({ outcome, partition, rows }) => {
          const line = `${(dryRun ? would : done)[outcome]} ${partition}`
          return rows === undefined ? line : `${line} (${countOf(rows, "row")})`
        })
        .join("\n")

/** The command, around what runs a round. Exit status 1 when something was due and could not be done now. */
export const make = <E, R>(round: (options: { readonly dryRun: boolean }) => Effect.Effect<Report, E, R>) =>
  Command.make("maintenance").pipe(
    Command.withDescription("Upkeep of the tables: partitions made ahead, and dropped after retention"),
    Command.withSubcommands([
      Command.make(
        "run",
        {
          dryRun: Flag.Boolean("dry-run").pipe(
            Flag.withDescription("change nothing, tell what a run would do"),
            Flag.withDefault(false)
          ),
          json: Flag.Boolean("json").pipe(
            Flag.withDescription("print JSON for programs to read"),
            Flag.withDefault(false)
          )
        },
        Effect.fnUntraced(function* ({ dryRun, json }) {
          const report = yield* round({ dryRun })
          yield* Console.log(json ? JSON.stringify({ dryRun, steps: report }) : lines(report, dryRun))
          if (unfinished(report).length > 0) return yield* Effect.fail(new ExitStatus(1))
        })
      ).pipe(Command.withDescription("One round of it; any number may run at once, beside the service's own"))
    ])
  )
