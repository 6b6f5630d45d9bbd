/**
 * The figures that move, each with its last minutes.
 *
 * @import { Overview, Sample } from "../../types.ts"
 */
import { useMemo } from "preact/hooks"
import { Chart } from "../../chart.js"
import { duration, millis, number } from "../../format.js"
import { html } from "../../html.js"
import { live } from "../../live.js"
import { useStore } from "../../store.js"

/** @param {Sample | null | undefined} sample */
const effects = (sample) =>
  sample === null || sample === undefined
    ? null
    : Object.values(sample.effectsPerSecond).reduce((sum, rate) => sum + rate, 0)

/**
 * @typedef {object} Tile
 * @property {string} label
 * @property {(sample: Sample) => number | null} value
 * @property {(value: number) => string} format
 * @property {(sample: Sample) => string} more
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
    more: ({ eventsPublishedPerSecond }) =>
      eventsPublishedPerSecond === null ? "the broker does not tell" : "to all topics"
  },
  {
    label: "effects / s",
    value: effects,
    format: number,
    more: ({ effectsPerSecond }) => `${Object.keys(effectsPerSecond).length} consumers`
  },
  {
    label: "consumers behind, worst",
    value: ({ lagSecondsWorst }) => lagSecondsWorst,
    format: duration,
    more: ({ lagSecondsWorst }) =>
      lagSecondsWorst === null ? "not known" : lagSecondsWorst === 0 ? "all have read all" : "at least"
  }
]

/** @param {{ readonly tile: Tile, readonly sample: Sample | null, readonly samples: ReadonlyArray<Sample> }} props */
const One = ({ sample, samples, tile: { format, label, more, value } }) => {
  const times = useMemo(() => samples.map(({ id }) => id / 1_000), [samples])
  const lines = useMemo(() => [{ label, colour: "--flow", values: samples.map(value) }], [samples])
  const now = sample === null ? null : value(sample)
  return html`<div class="card tile">
    <h3>${label}</h3>
    <b>${now === null ? "–" : format(now)}</b>
    <span class="dim">${sample === null ? "\u00a0" : more(sample)}</span>
    <${Chart} label=${label} times=${times} lines=${lines} format=${format} />
  </div>`
}

/** @param {{ readonly overview: Overview }} props */
export const Tiles = ({ overview }) => {
  const samples = useStore(live, (now) => now.samples)
  const sample = samples.at(-1) ?? overview.rates
  return html`<section class="tiles" aria-label="Figures of now">
    ${tiles.map((tile) => html`<${One} key=${tile.label} tile=${tile} sample=${sample} samples=${samples} />`)}
  </section>`
}
