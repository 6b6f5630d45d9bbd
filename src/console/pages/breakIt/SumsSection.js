/** Whether orders, events, effects and money agree, in figures and in one sentence. */
import { Problem } from "../../api.js"
import { counted, money, number } from "../../format.js"
import { html } from "../../html.js"
import { Empty, Loaded, Section, State } from "../../parts.js"
import { Table } from "../../table.js"

/**
 * What is missing, as sentences; and whether something is still on its way, which may explain it.
 *
 * @param {any} sums
 */
export const judge = ({ books, changes, dead, discarded, effects, published, underWay, waiting }) => {
  const lost = changes - published - waiting - dead - discarded
  const open = waiting + dead + underWay
  const behind = effects.filter((/** @type {any} */ { applied }) => applied < changes - discarded)
  const differing = books.filter(
    (/** @type {any} */ { bookedMinor, capturedMinor, paidMinor }) =>
      !(paidMinor === capturedMinor && capturedMinor === bookedMinor)
  )
  const missing = [
    ...(lost === 0
      ? []
      : [`${counted(Math.abs(lost), "event")} ${lost > 0 ? "of these changes can't be found" : "too many"}`]),
    ...behind.map(
      (/** @type {any} */ { applied, consumer, givenUp }) =>
        `${consumer} has ${counted(changes - discarded - applied - givenUp, "change")} to apply`
    ),
    ...differing.map((/** @type {any} */ { currency }) => `the books in ${currency} differ`)
  ]
  const onTheWay = open > 0 || behind.length > 0
  const givenUp = effects.filter((/** @type {any} */ effect) => effect.givenUp > 0)
  return {
    missing: [
      ...missing,
      ...givenUp.map(
        (/** @type {any} */ { consumer, givenUp: count }) =>
          `${consumer} goes on without ${counted(count, "change")}, as an operator decided`
      )
    ],
    state:
      lost !== 0
        ? "lost"
        : dead > 0
          ? "decide"
          : missing.length === 0 && open === 0
            ? givenUp.length > 0 || discarded > 0
              ? "decided"
              : "agree"
            : onTheWay
              ? "waiting"
              : "differ"
  }
}

/** @type {Readonly<Record<string, readonly [string, string]>>} */
const words = {
  agree: ["ready", "All sums agree."],
  decided: ["ready", "All sums agree, but for what operators have given up."],
  waiting: ["waiting", "Something is on its way, and nothing is lost."],
  decide: ["dead", "An event waits for a decision, and nothing is lost."],
  differ: ["stuck", "The sums differ, though nothing is on its way."],
  lost: ["lost", "Events and changes don't match."]
}

/** The sums in one sentence. */
export const verdictOf = (/** @type {any} */ sums) => {
  const { state } = judge(sums)
  return words[state]?.[1] ?? state
}

/** @param {{ readonly load: import("../../load.js").Load<any> }} props */
export const SumsSection = ({ load }) =>
  html`<${Section} title="Do the sums agree?">
    ${load.error instanceof Problem && load.error.status === 500 ? html`<p>The sums can't be read: the database refuses the query. A table may be missing; the log has the reason.</p>` : null}
    <${Loaded} load=${load} what="Adding up">
      ${(/** @type {any} */ sums) => {
        if (sums.orders === 0)
          return html`<${Empty}
            >No order was placed in the last hour. Place some on the page Orders, and break something meanwhile.<//
          >`
        const { missing, state } = judge(sums)
        const [tone, sentence] = words[state] ?? ["", state]
        const rows = [
          { what: "changes of orders", count: sums.changes, of: sums.changes },
          { what: "events published", count: sums.published, of: sums.changes },
          { what: "events waiting", count: sums.waiting, of: null },
          { what: "events dead", count: sums.dead, of: null },
          { what: "events discarded", count: sums.discarded, of: null },
          ...sums.effects.map((/** @type {any} */ { applied, consumer }) => ({
            what: `applied by ${consumer}`,
            count: applied,
            of: sums.changes
          })),
          { what: "payments without an outcome", count: sums.underWay, of: null }
        ]
        return html`<p class="verdict-line">
            <${State} of=${tone} text=${state} />
            <strong>${sentence}</strong>
            ${state === "decide" ? html`<a href="/console/dead-letters">Dead letters</a>` : null}
          </p>
          ${
            missing.length === 0
              ? null
              : html`<ul class="plain">
                  ${missing.map((one) => html`<li key=${one}>${one}</li>`)}
                </ul>`
          }
          <p class="dim">
            Over ${sums.areAll ? "all" : "the newest"} ${counted(sums.orders, "order")} of the last hour.
          </p>
          <div class="two">
            <${Table}
              caption="Orders, events and effects"
              keyOf=${(/** @type {any} */ { what }) => what}
              rows=${rows}
              columns=${[
                { head: "What", cell: (/** @type {any} */ { what }) => what },
                { head: "Count", as: "number", cell: (/** @type {any} */ { count }) => number(count) },
                {
                  head: "Should be",
                  as: "number",
                  cell: (/** @type {any} */ { of }) => (of === null ? "0, in the end" : number(of))
                }
              ]}
            />
            ${
              sums.books.length === 0
                ? html`<${Empty}>No money was moved.<//>`
                : html`<${Table}
                    caption="Money"
                    keyOf=${(/** @type {any} */ { currency }) => currency}
                    rows=${sums.books}
                    columns=${[
                      ["Paid orders", "paidMinor"],
                      ["Captured, less refunds", "capturedMinor"],
                      ["Booked by billing", "bookedMinor"]
                    ].map(([head = "", field = ""]) => ({
                      head,
                      as: "number",
                      cell: (/** @type {any} */ row) => money(Number(row[field]), row.currency)
                    }))}
                  />`
            }
          </div>`
      }}
    <//>
  <//>`
