/**
 * Fault points: places in the code at which something can be made to go wrong, once or several times.
 *
 * @import { Action } from "../../act.js"
 */
import { put, remove } from "../../api.js"
import { counted, number } from "../../format.js"
import { html } from "../../html.js"
import { Loaded, Section, State, Time } from "../../parts.js"
import { Table } from "../../table.js"

/** @type {Readonly<Record<string, string>>} */
const meanings = {
  crash: "crash: the process ends at once, as by kill -9",
  fail: "fail: the step throws",
  delay: "delay: the step waits",
  duplicate: "duplicate: the step is done twice",
  "lose-ack": "lose-ack: the step is done, and reported as failed"
}

/**
 * @param {any} row
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
const actionsOf = ({ actions, armed, point }, onDone) => [
  {
    label: "Arm",
    does: `The next processes that come to ${point} are hit, as often as you say, whichever process it is.`,
    fields: [
      {
        name: "action",
        label: "What happens",
        initial: actions[0],
        options: actions.map((/** @type {string} */ value) => ({ value, label: meanings[value] ?? value }))
      },
      { name: "times", label: "How often", type: "number", initial: "1" },
      {
        name: "delayMillis",
        label: "For how long, in ms",
        type: "number",
        initial: "1000",
        isShown: ({ action }) => action === "delay"
      }
    ],
    run: async (reason, { action, delayMillis, times }) => {
      await put(`/admin/faults/${encodeURIComponent(point)}`, {
        action,
        times: Number(times),
        ...(action === "delay" ? { delayMillis: Number(delayMillis) } : {}),
        reason
      })
      onDone()
      return `${point} is armed: ${action}, ${times === "1" ? "once" : `${times} times`}.`
    }
  },
  ...(armed === null
    ? []
    : [
        {
          label: "Clear",
          does: `Nothing happens at ${point} any more.`,
          run: async (/** @type {string} */ reason) => {
            await remove(`/admin/faults/${encodeURIComponent(point)}`, { reason })
            onDone()
            return `${point} is cleared.`
          }
        }
      ])
]

/** @param {{ readonly armed: any }} props */
const Armed = ({ armed }) =>
  armed === null
    ? html`<span class="dim">quiet</span>`
    : html`<${State} of="waiting" text=${armed.action} />
        <small class="dim">
          ${counted(armed.times, "time")} left${armed.action === "delay" ? ` of ${number(armed.delayMillis)} ms` : ""},
          by ${armed.actor} at
          <${Time} at=${armed.armedAt} />: “${armed.reason}”
        </small>`

const columns = [
  { head: "Point", cell: (/** @type {any} */ { point }) => html`<code>${point}</code>` },
  {
    head: "Armed",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { armed }) => html`<${Armed} armed=${armed} />`
  }
]

const isOff = (/** @type {unknown} */ error) => error instanceof Error && "status" in error && error.status === 404

/** @param {{ readonly load: import("../../load.js").Load<any> }} props */
export const FaultsSection = ({ load }) => {
  if (load.data === undefined && isOff(load.error)) {
    return html`<${Section} title="Fault points">
      <p><strong>Faults are switched off.</strong> A service that takes money has no way to make it fail.</p>
      <p>
        On a test system start it with <code>FAULTS=on npm start</code>. Then each step of the code below its fault
        points can be made to crash, to fail or to wait from here.
      </p>
    <//>`
  }
  return html`<${Section} title="Fault points">
    <${Loaded} load=${load} what="Looking for fault points">
      ${(/** @type {any} */ { faults, points, processes }) =>
        html`<p class="dim">Taken by ${counted(processes.length, "process", "processes")}: ${processes.join(", ")}.</p>
          <${Table}
            caption="Fault points"
            columns=${columns}
            rows=${points.map((/** @type {any} */ { actions, point }) => ({ actions, point, armed: faults.find((/** @type {any} */ one) => one.point === point) ?? null }))}
            keyOf=${(/** @type {any} */ { point }) => point}
            actions=${(/** @type {any} */ row) => actionsOf(row, load.reload)}
          />`}
    <//>
  <//>`
}
