/** One order: its way from the request to its effects, live, with what waits and what frees it. */
import { useLoad } from "../load.js"
import { withQuery } from "../api.js"
import { html } from "../html.js"
import { Id, Loaded, Money, PageHead, Section, State, Time } from "../parts.js"
import { useQuery } from "../router.js"
import { Pager } from "../table.js"
import { Leg } from "./orders/Leg.js"
import { OrderActions } from "./orders/OrderActions.js"

/** @typedef {import("../types.ts").Journey} Journey */

/** While something is under way each step can be seen; afterwards nothing is expected. */
const busyMillis = 700
const quietMillis = 5_000

/** @param {Journey | undefined} journey */
const isMoving = (journey) =>
  journey === undefined ||
  journey.order.status === "pending" ||
  journey.legs.some(({ state }) => state === "now" || state === "waiting")

/** @param {{ readonly segments: ReadonlyArray<string> }} props */
export const Page = ({ segments: [id = ""] }) => {
  const [{ cursor }] = useQuery()
  const path = withQuery(`/admin/orders/${encodeURIComponent(id)}/journey`, { cursor })
  const load = useLoad(path, {
    everyMillis: (/** @type {Journey} */ journey) => (isMoving(journey) ? busyMillis : quietMillis)
  })
  return html`<${PageHead} title="Order"><${Id} id=${id} whole /><//>
    <${Loaded} load=${load} what="Reading the order's way">
      ${(/** @type {Journey} */ { complete, legs, nextCursor, order }) =>
        html` <section class="card" aria-label="The order now">
            <div class="order-now">
              <b class="amount"><${Money} minor=${order.totalAmountMinor} currency=${order.currency} /></b>
              <${State} of=${order.status} />
              <span class="dim">version ${order.version}</span>
              <span class="dim">customer ${order.customerId}</span>
              <span class="dim">placed <${Time} at=${order.createdAt} /></span>
              <a href=${`/console/events?orderId=${order.id}`}>Its events</a>
            </div>
            <${OrderActions} order=${order} onDone=${load.reload} />
          </section>
          ${complete ? null : html`<p class="stale">Retention has dropped events of this order: the way is shown as far as it is known.</p>`}
          ${legs
            .toReversed()
            .map(
              (leg) =>
                html`<${Leg} key=${`${leg.eventId} ${leg.paymentId} ${leg.title}`} leg=${leg} onDone=${load.reload} />`
            )}
          <p class="dim">
            Times are the database's. A process is named while it has a step. Which one has done a step stands in its
            trace, as service.instance.id, where traces are collected.
          </p>
          ${legs.length === 0 ? html`<${Section} title="Nothing to tell"><p>No event of this order is known any more.</p><//>` : null}
          <${Pager} nextCursor=${nextCursor} count=${legs.length} />`}
    <//>`
}
