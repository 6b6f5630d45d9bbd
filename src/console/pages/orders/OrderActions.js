/** What can be done with the order now. It is paid as a shop pays; its money goes back, or it is cancelled, by a decision that the audit names. */
import { useRef, useState } from "preact/hooks"
import { Actions } from "../../act.js"
import { session } from "../../api.js"
import { decision } from "../../deadLetters.js"
import { html } from "../../html.js"
import { Money } from "../../parts.js"
import { useStore } from "../../store.js"
import { paymentMethods } from "../../traffic.js"
import { payAndTell } from "./FollowOne.js"

/**
 * @typedef {{ readonly id: string, readonly status: string, readonly totalAmountMinor: number, readonly currency: string }} Order
 *
 * @param {{ readonly order: Order, readonly onDone: () => void }} props
 */
export const OrderActions = ({ onDone, order: { currency, id, status, totalAmountMinor } }) => {
  const canWrite = useStore(session, (now) => now?.canWrite === true)
  const [method, setMethod] = useState("pm_ok")
  const [isPaying, setPaying] = useState(false)
  const isRunning = useRef(false)
  const pay = async () => {
    if (isRunning.current) return
    isRunning.current = true
    setPaying(true)
    await payAndTell(id, method)
    isRunning.current = false
    setPaying(false)
    onDone()
  }
  if (!canWrite || !["pending", "paying", "paid"].includes(status)) return null
  const path = `/admin/orders/${encodeURIComponent(id)}`
  const action =
    status === "paid"
      ? decision({
          label: "Refund",
          tone: "danger",
          path: `${path}/refund`,
          does: html`<p>
            The whole amount of <${Money} minor=${totalAmountMinor} currency=${currency} /> is given back to the
            customer. This is final.
          </p>`,
          told: "The whole amount is being given back.",
          onDone
        })
      : decision({
          label: "Cancel the order",
          tone: "danger",
          path: `${path}/cancel`,
          does: "The order can't be paid any more. A payment that is under way is given back if it is captured. This is final.",
          told: "The order is cancelled.",
          onDone
        })
  return html`<div class="order-actions">
    <${Actions} actions=${[action]}>
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
              <button type="button" class="primary" aria-disabled=${isPaying} onClick=${pay}>
                ${isPaying ? "Paying …" : "Pay"}
              </button>`
          : null
      }
    <//>
  </div>`
}
