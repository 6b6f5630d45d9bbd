/** The last run on this machine, and which figures are worse than in it. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import type { Spread } from "../Figures.ts"
import { isLessBetter, ratioOf, type Row } from "./Rows.ts"

/** What is kept of a run. */
export interface Run {
  readonly at: string
  readonly machine: string
  readonly rows: ReadonlyArray<Row>
}

/** Two runs are comparable on one machine only. */
export const machine = (): string =>
  [
    Os.hostname(),
    Os.cpus()[0]?.model.trim(),
    `${Os.cpus().length} cores`,
    `${Math.round(Os.totalmem() / 2 ** 30)} GiB`
  ].join(", ")

/** A figure that is worse than in the last run, beside it. */
export interface Regression {
  readonly what: string
  readonly peer: string
  readonly before: Spread
  readonly now: Spread
}

/** What one round may differ by from another one on the same code, where too few rounds tell it: runs of an hour apart differed by that. */
const leastChange = 1.25

/**
 * The figures whose ratio to the peer is worse than in the last run: no round of now is as good as the worst one then, and the medians differ
 * by more than {@link leastChange}. A ratio within one run takes the machine's mood out.
 */
export const regressions = (last: Run, now: Run): ReadonlyArray<Regression> => {
  if (last.machine !== now.machine) return []
  const keyOf = ({ peer, what }: Row) => `${what}\n${peer}`
  const before = new Map(last.rows.map((row) => [keyOf(row), row]))
  return now.rows.flatMap((row) => {
    const old = before.get(keyOf(row))
    if (old === undefined) return []
    const [then, here] = [ratioOf(old), ratioOf(row)]
    const isWorse = isLessBetter(row.unit)
      ? here.least > then.most && here.median > then.median * leastChange
      : here.most < then.least && here.median < then.median / leastChange
    return isWorse ? [{ what: row.what, peer: row.peer, before: then, now: here }] : []
  })
}

const fileOf = (mode: string) =>
  Path.resolve(import.meta.dirname, `../../node_modules/.cache/paid-once/bench/${mode}.json`)

/** The last run of this mode; undefined if there is none, or one that another version of this program wrote. */
export const load = (mode: string): Run | undefined => {
  try {
    return existsSync(fileOf(mode)) ? (JSON.parse(readFileSync(fileOf(mode), "utf8")) as Run) : undefined
  } catch {
    return undefined
  }
}

/** Keeps a run in place of the last one of this mode. */
export const save = (mode: string, run: Run): void => {
  const file = fileOf(mode)
  mkdirSync(Path.dirname(file), { recursive: true })
  // The file before stays whole until the new one is.
  writeFileSync(`${file}.new`, JSON.stringify(run))
  renameSync(`${file}.new`, file)
}

const pair = ({ least, median, most }: Spread) => `${median.toFixed(2)} (${least.toFixed(2)} … ${most.toFixed(2)})`

/** The comparison for a reader. */
export const print = (last: Run | undefined, now: Run): string => {
  if (last === undefined) return "There is no earlier run on this machine to compare with."
  if (last.machine !== now.machine) return "The last run was made on another machine, and is not compared with."
  const found = regressions(last, now)
  const since = `Compared with the run of ${last.at}`
  return found.length === 0
    ? `${since}, no figure is worse by more than the spread.`
    : [
        `${since}, these ratios are worse by more than the spread:`,
        ...found.map(
          ({ before, now: here, peer, what }) => `  ${what}, beside ${peer}: ${pair(before)} → ${pair(here)}`
        )
      ].join("\n")
}
