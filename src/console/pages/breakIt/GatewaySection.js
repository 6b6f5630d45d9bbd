/** How the sandbox gateway behaves: as a gateway that is slow, away or silent. */
import { Actions } from "../../act.js"
import { put } from "../../api.js"
import { number } from "../../format.js"
import { html } from "../../html.js"
import { useLoad } from "../../load.js"
import { Facts, Loaded, Section, State } from "../../parts.js"

/** A person who has changed it watches its faults being used up. */
const refreshMillis = 2_000

/** @type {Readonly<Record<string, string>>} */
const modes = {
  normal: "normal: as the payment method says",
  slow: "slow: does as asked, and answers late",
  down: "down: 503, and does nothing",
  error: "error: 500, before the money is moved",
  "error-after": "error-after: 500, after the money is moved",
  timeout: "timeout: no answer, before the money is moved",
  "timeout-after": "timeout-after: no answer, after the money is moved"
}

/** @type {Readonly<Record<string, string>>} */
const webhooks = { once: "once", twice: "twice", first: "first, before the answer", never: "never" }

/** @param {Readonly<Record<string, string>>} of */
const options = (of) => Object.entries(of).map(([value, label]) => ({ value, label }))

/**
 * @param {any} state
 * @param {() => void} onDone
 * @returns {import("../../act.js").Action}
 */
const change = (state, onDone) => ({
  label: "Change",
  does: "The sandbox gateway behaves so until it is changed again, or until it has done so as often as you say. Real gateways are not touched.",
  fields: [
    { name: "mode", label: "Behaviour", initial: state.mode, options: options(modes) },
    {
      name: "delayMillis",
      label: "Answers late by, in ms",
      type: "number",
      initial: String(state.delayMillis),
      isShown: ({ mode }) => mode === "slow"
    },
    {
      name: "times",
      label: "For how many requests",
      type: "number",
      optional: true,
      help: "Empty: until it is changed.",
      isShown: ({ mode }) => mode !== "normal"
    },
    { name: "webhooks", label: "Reports", initial: state.webhooks, options: options(webhooks) }
  ],
  run: async (reason, { delayMillis, mode, times, webhooks }) => {
    const now = await put("/admin/gateway/behaviour", {
      mode,
      webhooks,
      ...(mode === "slow" ? { delayMillis: Number(delayMillis) } : {}),
      ...(mode === "normal" || times === "" ? {} : { times: Number(times) }),
      reason
    })
    onDone()
    return `The gateway is ${now.mode} now.`
  }
})

const isNotOurs = (/** @type {unknown} */ error) => error instanceof Error && "status" in error && error.status === 404

export const GatewaySection = () => {
  const load = useLoad("/admin/gateway/behaviour", { everyMillis: refreshMillis })
  if (load.data === undefined && isNotOurs(load.error)) {
    return html`<${Section} title="The gateway">
      <p>
        This service charges at <code>GATEWAY_URL</code>, and that gateway takes no orders from here. Without the
        variable a sandbox gateway runs beside the service.
      </p>
    <//>`
  }
  return html`<${Section} title="The gateway">
    <${Loaded} load=${load} what="Asking the gateway">
      ${(/** @type {any} */ state) =>
        html`<${Facts}
            pairs=${[
              ["behaviour", html`<${State} of=${state.mode === "normal" ? "ready" : "degraded"} text=${state.mode} />`],
              [
                "requests left",
                state.timesLeft === null ? (state.mode === "normal" ? "–" : "all") : number(state.timesLeft)
              ],
              ["reports", state.webhooks]
            ]}
          />
          <${Actions} actions=${[change(state, load.reload)]} />`}
    <//>
  <//>`
}
