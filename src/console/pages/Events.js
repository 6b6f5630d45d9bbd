/** The search of events, wherever they are: in the queue, held, dead, or published long ago. */
import { withQuery } from "../api.js"
import { Filter, sinceOptions } from "../filter.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Empty, Id, Loaded, PageHead, Section, State, Time } from "../parts.js"
import { useQuery } from "../router.js"
import { Pager, Table } from "../table.js"

/** @typedef {import("../types.ts").FoundEvent} Found */

/** @type {ReadonlyArray<import("../table.js").Column<Found>>} */
const columns = [
  { head: "occurred", cell: ({ occurredAt }) => html`<${Time} at=${occurredAt} />` },
  {
    head: "type",
    cell: ({ aggregateVersion, eventType }) =>
      html`<strong>${eventType}</strong> <span class="dim">v${aggregateVersion}</span>`
  },
  { head: "event", cell: ({ eventId }) => html`<${Id} id=${eventId} href=${`/console/events/${eventId}`} />` },
  {
    head: "order",
    cell: ({ aggregateId }) => html`<${Id} id=${aggregateId} href=${`/console/orders/${aggregateId}`} />`
  },
  { head: "state", cell: ({ status }) => html`<${State} of=${status} />` },
  { head: "at the broker", cell: (event) => html`<${Place} of=${event} />` },
  { head: "trace", cell: ({ traceId }) => html`<${Id} id=${traceId} href=${`/console/events?traceId=${traceId}`} />` }
]

/** @param {{ readonly of: { readonly topic: string, readonly partition: number | null, readonly offset: string | null } }} props */
export const Place = ({ of: { offset, partition, topic } }) =>
  html`<span
    >${topic}${partition === null ? "" : `/${partition}`}${offset === null ? "" : html` <span class="dim">offset ${offset}</span>`}</span
  >`

/**
 * @param {boolean} isBounded
 * @returns {ReadonlyArray<import("../filter.js").FilterField>}
 */
const fieldsOf = (isBounded) => [
  { name: "eventId", label: "Event's id" },
  { name: "orderId", label: "Order's id" },
  { name: "traceId", label: "Trace's id" },
  { name: "customerId", label: "Customer's id" },
  {
    name: "type",
    label: "Type",
    options: ["OrderPlaced", "PaymentDeclined", "OrderPaid", "OrderCancelled", "OrderRefunded"]
  },
  { name: "status", label: "State", options: ["queued", "retrying", "parked", "dead", "discarded", "published"] },
  {
    name: "sinceSeconds",
    label: "Occurred in the last",
    options: sinceOptions,
    any: isBounded ? "any time" : "10 minutes"
  }
]

/** Ids have an index; anything else needs a time from which on to look. */
const indexed = ["eventId", "orderId", "customerId"]

/** A page without a search shows the last ten minutes. */
const defaultSince = "600"

/** The page. */
export const Page = () => {
  const [{ cursor, ...query }] = useQuery()
  const isBounded = query["sinceSeconds"] !== undefined || indexed.some((name) => query[name] !== undefined)
  const fields = fieldsOf(isBounded)
  const asked = Object.fromEntries(fields.map(({ name }) => [name, query[name]]))
  const path = withQuery("/admin/events", { ...asked, ...(isBounded ? {} : { sinceSeconds: defaultSince }), cursor })
  const load = useLoad(path)
  return html`<${PageHead} title="Events" />
    <${Section} title="Search">
      <${Filter} fields=${fields} label="Search events" />
    <//>
    <${Section}
      title=${isBounded ? "Found" : "The last ten minutes"}
      aside=${html`<button type="button" class="link" onClick=${load.reload}>Search again</button>`}
    >
      <${Loaded} load=${load} what="Searching">
        ${(/** @type {{ items: ReadonlyArray<Found>, nextCursor: string | null }} */ { items, nextCursor }) =>
          html`${
              items.length === 0
                ? html`<${Empty}>
                    ${nextCursor === null ? "No event matches." : "None among those looked at so far: go on with the next page."}
                  <//>`
                : html`<${Table}
                    caption="Events, newest first"
                    columns=${columns}
                    rows=${items}
                    keyOf=${(/** @type {Found} */ { eventId }) => eventId}
                  />`
            } <${Pager} nextCursor=${nextCursor} count=${items.length} />`}
      <//>
    <//>`
}
