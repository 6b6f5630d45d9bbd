/**
 * How many things wait for a person: in the menu, on tabs, and in the head of every page.
 *
 * @import { Overview } from "./types.ts"
 */
import { number } from "./format.js"
import { html } from "./html.js"
import { live } from "./live.js"
import { useStore } from "./store.js"

/**
 * Whether the figures are those of before: the service does not answer, or can't read newer ones.
 *
 * @param {import("./live.js").Live} now
 */
export const isOld = ({ connection, trouble }) => connection === "stale" || trouble !== undefined

/**
 * @param {Overview | undefined} overview
 * @param {(one: Overview["decisions"][number]) => boolean} [counts] Only those.
 * @returns {number}
 */
export const decisionsOf = (overview, counts = () => true) =>
  (overview?.decisions ?? []).filter(counts).reduce((sum, { count }) => sum + count, 0)

/**
 * What waits for a person on a page. A dead mail is a dead task as well: both pages show it, and it is one decision.
 *
 * @param {Overview | undefined} overview
 * @param {string} page
 * @returns {number}
 */
export const decisionsOn = (overview, page) =>
  page === "/console/tasks"
    ? (overview?.tasks ?? []).reduce((sum, { count, state }) => sum + (state === "dead" ? count : 0), 0)
    : decisionsOf(overview, (one) => `/console/${one.page.split("?")[0]}` === page)

/**
 * A number beside a name, where it is not 0.
 *
 * @param {{ readonly of: (overview: Overview | undefined) => number }} props
 */
export const Count = ({ of }) => {
  const count = useStore(live, ({ overview }) => of(overview))
  const old = useStore(live, isOld)
  return count === 0
    ? null
    : html`<span class="count"
        ><span aria-hidden="true">${number(count)}${old ? "?" : ""}</span
        ><span class="unseen"
          >, ${number(count)} ${old ? "needed" : count === 1 ? "needs" : "need"} a decision${old ? " before" : ""}</span
        ></span
      >`
}
