/** The picture's table: each figure of ours beside a peer's from the same run, and beside its limit. */
import { show, type Spread, spread, table } from "../Figures.ts"

/** What the ratio of ours to the peer's may be. */
export interface Limit {
  readonly bound: "most" | "least"
  readonly ratio: number
}

/** A figure, with one value for each round. */
export interface Row {
  /** The same in each run, for the comparison with the last one. */
  readonly what: string
  readonly unit: "ms" | "s" | "µs" | "/s"
  readonly ours: ReadonlyArray<number>
  readonly peer: string
  /** Of the same rounds. */
  readonly theirs: ReadonlyArray<number>
  readonly limit?: Limit
}

/** Whether less of a unit is better: all but rates. */
export const isLessBetter = (unit: Row["unit"]): boolean => unit !== "/s"

/** Ours over the peer's, round by round. */
export const ratioOf = ({ ours, theirs }: Row): Spread =>
  spread(ours.map((value, round) => value / (theirs[round] ?? Number.NaN)))

/** Whether the median of the ratios keeps the limit; undefined without one. */
export const holds = (row: Row): boolean | undefined => {
  if (row.limit === undefined) return undefined
  const { median } = ratioOf(row)
  return row.limit.bound === "most" ? median <= row.limit.ratio : median >= row.limit.ratio
}

/** Three significant figures, without an exponent. */
export const value = (number: number): string => {
  if (!Number.isFinite(number)) return "–"
  const digits = number === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(number))))
  return number.toFixed(digits)
}

const verdict = (row: Row): string => {
  const kept = holds(row)
  return kept === undefined ? "" : kept ? "holds" : "MISSED"
}

const limit = ({ limit }: Row): string =>
  limit === undefined ? "" : `${limit.bound === "most" ? "≤" : "≥"} ${limit.ratio}`

/** Nothing waited for a kill that came and went within a moment: that has no ratio to anything. */
const shownRatio = (row: Row): string => (Number.isFinite(ratioOf(row).median) ? show(ratioOf(row), 2) : "–")

/** The rows for a reader. */
export const print = (rows: ReadonlyArray<Row>): string =>
  table(
    ["figure", "ours", "beside it", "", "ratio", "limit", ""],
    rows.map((row) => [
      `${row.what}, ${row.unit === "/s" ? "a second" : row.unit}`,
      value(spread(row.ours).median),
      row.peer,
      value(spread(row.theirs).median),
      shownRatio(row),
      limit(row),
      verdict(row)
    ])
  )

/** How many limits are kept, and which are not. */
export const summary = (rows: ReadonlyArray<Row>): string => {
  const limited = rows.filter(({ limit }) => limit !== undefined)
  const missed = limited.filter((row) => holds(row) === false)
  const kept = `${limited.length - missed.length} of ${limited.length} limits hold.`
  return missed.length === 0
    ? kept
    : `${kept} Missed: ${missed.map((row) => `${row.what} ${ratioOf(row).median.toFixed(2)}`).join(", ")}.`
}
