/** What a shop could do with the order now. These are requests of the public API: they need no reason, and the audit does not name them. */
import { useRef, useState } from "preact/hooks"
import { session } from "../../api.js"
import { html } from "../../html.js"
import { notify } from "../../parts.js"
import { useStore } from "../../store.js"
import { change, paymentMethods } from "../../traffic.js"
import { payAndTell } from "./FollowOne.js"

/**
 * @param {{ readonly order: { readonly id: string, readonly status: string }, readonly onDone: () => void }} props
 */
export const OrderActions = ({ onDone, order: { id, status } }) => {
  const canWrite = useStore(session, (now) => now?.canWrite === true)
  const [method, setMethod] = useState("pm_ok")
  const [busy, setBusy] = useState("")
  const isRunning = useRef(false)
  const once = (/** @type {string} */ what, /** @type {() => Promise<void>} */ act) => async () => {
    if (isRunning.current) return
    isRunning.current = true
    setBusy(what)
    try {
      await act()
    } catch (error) {
      notify(error instanceof Error ? error.message : String(error), "bad")
    } finally {
      isRunning.current = false
      setBusy("")
      onDone()
    }
  }
  const told = (/** @type {"cancel" | "refund"} */ what, /** @type {string} */ sentence) =>
    once(what, async () => {
      await change(id, what)
      notify(sentence, "ok")
    })
  if (!canWrite || !["pending", "paying", "paid"].includes(status)) return null
  return html`<div class="row order-actions">
    ${
      status === "pending"
        ? html`<label class="unseen" for="pay-method">The payment</label>
            <select
              id="pay-method"
              value=${method}
              onChange=${(/** @type {Event} */ event) => setMethod(/** @type {HTMLSelectElement} */ (event.currentTarget).value)}
            >
              ${paymentMethods.map(({ label, value }) => html`<option key=${value} value=${value}>${label} (${value})</option>`)}
            </select>
            <button
              type="button"
              class="primary"
              aria-disabled=${busy !== ""}
              onClick=${once("pay", () => payAndTell(id, method))}
            >
              ${busy === "pay" ? "Paying …" : "Pay"}
            </button>`
        : null
    }
    ${
      status === "paid"
        ? html`<button
            type="button"
            aria-disabled=${busy !== ""}
            onClick=${told("refund", "The whole amount is being given back.")}
          >
            Refund
          </button>`
        : html`<button type="button" aria-disabled=${busy !== ""} onClick=${told("cancel", "The order is cancelled.")}>
            Cancel the order
          </button>`
    }
  </div>`
}
