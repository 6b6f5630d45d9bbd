/** Columns that fit a terminal's width, and colour. A pipe gets neither. */

/** The terminal of stdout, as far as it matters here. */
export interface Terminal {
  /** Columns; undefined in a pipe or a file. */
  readonly width: number | undefined
  readonly hasColour: boolean
}

/** Nothing is cut and nothing coloured. */
export const pipe: Terminal = { width: undefined, hasColour: false }

/** This process's. `NO_COLOR` is heeded, whatever its value (no-color.org). */
export const current = (): Terminal => {
  const { columns, isTTY } = process.stdout
  if (!isTTY) return pipe
  const noColour = process.env["NO_COLOR"]
  return { width: columns > 0 ? columns : undefined, hasColour: noColour === undefined || noColour === "" }
}

const gap = "  "

/** A column that is cut keeps so much: enough for a state, or the beginning of a name. */
const leastWidth = 6

/** Headings of columns that people copy from: they are cut last. */
const copied = new Set(["EVENT", "TASK", "PAYMENT", "MAIL", "ORDER", "AGGREGATE"])

/** Narrows the columns until a row fits: the last ones first, and those with ids at the very end. */
const fitting = (widths: ReadonlyArray<number>, head: ReadonlyArray<string>, width: number): ReadonlyArray<number> => {
  const fit = [...widths]
  const columns = fit.map((_, column) => column).toReversed()
  const order = [
    ...columns.filter((column) => !copied.has(head[column] ?? "")),
    ...columns.filter((column) => copied.has(head[column] ?? ""))
  ]
  let excess = fit.reduce((sum, one) => sum + one, 0) + gap.length * (fit.length - 1) - width
  for (const column of order) {
    if (excess <= 0) break
    const cut = Math.min(excess, Math.max(0, fit[column]! - leastWidth))
    fit[column]! -= cut
    excess -= cut
  }
  return fit
}

const cutTo = (cell: string, width: number): string =>
  cell.length <= width ? cell.padEnd(width) : `${cell.slice(0, width - 1)}…`

/** Columns as wide as their widest cell, or as the terminal allows. A row is a line, whatever line breaks are in it. */
export const table = (
  given: ReadonlyArray<ReadonlyArray<string>>,
  { width }: Terminal = current()
): ReadonlyArray<string> => {
  const rows = given.map((row) => row.map((cell) => cell.replaceAll(/\s+/g, " ").trim()))
  const head = rows[0] ?? []
  const widths = head.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  const fit = width === undefined ? widths : fitting(widths, head, width)
  return rows.map((row) =>
    row
      .map((cell, column) => cutTo(cell, fit[column] ?? 0))
      .join(gap)
      .trimEnd()
  )
}

const [red, yellow, green, bold] = [31, 33, 32, 1]

/** Red needs a person, yellow waits, and green is done. */
const colourOf: Readonly<Record<string, number>> = {
  dead: red,
  manual: red,
  uncertain: red,
  retrying: yellow,
  gap: yellow,
  parked: yellow,
  failed: yellow,
  paused: yellow,
  armed: yellow,
  unknown: yellow,
  published: green,
  applied: green,
  completed: green,
  captured: green
}

const paint = (text: string, colour: number) => `\u001B[${colour}m${text}\u001B[0m`

/** A heading is bold, and a cell that is the name of a state has its colour. For text that has no escapes of its own any more. */
export const colour = (line: string, { hasColour }: Terminal): string => {
  if (!hasColour) return line
  if (/^[A-Z]{3,}(?: [A-Z]+)*(?: {2,}[A-Z ]+)*$/.test(line)) return paint(line, bold)
  return line.replaceAll(/(?<=^|\s{2})[a-z]+(?=\s{2}|$)/g, (cell) => {
    const found = Object.hasOwn(colourOf, cell) ? colourOf[cell] : undefined
    return found === undefined ? cell : paint(cell, found)
  })
}
