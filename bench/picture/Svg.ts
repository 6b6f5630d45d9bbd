/** The chart for docs/performance.md: latencies and CPU of each contender at each rate. It is readable on a light and on a dark page. */
import type { Quantiles } from "../outside/Steady.ts"

/** A contender under one load. */
export interface Bar {
  readonly name: string
  readonly isOurs: boolean
  /** From the commit to the reader, in milliseconds. */
  readonly latency: Quantiles
  /** CPU of an event in microseconds. */
  readonly cpu: { readonly relay: number; readonly postgres: number }
  /** Says what the bar can't, for example that the contender fell behind. */
  readonly note?: string
}

/** The contenders of one load. */
export interface Group {
  readonly title: string
  readonly bars: ReadonlyArray<Bar>
}

const width = 960
const rowHeight = 22
const groupGap = 34
const headHeight = 74
const names = { left: 12 }
const latency = { left: 210, right: 600 }
const cpu = { left: 660, right: 890 }

const escape = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
const round = (number: number) => Math.round(number * 10) / 10

/** The powers of ten that enclose the values. */
const decades = (values: ReadonlyArray<number>): ReadonlyArray<number> => {
  const positive = values.filter((value) => Number.isFinite(value) && value > 0)
  const low = Math.floor(Math.log10(Math.min(...positive)))
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive))))
  return Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index))
}

/** 1, 2 or 5 times a power of ten: the step of a linear axis with at most five steps. */
const stepOf = (most: number): number => {
  const power = 10 ** Math.floor(Math.log10(most / 5))
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => most / step <= 5) ?? power * 10
}

const number = (value: number) => (value >= 10 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2))

const style = `
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .small { font-size: 10px; fill: #57606a }
  .title { font-weight: 600 }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .line { stroke-width: 3; stroke-linecap: round }
  .ours { stroke: #0969da; fill: #0969da }
  .peer { stroke: #8c959f; fill: #8c959f }
  .hollow { fill: #ffffff; stroke-width: 2 }
  .postgres { fill-opacity: .4 }
  rect { stroke: none !important }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .ours { stroke: #58a6ff; fill: #58a6ff }
    .peer { stroke: #7d8590; fill: #7d8590 }
    .hollow { fill: #0d1117 }
  }`

/** The chart as a file's text. */
export const chart = (groups: ReadonlyArray<Group>): string => {
  const bars = groups.flatMap((group) => group.bars)
  const ticks = decades(bars.flatMap(({ latency: { max, p50 } }) => [p50, max]))
  const [lowest, highest] = [Math.log10(ticks[0]!), Math.log10(ticks.at(-1)!)]
  const x = (millis: number) =>
    round(
      latency.left +
        ((Math.log10(Math.max(millis, ticks[0]!)) - lowest) / (highest - lowest)) * (latency.right - latency.left)
    )
  const mostCpu = Math.max(...bars.map(({ cpu }) => cpu.relay + cpu.postgres))
  const step = stepOf(mostCpu)
  const steps = Array.from({ length: Math.ceil(mostCpu / step) + 1 }, (_, index) => index * step)
  const wide = (micros: number) => round((micros / steps.at(-1)!) * (cpu.right - cpu.left))
  const height = headHeight + groups.reduce((sum, group) => sum + groupGap + group.bars.length * rowHeight, 0) + 20

  const grid = [
    ...ticks.map((tick) => ({ at: x(tick), label: `${tick}` })),
    ...steps.map((micros) => ({ at: cpu.left + wide(micros), label: `${micros}` }))
  ].map(
    ({ at, label }) =>
      `<line class="grid" x1="${at}" x2="${at}" y1="${headHeight}" y2="${height - 14}"/>` +
      `<text class="small" x="${at}" y="${headHeight - 6}" text-anchor="middle">${label}</text>`
  )

  const row = ({ cpu: used, isOurs, latency: { max, p50, p99, p999 }, name, note }: Bar, y: number) => {
    const kind = isOurs ? "ours" : "peer"
    const total = used.relay + used.postgres
    return [
      `<g><title>${escape(`${name}: p50 ${number(p50)}, p99 ${number(p99)}, p99.9 ${number(p999)}, most ${number(max)} ms; ${number(total)} µs`)}</title>`,
      `<text x="${names.left}" y="${y + 4}"${isOurs ? ' class="title"' : ""}>${escape(name)}</text>`,
      `<line class="line ${kind}" x1="${x(p50)}" x2="${x(p99)}" y1="${y}" y2="${y}"/>`,
      `<line class="${kind}" x1="${x(p99)}" x2="${x(max)}" y1="${y}" y2="${y}"/>`,
      `<circle class="${kind}" cx="${x(p50)}" cy="${y}" r="5"/>`,
      `<circle class="${kind} hollow" cx="${x(p99)}" cy="${y}" r="5"/>`,
      `<line class="${kind}" x1="${x(max)}" x2="${x(max)}" y1="${y - 5}" y2="${y + 5}"/>`,
      `<rect class="${kind} relay" x="${cpu.left}" y="${y - 6}" width="${wide(used.relay)}" height="12"/>`,
      `<rect class="${kind} postgres" x="${round(cpu.left + wide(used.relay))}" y="${y - 6}" width="${wide(used.postgres)}" height="12"/>`,
      `<text class="small" x="${round(cpu.left + wide(total) + 5)}" y="${y + 4}">${number(total)}</text>`,
      ...(note === undefined ? [] : [`<text class="small" x="${x(max) + 9}" y="${y + 4}">${escape(note)}</text>`]),
      "</g>"
    ].join("")
  }

  let y = headHeight
  const body = groups.flatMap(({ bars, title }) => {
    y += groupGap - 12
    const heading = `<text class="title" x="${names.left}" y="${y}">${escape(title)}</text>`
    y += 12
    return [
      heading,
      ...bars.map((bar) => {
        const line = row(bar, y + rowHeight / 2)
        y += rowHeight
        return line
      })
    ]
  })

  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="Latency and CPU of each relay">`,
    `<style>${style}</style>`,
    `<text class="title" x="${latency.left}" y="20">Commit to reader, ms</text>`,
    `<text class="small" x="${latency.left}" y="36">● p50   ○ p99   | slowest; logarithmic</text>`,
    `<text class="title" x="${cpu.left}" y="20">CPU of an event, µs</text>`,
    `<text class="small" x="${cpu.left}" y="36">full: the relay, pale: Postgres with the writer's part</text>`,
    ...grid,
    ...body,
    "</svg>",
    ""
  ].join("\n")
}
