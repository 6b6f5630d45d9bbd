/**
 * The processes and the broker of a demo that stays. Its control does what the buttons say, and the service knows nothing of it: so they also work
 * while the service is dead.
 */
import { useEffect, useState } from "preact/hooks"
import { askDemo, hasDemo } from "../../demo.js"
import { html } from "../../html.js"
import { Failure, notify, Section, State } from "../../parts.js"
import { Table } from "../../table.js"

/** A person who has killed a process watches the others take over. */
const refreshMillis = 1_000

/** The state of the demo, and how to change it; nothing where no demo has started this service. */
export const useDemo = () => {
  const [state, setState] = useState(/** @type {any} */ (undefined))
  const [error, setError] = useState(/** @type {unknown} */ (undefined))
  const take = (/** @type {any} */ now) => {
    setState(now)
    setError(undefined)
  }
  useEffect(() => {
    if (!hasDemo()) return undefined
    let timer = 0
    let isOver = false
    const read = async () => {
      if (document.visibilityState === "visible") await askDemo("GET", "/state").then(take, setError)
      if (!isOver) timer = window.setTimeout(() => void read(), refreshMillis)
    }
    void read()
    return () => {
      isOver = true
      clearTimeout(timer)
    }
  }, [])
  const act = (/** @type {string} */ path) =>
    void askDemo("POST", path).then(take, (/** @type {Error} */ { message }) => notify(message))
  return { state, error, act }
}

/** @type {Readonly<Record<string, ReadonlyArray<readonly [action: string, label: string]>>>} */
const actions = {
  starting: [],
  running: [
    ["freeze", "Freeze"],
    ["kill", "Kill"]
  ],
  frozen: [
    ["thaw", "Thaw"],
    ["kill", "Kill"]
  ],
  dead: [["start", "Start"]]
}

/** @param {{ readonly demo: ReturnType<typeof useDemo> }} props */
export const ProcessesSection = ({ demo: { act, error, state } }) => {
  if (state === undefined) return null
  const columns = [
    { head: "Process", cell: (/** @type {any} */ { name }) => name },
    { head: "Roles", cell: (/** @type {any} */ { roles }) => roles.split(",").join(", ") },
    { head: "Pid", as: /** @type {const} */ ("number"), cell: (/** @type {any} */ { pid }) => pid ?? "–" },
    { head: "State", cell: (/** @type {any} */ { state: is }) => html`<${State} of=${is} />` },
    {
      head: "Do",
      cell: (/** @type {any} */ { name, state: is }) =>
        html`<span class="row">
          ${(actions[is] ?? []).map(
            ([action, label]) =>
              html`<button
                key=${action}
                type="button"
                aria-label=${`${label} ${name}`}
                onClick=${() => act(`/processes/${name}/${action}`)}
              >
                ${label}
              </button>`
          )}
        </span>`
    }
  ]
  const isAway = state.broker === "away"
  return html`<${Section} title="Processes and broker">
    ${error === undefined ? null : html`<${Failure} error=${error} />`}
    <${Table}
      caption="Processes of the demo"
      columns=${columns}
      rows=${state.processes}
      keyOf=${(/** @type {any} */ { name }) => name}
    />
    <p class="row">
      <span>The broker is</span> <${State} of=${isAway ? "unavailable" : "available"} text=${state.broker} />
      <button type="button" onClick=${() => act(isAway ? "/broker/bring-back" : "/broker/take-away")}>
        ${isAway ? "Bring the broker back" : "Take the broker away"}
      </button>
    </p>
    <p class="dim">
      A frozen process (SIGSTOP) keeps its connections and says nothing. A killed one (SIGKILL) runs no finalizer. If
      http is killed, keep this page open: it starts it again, and signs in again.
    </p>
  <//>`
}
