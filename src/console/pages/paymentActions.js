/**
 * What an operator can do about a payment: ask the gateway about it, and settle it.
 *
 * @import { Action } from "../act.js"
 */
import { post } from "../api.js"
import { html } from "../html.js"
import { State } from "../parts.js"

/** @param {string} id */
const pathOf = (id) => `/admin/payments/${encodeURIComponent(id)}`

/**
 * Asks the gateway what it knows. Moves no money and changes nothing.
 *
 * @param {string} id
 */
export const check = (id) => post(`${pathOf(id)}/check`)

/** @type {Readonly<Record<string, string>>} */
const verdicts = {
  agree: "Our books and the gateway agree.",
  differ: "Our books and the gateway differ.",
  unknown: "The gateway does not tell enough to compare."
}

/** @param {{ readonly found: any }} props */
export const Findings = ({ found }) =>
  html`<div class="stack" role="status">
    <p><strong>${verdicts[found.verdict] ?? found.verdict}</strong></p>
    <ul class="plain">
      <li>Charge: ${found.charge.words}.</li>
      <li>Refund: ${found.refund.words}.</li>
    </ul>
  </div>`

/** @type {Readonly<Record<string, string>>} */
const outcomes = {
  captured: "captured: the money was taken, the order is paid",
  declined: "declined: no money was taken",
  refunded: "refunded: the money was given back"
}

/**
 * Settles a payment that waits for a person. The gateway is asked first; what may be chosen depends on its answer.
 *
 * @param {{ readonly id: string, readonly status: string }} payment
 * @param {any} found What the gateway said, or undefined where it has not been asked.
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const settleActions = ({ id, status }, found, onDone) => {
  if (status !== "manual") return []
  const mayBecome = /** @type {ReadonlyArray<string>} */ (found?.mayBecome ?? Object.keys(outcomes))
  return [
    {
      label: "Settle",
      tone: "primary",
      does: async () => {
        const asked = await check(id)
        const may = asked.mayBecome
        return html`<${Findings} found=${asked} />
          <p>
            ${
              may.length === 0
                ? "It can't be settled now."
                : html`It may become
                  ${may.map((/** @type {string} */ one) => html` <${State} key=${one} of=${one} />`)}. The order, its
                  event and the customer's answer go along, in one transaction. No money is moved.`
            }
          </p>`
      },
      fields: [
        {
          name: "as",
          label: "Outcome",
          options: [
            { value: "", label: "as the gateway says" },
            ...mayBecome.map((value) => ({ value, label: outcomes[value] ?? value }))
          ],
          help: "Name it only where the gateway can't."
        },
        {
          name: "withoutGateway",
          label: "If the gateway does not answer",
          options: [
            { value: "", label: "don't settle" },
            { value: "yes", label: "settle on my word" }
          ],
          isShown: ({ as }) => as !== ""
        }
      ],
      run: async (reason, { as, withoutGateway }) => {
        const { changed, orderStatus, payment } = await post(`${pathOf(id)}/settle`, {
          reason,
          ...(as === "" ? {} : { as }),
          ...(as !== "" && withoutGateway === "yes" ? { withoutGateway: true } : {})
        })
        onDone()
        return changed
          ? `The payment is ${payment.status}, its order ${orderStatus}.`
          : `Nothing changed: the payment is ${payment.status} already.`
      }
    }
  ]
}
