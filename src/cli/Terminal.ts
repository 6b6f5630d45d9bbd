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

/** A long column is cut to so much, which still tells a day or the beginning of a name; below that it is left out. */
const leastWidth = 10

/** The longest name of a state, a type or a count: such columns are whole before anything else is. */
const shortWidth = 16

/** A short word that is cut after all keeps so much. */
const leastWord = 6

/** Headings of ids that people copy. The first of them in a table is that of the row's own id. */
const copied = new Set(["EVENT", "TASK", "PAYMENT", "MAIL", "ORDER", "AGGREGATE"])

/**
 * The width of each column, 0 where it is left out. The widest long column is cut first. Where that is not enough long columns are left out, the last
 * one first; then short words are cut, and at the very end the row's own id. `--json` and a pipe have everything.
 */
const fitting = (widths: ReadonlyArray<number>, head: ReadonlyArray<string>, width: number): ReadonlyArray<number> => {
  const id = head.findIndex((name) => copied.has(name))
  const columns = widths.map((_, column) => column)
  const long = columns.filter((column) => column !== id && widths[column]! > shortWidth)
  const short = columns.filter((column) => column !== id && !long.includes(column)).toReversed()
  while (true) {
    const fit = widths.map((one, column) =>
      column === id || short.includes(column) || long.includes(column) ? one : 0
    )
    const excess = () => fit.reduce((sum, one) => sum + (one === 0 ? 0 : one + gap.length), 0) - gap.length - width
    while (excess() > 0) {
      const widest = long.reduce((most, column) => (fit[column]! >= (fit[most] ?? 0) ? column : most), -1)
      if (widest === -1 || fit[widest]! <= leastWidth) break
      fit[widest]! -= 1
    }
    if (excess() > 0 && long.length > 0) {
      long.pop()
      continue
    }
    for (const column of [...short, ...(id === -1 ? [] : [id])]) {
      fit[column]! -= Math.min(Math.max(0, excess()), Math.max(0, fit[column]! - leastWord))
    }
    return fit
  }
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
      .flatMap((cell, column) => (fit[column] === 0 && widths[column] !== 0 ? [] : [cutTo(cell, fit[column] ?? 0)]))
      .join(gap)
      .trimEnd()
  )
}

const tones = { red: 31, yellow: 33, green: 32, bold: 1, dim: 2 }
const { bold, green, red, yellow } = tones

/** How a text stands out. */
export type Tone = keyof typeof tones

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

/** The text in that tone, where the terminal has colour. For text that has no escapes of its own any more. */
export const toned = (text: string, tone: Tone, { hasColour }: Terminal): string =>
  hasColour ? paint(text, tones[tone]) : text

/** A heading is bold, and a cell that is the name of a state has its colour. For text that has no escapes of its own any more. */
export const colour = (line: string, { hasColour }: Terminal): string => {
  if (!hasColour) return line
  if (/^[A-Z]{3,}(?: [A-Z]+)*(?: {2,}[A-Z ]+)*$/.test(line)) return paint(line, bold)
  return line.replaceAll(/(?<=^|\s{2})[a-z]+(?=\s{2}|$)/g, (cell) => {
    const found = Object.hasOwn(colourOf, cell) ? colourOf[cell] : undefined
    return found === undefined ? cell : paint(cell, found)
  })
}
