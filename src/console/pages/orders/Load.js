/** A slider that makes load, and what the load has sent. */
import { session } from "../../api.js"
import { number } from "../../format.js"
import { html } from "../../html.js"
import { Section } from "../../parts.js"
import { useStore } from "../../store.js"
import { maxPerSecond, paymentMethods, setLoad, stopLoad, traffic } from "../../traffic.js"

/** The slider and the counts. */
export const Load = () => {
  const canWrite = useStore(session, (now) => now?.canWrite === true)
  const now = useStore(traffic, (it) => it)
  const { declined, failed, method, paid, perSecond, placed, problem, skipped, stopped, unknown } = now
  const counts = /** @type {const} */ ([
    ["placed", placed],
    ["paid", paid],
    ["declined", declined],
    ["unknown", unknown],
    ["failed", failed],
    ["left out", skipped]
  ])
  return html`<${Section} title="Make load">
    <div class="inline-form">
      <div class="field">
        <label for="load-rate">Orders a second: <b>${perSecond === 0 ? "off" : perSecond}</b></label>
        <input
          id="load-rate"
          type="range"
          min="0"
          max=${maxPerSecond}
          step="1"
          value=${perSecond}
          disabled=${!canWrite}
          aria-valuetext=${perSecond === 0 ? "off" : `${perSecond} orders a second`}
          onInput=${(/** @type {Event} */ event) => setLoad(Number(/** @type {HTMLInputElement} */ (event.currentTarget).value), method)}
        />
      </div>
      <div class="field">
        <label for="load-method">Each payment</label>
        <select
          id="load-method"
          value=${method}
          onChange=${(/** @type {Event} */ event) =>
            traffic.update((it) => ({ ...it, method: /** @type {HTMLSelectElement} */ (event.currentTarget).value }))}
        >
          <option value="mixed">four of five are captured, the rest fails in each way</option>
          ${paymentMethods.map(({ label, value }) => html`<option key=${value} value=${value}>${label} (${value})</option>`)}
        </select>
      </div>
      <button type="button" disabled=${perSecond === 0} onClick=${() => stopLoad()}>Stop</button>
    </div>
    <p class="dim">
      Real orders of this service, paid at its gateway. At most three at a time. It stops when this page is hidden, and
      after ten minutes.
    </p>
    <dl class="counts">
      ${counts.map(
        ([name, count]) =>
          html`<div key=${name}>
            <dt>${name}</dt>
            <dd class=${count === 0 ? "dim" : name === "failed" ? "bad" : ""}>${number(count)}</dd>
          </div>`
      )}
    </dl>
    <p class="dim load-told" role="status">${stopped ?? (problem === undefined ? "" : `Last failure: ${problem}`)}</p>
  <//>`
}
