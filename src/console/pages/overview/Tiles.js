/**
 * The figures that move, each with its last minutes.
 *
 * @import { Overview, Sample } from "../../types.ts"
 */
import { useMemo } from "preact/hooks"
import { Chart } from "../../chart.js"
import { counted, duration, millis, number } from "../../format.js"
import { html } from "../../html.js"
import { live } from "../../live.js"
import { useStore } from "../../store.js"

/** @param {Sample | null | undefined} sample */
const effects = (sample) => {
  const rates = Object.values(sample?.effectsPerSecond ?? {})
  return rates.length === 0 ? null : rates.reduce((sum, rate) => sum + rate, 0)
}

/**
 * Why a rate is not known: a rate takes two looks at the broker, some seconds apart.
 *
 * @param {Overview} overview
 */
const untold = ({ consumers }) =>
  consumers.find(({ lagUnknown }) => lagUnknown !== null)?.lagUnknown ?? "not measured yet"

/**
 * @typedef {object} Tile
 * @property {string} label
 * @property {(sample: Sample) => number | null} value
 * @property {(value: number) => string} format
 * @property {(sample: Sample, overview: Overview) => string} more
 */

/** @type {ReadonlyArray<Tile>} */
const tiles = [
  {
    label: "orders paid / min",
    value: ({ ordersPaidPerMinute }) => ordersPaidPerMinute,
    format: number,
    more: () => "in the last minute"
  },
  {
    label: "commit → broker, p99",
    value: ({ publishLatencyMillis }) => publishLatencyMillis?.p99 ?? null,
    format: millis,
    more: ({ publishLatencyMillis }) =>
      publishLatencyMillis === null ? "nothing published" : `p50 ${millis(publishLatencyMillis.p50)}`
  },
  {
    label: "waiting in the outbox",
    value: ({ queued }) => queued,
    format: number,
    more: ({ oldestQueuedSeconds, queued }) =>
      queued === 0 ? "nothing waits" : `the oldest for ${duration(oldestQueuedSeconds ?? 0)}`
  },
  {
    label: "events published / s",
    value: ({ eventsPublishedPerSecond }) => eventsPublishedPerSecond,
    format: number,
    more: ({ eventsPublishedPerSecond }, overview) =>
      eventsPublishedPerSecond === null ? untold(overview) : "to all topics"
  },
  {
    label: "effects / s",
    value: effects,
    format: number,
    more: (sample, overview) =>
      effects(sample) === null ? untold(overview) : counted(overview.consumers.length, "consumer")
  },
  {
    label: "consumers behind, worst",
    value: ({ lagSecondsWorst }) => lagSecondsWorst,
    format: duration,
    more: ({ lagSecondsWorst }, overview) =>
      lagSecondsWorst === null ? untold(overview) : lagSecondsWorst === 0 ? "all have read all" : "at least"
  }
]

/** @param {{ readonly tile: Tile, readonly overview: Overview, readonly sample: Sample | null, readonly samples: ReadonlyArray<Sample> }} props */
const One = ({ overview, sample, samples, tile: { format, label, more, value } }) => {
  const times = useMemo(() => samples.map(({ id }) => id / 1_000), [samples])
  const lines = useMemo(() => [{ label, colour: "--flow", values: samples.map(value) }], [samples])
  const now = sample === null ? null : value(sample)
  return html`<div class="card tile">
    <h3>${label}</h3>
    <b>${now === null ? "–" : format(now)}</b>
    <span class="dim">${sample === null ? "\u00a0" : more(sample, overview)}</span>
    <${Chart} label=${label} times=${times} lines=${lines} format=${format} />
  </div>`
}

/** @param {{ readonly overview: Overview }} props */
export const Tiles = ({ overview }) => {
  const samples = useStore(live, (now) => now.samples)
  const sample = samples.at(-1) ?? overview.rates
  return html`<section class="tiles" aria-label="Figures of now">
    ${tiles.map((tile) => html`<${One} key=${tile.label} tile=${tile} overview=${overview} sample=${sample} samples=${samples} />`)}
  </section>`
}
