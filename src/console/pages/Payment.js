/** One payment: what our books say, what the gateway says, and its story. */
import { useState } from "preact/hooks"
import { Actions } from "../act.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Facts, Id, Loaded, Money, PageHead, Section, State, Time } from "../parts.js"
import { Story } from "../story.js"
import { CheckButton } from "./CheckButton.js"
import { Findings, settleActions } from "./paymentActions.js"

/** A person who watches a payment being settled sees its end within this time. */
const refreshMillis = 2_000

/** @param {{ readonly segments: ReadonlyArray<string> }} props */
export const Page = ({ segments: [id = ""] }) => {
  const load = useLoad(`/admin/payments/${encodeURIComponent(id)}`, { everyMillis: refreshMillis })
  const [found, setFound] = useState(/** @type {any} */ (undefined))
  return html`<${PageHead} title="Payment"><a href="/console/payments">All payments</a><//>
    <${Loaded} load=${load} what="Looking for the payment">
      ${(/** @type {any} */ { order, payment, story }) =>
        html`<${Section} title="What our books say">
            <${Facts}
              pairs=${[
                ["id, and key at the gateway", html`<${Id} id=${payment.id} whole />`],
                ["state", html`<${State} of=${payment.status} />`],
                ["amount", html`<${Money} minor=${payment.amountMinor} currency=${payment.currency} />`],
                ["captured", html`<${Money} minor=${payment.capturedMinor} currency=${payment.currency} />`],
                ["refunded", html`<${Money} minor=${payment.refundedMinor} currency=${payment.currency} />`],
                ["method", payment.paymentMethod],
                ["declined because", payment.declineReason ?? "–"],
                [
                  "order",
                  html`<${Id} id=${payment.orderId} href=${`/console/orders/${payment.orderId}`} />
                    <${State} of=${order.status} />`
                ],
                ["begun", html`<${Time} at=${payment.createdAt} />`],
                ["in this state since", html`<${Time} at=${payment.updatedAt} />`]
              ]}
            />
            ${found === undefined ? null : html`<${Findings} found=${found} />`}
            <${Actions} actions=${settleActions(payment, found, load.reload)}>
              <${CheckButton} id=${payment.id} onFound=${setFound} />
            <//>
          <//>
          <${Section} title="What happened">
            <${Story} steps=${story.map((/** @type {any} */ { at, of, what }) => ({ at, what: `${of}: ${what}` }))} />
          <//>`}
    <//>`
}
