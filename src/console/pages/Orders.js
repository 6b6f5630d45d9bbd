/** Orders: place one and follow it, make load, and the recent ones. */
import { useLoad } from "../load.js"
import { withQuery } from "../api.js"
import { Filter } from "../filter.js"
import { html } from "../html.js"
import { Empty, Id, Loaded, Money, PageHead, Section, State, Time } from "../parts.js"
import { useQuery } from "../router.js"
import { Pager, Table } from "../table.js"
import { FollowOne } from "./orders/FollowOne.js"
import { Load } from "./orders/Load.js"

/** @typedef {import("../types.ts").Journey["order"]} Order */

/** @type {ReadonlyArray<import("../table.js").Column<Order>>} */
const columns = [
  { head: "order", cell: ({ id }) => html`<${Id} id=${id} href=${`/console/orders/${id}`} />` },
  { head: "state", cell: ({ status }) => html`<${State} of=${status} />` },
  {
    head: "amount",
    as: "number",
    cell: ({ currency, totalAmountMinor }) => html`<${Money} minor=${totalAmountMinor} currency=${currency} />`
  },
  { head: "version", as: "number", cell: ({ version }) => String(version) },
  { head: "customer", as: "wide", cell: ({ customerId }) => customerId },
  { head: "placed", cell: ({ createdAt }) => html`<${Time} at=${createdAt} />` },
  { head: "changed", cell: ({ updatedAt }) => html`<${Time} at=${updatedAt} />` }
]

/** A page that moves can't be read: the list is read anew while it shows the newest. */
const everyMillis = 3_000

/** The page. */
export const Page = () => {
  const [{ cursor, status }] = useQuery()
  const load = useLoad(withQuery("/orders", { status, cursor, limit: 20 }), cursor === undefined ? { everyMillis } : {})
  return html`<${PageHead} title="Orders" />
    <div class="two">
      <${FollowOne} />
      <${Load} />
    </div>
    <${Section} title="Recent orders">
      <${Filter}
        fields=${[{ name: "status", label: "State", options: ["pending", "paying", "paid", "cancelled", "refunding", "refunded"] }]}
      />
      <${Loaded} load=${load}>
        ${(/** @type {{ items: ReadonlyArray<Order>, nextCursor: string | null }} */ { items, nextCursor }) =>
          items.length === 0
            ? html`<${Empty}>No order here. Place one above, and watch it travel.<//>`
            : html`<${Table}
                  caption="Orders, newest first"
                  columns=${columns}
                  rows=${items}
                  keyOf=${(/** @type {Order} */ { id }) => id}
                />
                <${Pager} nextCursor=${nextCursor} count=${items.length} />`}
      <//>
    <//>`
}
