/** Lines over time, drawn by uPlot. The figures are also there as text, since a screen reader sees no canvas. */
import { language } from "./language.js"
import { useEffect, useRef } from "preact/hooks"
import uPlot from "uplot"
import { html } from "./html.js"
import { useStore } from "./store.js"
import { theme } from "./theme.js"

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {string} colour A custom property of the style, such as `--flow`.
 * @property {ReadonlyArray<number | null>} values One for each time; null is a gap.
 * @property {ReadonlyArray<number>} [dash]
 */

/** Points further apart than this are not joined: nobody has looked in between. */
const gapSeconds = 15

/**
 * Puts a hole where time has a hole.
 *
 * @param {ReadonlyArray<number>} times In seconds.
 * @param {ReadonlyArray<Line>} lines
 * @returns {uPlot.AlignedData}
 */
const dataOf = (times, lines) => {
  /** @type {Array<number>} */
  const xs = []
  /** @type {Array<Array<number | null>>} */
  const ys = lines.map(() => [])
  for (const [i, time] of times.entries()) {
    const before = times[i - 1]
    if (before !== undefined && time - before > gapSeconds) {
      xs.push(before + 1)
      for (const y of ys) y.push(null)
    }
    xs.push(time)
    for (const [k, y] of ys.entries()) y.push(lines[k]?.values[i] ?? null)
  }
  return /** @type {uPlot.AlignedData} */ ([xs, ...ys])
}

/**
 * The points that no line joins to another: without a dot of its own such a point can't be seen.
 *
 * @param {uPlot} chart
 * @param {number} series
 */
const alone = ({ data }, series) => {
  const values = data[series] ?? []
  const isThere = (/** @type {number} */ i) => values[i] !== null && values[i] !== undefined
  return [...values.keys()].filter((i) => isThere(i) && !isThere(i - 1) && !isThere(i + 1))
}

/**
 * A custom property as the browser has resolved it for the theme.
 *
 * @param {HTMLElement} element
 * @param {string} name
 */
const colourOf = (element, name) => {
  element.style.color = `var(${name})`
  const { color } = getComputedStyle(element)
  element.style.color = ""
  return color
}

/**
 * Times beside each other that differ: with seconds where they are closer than a minute.
 *
 * @param {ReadonlyArray<number>} splits
 * @returns {(seconds: number) => string}
 */
const clockOf = ([first = 0, second = Infinity]) => {
  /** @type {Intl.DateTimeFormatOptions} */
  const form = {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    ...(second - first < 60 ? { second: "2-digit" } : {})
  }
  return (seconds) => new Date(seconds * 1_000).toLocaleTimeString(language, form)
}

/**
 * @param {HTMLElement} element
 * @param {ReadonlyArray<Line>} lines
 * @param {{ readonly height: number, readonly hasAxes: boolean, readonly format: (value: number) => string,
 *   readonly onPoint: (index: number | null, time: number | undefined) => void }} of
 * @returns {uPlot}
 */
const plot = (element, lines, { format, hasAxes, height, onPoint }) => {
  const axis = {
    stroke: colourOf(element, "--dim"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: colourOf(element, "--line"), width: 1 },
    ticks: { show: false }
  }
  return new uPlot(
    {
      width: element.clientWidth || 200,
      height,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { setScale: false, x: false, y: false } },
      padding: hasAxes ? [8, 8, 0, 0] : [4, 0, 2, 0],
      scales: { y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: hasAxes
        ? [
            { ...axis, space: 70, size: 26, values: (_plot, splits) => splits.map(clockOf(splits)) },
            { ...axis, size: 56, space: 28, values: (_plot, splits) => splits.map(format) }
          ]
        : [{ show: false }, { show: false }],
      series: [
        {},
        ...lines.map(({ colour, dash, label }) => ({
          label,
          stroke: colourOf(element, colour),
          width: 1.5,
          ...(dash === undefined ? {} : { dash: [...dash] }),
          points: { show: false, filter: alone, size: 4, fill: colourOf(element, colour) }
        }))
      ],
      hooks: {
        setCursor: [
          ({ cursor: { idx }, data: [xs] }) =>
            onPoint(idx ?? null, idx === null || idx === undefined ? undefined : xs[idx])
        ]
      }
    },
    dataOf([], lines),
    element
  )
}

/**
 * @param {{ readonly label: string, readonly times: ReadonlyArray<number>, readonly lines: ReadonlyArray<Line>, readonly height?: number,
 *   readonly hasAxes?: boolean, readonly format: (value: number) => string }} props
 */
export const Chart = ({ format, hasAxes = false, height = 44, label, lines, times }) => {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null))
  const reading = useRef(/** @type {HTMLSpanElement | null} */ (null))
  const chart = useRef(/** @type {uPlot | undefined} */ (undefined))
  const look = useStore(theme, (now) => now)
  const shape = lines.map(({ label }) => label).join("|")

  useEffect(() => {
    const element = place.current
    if (element === null) return undefined
    // What the pointer is at stands in a line of its own, whose place is always there.
    const onPoint = (/** @type {number | null} */ index, /** @type {number | undefined} */ time) => {
      if (reading.current === null || chart.current === undefined) return
      reading.current.textContent =
        index === null || time === undefined
          ? ""
          : [
              new Date(time * 1_000).toLocaleTimeString(language, { hourCycle: "h23" }),
              ...lines.map(({ label }, k) => {
                const value = chart.current?.data[k + 1]?.[index]
                return `${lines.length > 1 ? `${label} ` : ""}${value === null || value === undefined ? "–" : format(value)}`
              })
            ].join(" · ")
    }
    const draw = () => {
      chart.current?.destroy()
      chart.current = plot(element, lines, { height, hasAxes, format, onPoint })
      chart.current.setData(dataOf(times, lines))
    }
    draw()
    const resized = new ResizeObserver(() => chart.current?.setSize({ width: element.clientWidth, height }))
    resized.observe(element)
    const dark = matchMedia("(prefers-color-scheme: dark)")
    dark.addEventListener("change", draw)
    return () => {
      resized.disconnect()
      dark.removeEventListener("change", draw)
      chart.current?.destroy()
      chart.current = undefined
    }
  }, [look, shape, height, hasAxes])
  useEffect(() => chart.current?.setData(dataOf(times, lines)), [times, lines])

  return html`<figure
    class="chart"
    role="img"
    aria-label=${`${label}. ${lines.map((line) => described(line, format)).join(" ")}`}
  >
    <div class="plot" style=${{ height: `${height}px` }} ref=${place}></div>
    <span class="reading" aria-hidden="true" ref=${reading}></span>
  </figure>`
}

/**
 * A line in words.
 *
 * @param {Line} line
 * @param {(value: number) => string} format
 */
const described = ({ label, values }, format) => {
  const known = values.filter((value) => value !== null)
  const last = known.at(-1)
  return last === undefined
    ? `${label}: no figures yet.`
    : `${label}: now ${format(last)}, lowest ${format(Math.min(...known))}, highest ${format(Math.max(...known))} in the last quarter of an hour.`
}
