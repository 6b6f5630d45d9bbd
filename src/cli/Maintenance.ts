/** `paid-once maintenance run [--dry-run]`: one round of the upkeep that `serve` does every ten minutes, and what it did. */
import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import type { Step } from "../operations/DailyPartitions.ts"
import { type Report, unfinished } from "../operations/Maintenance.ts"
import * as Retention from "../platform/Retention.ts"
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

/** A round, and by what it went: the days that the service keeps, and those that variables of the shell name. */
export interface Round {
  readonly report: Report
  readonly kept: ReadonlyArray<Retention.Noted>
  readonly shell: ReadonlyArray<{ readonly table: string; readonly variable: string; readonly days: number }>
}

/** By what the round went. */
const basis = ({ kept }: Round) =>
  kept.length === 0
    ? "Nothing old goes: no process of the service has noted yet how long it keeps things. Each does at its start."
    : `As the service keeps ${kept.map(({ days, table }) => `${table} ${Retention.inWords(days)}`).join(", ")}:`

/** A line for each variable of the shell that says something else than the service. */
const disregarded = ({ kept, shell }: Round) =>
  kept.flatMap(({ by, days, table }) =>
    shell
      .filter((own) => own.table === table && own.days !== days)
      .map(
        (own) =>
          `warning: ${own.variable} is ${own.days} in this shell, and does not count: the service keeps ${table} ${Retention.inWords(days)} (noted by ${by})`
      )
  )

/** The command, around what runs a round. Exit status 1 when something was due and could not be done now. */
export const make = <E, R>(round: (options: { readonly dryRun: boolean }) => Effect.Effect<Round, E, R>) =>
  Command.make("maintenance").pipe(
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
          const done = yield* round({ dryRun })
          const { kept, report } = done
          yield* Effect.forEach(disregarded(done), (line) => Console.error(line), { discard: true })
          yield* Console.log(
            json ? JSON.stringify({ dryRun, kept, steps: report }) : [basis(done), lines(report, dryRun)].join("\n")
          )
          if (unfinished(report).length > 0) return yield* Effect.fail(new ExitStatus(1))
        })
      ).pipe(Command.withDescription("One round of it; any number may run at once, beside the service's own"))
    ])
  )
