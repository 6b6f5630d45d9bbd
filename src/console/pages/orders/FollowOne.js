/** Places and pays an order, or opens one by its id. */
import { useRef, useState } from "preact/hooks"
import { session } from "../../api.js"
import { html } from "../../html.js"
import { notify, Section } from "../../parts.js"
import { go } from "../../router.js"
import { useStore } from "../../store.js"
import { pay, paymentMethods, place } from "../../traffic.js"

const outcomes = {
  paid: "The order is paid.",
  declined: "The gateway declined the payment.",
  unknown: "The gateway has not told the outcome; the service looks for it."
}

/**
 * Pays in the background, and says how it ended.
 *
 * @param {string} orderId
 * @param {string} method
 */
export const payAndTell = async (orderId, method) => {
  try {
    const outcome = await pay(orderId, method)
    notify(outcomes[outcome], outcome === "paid" ? "ok" : "")
  } catch (error) {
    notify(error instanceof Error ? error.message : String(error), "bad")
  }
}

/** The two forms. */
export const FollowOne = () => {
  const canWrite = useStore(session, (now) => now?.canWrite === true)
  const [method, setMethod] = useState("pm_ok")
  const [quantity, setQuantity] = useState("2")
  const [id, setId] = useState("")
  const [isBusy, setBusy] = useState(false)
  const isRunning = useRef(false)
  const placeOne = async (/** @type {Event} */ event) => {
    event.preventDefault()
    if (isRunning.current || !canWrite) return
    isRunning.current = true
    setBusy(true)
    try {
      const order = await place(Number(quantity))
      // The page of the order opens first, so that the payment can be seen.
      go(`/console/orders/${order.id}`)
      void payAndTell(order.id, method)
    } catch (error) {
      notify(error instanceof Error ? error.message : String(error), "bad")
    } finally {
      isRunning.current = false
      setBusy(false)
    }
  }
  const open = (/** @type {Event} */ event) => {
    event.preventDefault()
    if (id.trim() !== "") go(`/console/orders/${encodeURIComponent(id.trim())}`)
  }
  return html`<${Section} title="Watch a payment travel">
    <form class="inline-form" onSubmit=${placeOne}>
      <div class="field">
        <label for="place-method">The payment</label>
        <select
          id="place-method"
          value=${method}
          onChange=${(/** @type {Event} */ event) => setMethod(/** @type {HTMLSelectElement} */ (event.currentTarget).value)}
        >
          ${paymentMethods.map(({ label, value }) => html`<option key=${value} value=${value}>${label} (${value})</option>`)}
        </select>
      </div>
      <div class="field short">
        <label for="place-quantity">Books of 12.50 EUR</label>
        <input
          id="place-quantity"
          type="number"
          min="1"
          max="1000"
          required
          value=${quantity}
          onInput=${(/** @type {Event} */ event) => setQuantity(/** @type {HTMLInputElement} */ (event.currentTarget).value)}
        />
      </div>
      <button
        class="primary"
        aria-disabled=${isBusy || !canWrite}
        title=${canWrite ? undefined : "Your token may only read."}
      >
        ${isBusy ? "Placing …" : "Place and pay an order"}
      </button>
    </form>
    <form class="inline-form" role="search" aria-label="Open an order" onSubmit=${open}>
      <div class="field">
        <label for="order-id">An order's id</label>
        <input
          id="order-id"
          type="search"
          value=${id}
          placeholder="01890a5d-ac96-774b-bcce-b302099a8057"
          spellcheck=${false}
          onInput=${(/** @type {Event} */ event) => setId(/** @type {HTMLInputElement} */ (event.currentTarget).value)}
        />
      </div>
      <button>Open</button>
    </form>
  <//>`
}
