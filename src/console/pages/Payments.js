/** Payments by state: those that wait for a person or for the gateway, as long as nothing else is chosen. */
import { useState } from "preact/hooks"
import { withQuery } from "../api.js"
import { Filter, sinceOptions } from "../filter.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Empty, Id, Loaded, Money, PageHead, Section, State, Time } from "../parts.js"
import { useQuery } from "../router.js"
import { Pager, Table } from "../table.js"
import { CheckButton } from "./CheckButton.js"
import { Findings, settleActions } from "./paymentActions.js"

/** A person who looks at a list sees what others did within this time. */
const refreshMillis = 5_000

const statuses = ["manual", "charging", "refunding", "captured", "declined", "refunded"]

/** @param {{ readonly payment: any }} props */
const Gateway = ({ payment }) => {
  const [found, setFound] = useState(/** @type {any} */ (undefined))
  return html`<${CheckButton} id=${payment.id} of=${`payment ${payment.id}`} onFound=${setFound} />
    ${found === undefined ? null : html`<${Findings} found=${found} />`}`
}

const columns = [
  {
    head: "Payment",
    cell: (/** @type {any} */ { id }) => html`<${Id} id=${id} href=${`/console/payments/${id}`} />`
  },
  {
    head: "Amount",
    as: /** @type {const} */ ("number"),
    cell: (/** @type {any} */ { amountMinor, currency }) => html`<${Money} minor=${amountMinor} currency=${currency} />`
  },
  {
    head: "State",
    cell: (/** @type {any} */ { declineReason, status }) =>
      html`<${State}
          of=${status}
        />${declineReason === null ? null : html`<small class="dim">declined: ${declineReason}</small>`}`
  },
  {
    head: "Order",
    cell: (/** @type {any} */ { orderId }) => html`<${Id} id=${orderId} href=${`/console/orders/${orderId}`} />`
  },
  { head: "Since", cell: (/** @type {any} */ { updatedAt }) => html`<${Time} at=${updatedAt} />` },
  {
    head: "At the gateway",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ payment) => html`<${Gateway} payment=${payment} />`
  }
]

export const Page = () => {
  const [{ cursor, sinceSeconds, status }] = useQuery()
  const load = useLoad(withQuery("/admin/payments", { status, sinceSeconds, cursor }), { everyMillis: refreshMillis })
  return html`<${PageHead} title="Payments" />
    <${Filter}
      fields=${[
        { name: "status", label: "State", options: statuses, any: "manual or under way" },
        { name: "sinceSeconds", label: "Begun within", options: sinceOptions }
      ]}
    />
    <${Section} title="Payments">
      <${Loaded} load=${load} what="Looking for payments">
        ${(/** @type {any} */ { items, nextCursor }) =>
          html`${
              items.length === 0
                ? html`<${Empty}>${status === undefined ? "No payment waits." : `No payment is ${status}.`}<//>`
                : html`<${Table}
                    caption="Payments"
                    columns=${columns}
                    rows=${items}
                    keyOf=${(/** @type {any} */ { id }) => id}
                    nameOf=${(/** @type {any} */ { id }) => `payment ${id}`}
                    actions=${(/** @type {any} */ payment) => settleActions(payment, undefined, load.reload)}
                  />`
            } <${Pager} nextCursor=${nextCursor} count=${items.length} />`}
      <//>
    <//>`
}
