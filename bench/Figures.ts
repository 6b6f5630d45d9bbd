/** Figures for the reader: medians with an interval, and a table. */

/** The value below which the share `q` (0 … 1) of `values` lies, interpolated. */
export const quantile = (values: ReadonlyArray<number>, q: number): number => {
  const sorted = values.toSorted((a, b) => a - b)
  const place = (sorted.length - 1) * q
  const below = sorted[Math.floor(place)] ?? Number.NaN
  const above = sorted[Math.ceil(place)] ?? Number.NaN
  return below + (above - below) * (place - Math.floor(place))
}

export const median = (values: ReadonlyArray<number>): number => quantile(values, 0.5)

/** The median of the blocks, and the smallest and largest of them: a handful of blocks gives no better interval. */
export interface Spread {
  readonly median: number
  readonly least: number
  readonly most: number
}

export const spread = (values: ReadonlyArray<number>): Spread => ({
  median: median(values),
  least: Math.min(...values),
  most: Math.max(...values)
})

/**
 * The median, and a 95 % confidence interval between two of the blocks. It uses the sign test, which assumes nothing about their
 * distribution. With fewer than six blocks the interval is all of them.
 */
export const interval = (values: ReadonlyArray<number>): Spread => {
  const sorted = values.toSorted((a, b) => a - b)
  // The probability that at most `below` blocks lie on one side of the true median: a fair coin for each block.
  let probability = 0.5 ** sorted.length
  let sum = probability
  let below = 0
  while (sum + (probability * (sorted.length - below)) / (below + 1) <= 0.025) {
    probability *= (sorted.length - below) / (below + 1)
    sum += probability
    below += 1
  }
  const outside = sum <= 0.025 ? below : 0
  return {
    median: median(sorted),
    least: sorted[outside] ?? Number.NaN,
    most: sorted[sorted.length - 1 - outside] ?? Number.NaN
  }
}

/** `1.03 (0.99 … 1.08)`. */
export const show = ({ least, median, most }: Spread, digits: number): string =>
  `${median.toFixed(digits)} (${least.toFixed(digits)} … ${most.toFixed(digits)})`

/** Rows under a heading, the first column aligned left, the others right. */
export const table = (heading: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = heading.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)))
  const line = (cells: ReadonlyArray<string>) =>
    cells.map((cell, column) => (column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!))).join("  ")
  return [line(heading), widths.map((width) => "-".repeat(width)).join("  "), ...rows.map(line)].join("\n")
}
