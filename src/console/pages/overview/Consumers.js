/**
 * The consumers: how fast, how far behind, what they hold, and who reads which partition.
 *
 * @import { Overview } from "../../types.ts"
 */
import { counted, duration, number } from "../../format.js"
import { html } from "../../html.js"
import { Section, State } from "../../parts.js"
import { pauseAction } from "../../pauses.js"
import { Table } from "../../table.js"

/** @typedef {Overview["consumers"][number]} Consumer */

/** @param {{ readonly of: Consumer }} props */
const States = ({ of }) => {
  const { consumer, dead, gaps, isPaused, parked, retrying, retryingCause, retryingSeconds } = of
  const states = [
    ...(isPaused ? [html`<${State} of="paused" />`] : []),
    ...(dead > 0
      ? [
          html`<a class="pill bad" href=${`/console/dead-letters?side=inbox&consumer=${encodeURIComponent(consumer)}`}
            >${number(dead)} dead</a
          >`
        ]
      : []),
    ...(gaps > 0
      ? [
          html`<a
            class="pill wait"
            href=${`/console/dead-letters?side=inbox&consumer=${encodeURIComponent(consumer)}&status=gap`}
            >${counted(gaps, "gap")}</a
          >`
        ]
      : []),
    ...(retrying > 0
      ? [
          html`<a
            class="pill wait"
            href=${`/console/dead-letters?side=inbox&consumer=${encodeURIComponent(consumer)}&status=retrying`}
            title=${retryingCause}
            >${number(retrying)} retrying${retryingSeconds === null ? "" : ` for ${duration(retryingSeconds)}`}</a
          >`
        ]
      : []),
    ...(parked > 0 ? [html`<${State} of="parked" text=${`${number(parked)} parked`} />`] : [])
  ]
  return html`<span class="row">${states.length === 0 ? html`<${State} of="ready" />` : states}</span>`
}

/** @param {{ readonly of: Consumer }} props */
const Partitions = ({ of: { lagUnknown, partitions } }) => {
  if (partitions.length === 0) return html`<span class="dim">${lagUnknown ?? "none yet"}</span>`
  const read = partitions.filter(({ owner }) => owner !== null).length
  const behind = partitions.filter(({ lag }) => lag !== null && lag > 0)
  return html`<details class="partitions">
    <summary>${read} of ${partitions.length} read${behind.length === 0 ? "" : `, ${behind.length} behind`}</summary>
    <ul class="plain">
      ${partitions.map(
        ({ lag, owner, partition, topic }) =>
          html`<li key=${`${topic} ${partition}`}>
            <code>${topic}/${partition}</code> ${lag === null ? "lag not known" : `${number(lag)} behind`},
            <span class="dim"> ${owner ?? "read by nobody"}</span>
          </li>`
      )}
    </ul>
  </details>`
}

/** @param {{ readonly overview: Overview }} props */
export const Consumers = ({ overview: { consumers, rates } }) => {
  /** @type {ReadonlyArray<import("../../table.js").Column<Consumer>>} */
  const columns = [
    { head: "consumer", cell: ({ consumer }) => html`<strong>${consumer}</strong>` },
    {
      head: "effects / s",
      as: "number",
      cell: ({ consumer }) => {
        const rate = rates?.effectsPerSecond[consumer]
        return rate === undefined ? "–" : number(rate)
      }
    },
    { head: "behind", as: "number", cell: ({ lag }) => (lag === null ? "–" : number(lag)) },
    { head: "partitions", cell: (consumer) => html`<${Partitions} of=${consumer} />` },
    { head: "state", cell: (consumer) => html`<${States} of=${consumer} />` }
  ]
  return html`<${Section} title="Consumers">
    <${Table}
      caption="Consumers"
      class="pairs"
      columns=${columns}
      rows=${consumers}
      keyOf=${(/** @type {Consumer} */ { consumer }) => consumer}
      actions=${(/** @type {Consumer} */ { consumer, isPaused }) => [pauseAction("consumer", consumer, isPaused)]}
    />
  <//>`
}
