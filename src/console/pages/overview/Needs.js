/**
 * What needs a person: what, since when, and where to decide.
 *
 * @import { Overview } from "../../types.ts"
 */
import { useEffect } from "preact/hooks"
import { duration, number } from "../../format.js"
import { html } from "../../html.js"
import { live } from "../../live.js"
import { Copy, Empty, Section } from "../../parts.js"
import { useStore } from "../../store.js"
import { Table } from "../../table.js"

/** @typedef {Overview["decisions"][number]} Decision */

/**
 * What each kind of decision is about. A dead mail is a dead task.
 *
 * @type {Record<Decision["kind"], string>}
 */
const runbooks = {
  "outbox event": "OutboxDeadLetters",
  "inbox event": "InboxDeadLetters",
  gap: "InboxGaps",
  mail: "OutboxTasksDead",
  task: "OutboxTasksDead",
  payment: "PaymentsManual",
  difference: "ReconciliationDifference"
}

/** @type {ReadonlyArray<import("../../table.js").Column<Decision>>} */
const columns = [
  { head: "how many", as: "number", cell: ({ count }) => html`<strong class="bad">${number(count)}</strong>` },
  { head: "what", as: "wide", cell: ({ page, what }) => html`<a href=${`/console/${page}`}>${what}</a>` },
  {
    head: "since",
    cell: ({ sinceSeconds }) =>
      sinceSeconds === null ? "–" : html`<span class="figure">${duration(sinceSeconds)}</span>`
  },
  {
    head: "runbook",
    cell: ({ kind }) => html`<a href=${`/console/runbooks/${runbooks[kind]}`}>${runbooks[kind]}</a>`
  },
  {
    head: "on the command line",
    cell: ({ command }) =>
      html`<span class="id"><code>${command}</code><${Copy} text=${command} what="command" /></span>`
  }
]

/** @param {{ readonly overview: Overview }} props */
export const Needs = ({ overview: { decisions } }) => {
  const isLive = useStore(live, ({ connection, trouble }) => connection !== "stale" && trouble === undefined)
  useEffect(() => {
    if (location.hash === "#needs") document.querySelector("#needs")?.scrollIntoView()
  }, [])
  return html`<${Section} title="Needs a person" id="needs">
    ${
      decisions.length === 0
        ? html`<${Empty}
            >${isLive ? "Nothing waits for a decision." : "Whether something waits for a decision is not known: the service does not answer."}<//
          >`
        : html`<${Table}
            caption="What needs a person"
            class="needs"
            columns=${columns}
            rows=${decisions}
            keyOf=${(/** @type {Decision} */ { consumer = "", kind, page }) => `${kind} ${consumer} ${page}`}
          />`
    }
  <//>`
}
