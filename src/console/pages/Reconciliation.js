/**
 * Whether all books agree: the last reconciliation, rule by rule, with its differences. A check changes nothing; a repair goes through the use cases.
 *
 * @import { Action } from "../act.js"
 */
import { useState } from "preact/hooks"
import { Actions } from "../act.js"
import { exchange, session } from "../api.js"
import { counted, number } from "../format.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Empty, Facts, Id, Loaded, notify, PageHead, Section, Time } from "../parts.js"
import { useStore } from "../store.js"
import { Table } from "../table.js"

/** A person who waits for another one's run sees its end within this time. */
const refreshMillis = 10_000

/** A million orders take minutes. */
const patienceMillis = 600_000

const path = "/admin/reconciliation"

/** @param {any} report */
const told = ({ differences, notCompared, repaired }) =>
  [
    ...(repaired === 0 ? [] : [`Repaired ${counted(repaired, "difference")}.`]),
    differences === 0
      ? "All books that were compared agree."
      : `${counted(differences, "difference")} ${differences === 1 ? "is" : "are"} left.`,
    ...(notCompared.length === 0 ? [] : ["Some books could not be compared."])
  ].join(" ")

/** @param {object} [body] */
const run = async (body) =>
  (await exchange("POST", path, { ...(body === undefined ? {} : { body }), patienceMillis })).body

/**
 * A check needs no form and no reason.
 *
 * @param {{ readonly onDone: () => void }} props
 */
const CheckNow = ({ onDone }) => {
  const [isBusy, setBusy] = useState(false)
  const canWrite = useStore(session, (now) => now?.canWrite === true)
  const check = async () => {
    if (isBusy || !canWrite) return
    setBusy(true)
    try {
      notify(told(await run()), "ok")
      onDone()
    } catch (error) {
      notify(error instanceof Error ? error.message : String(error), "bad")
    } finally {
      setBusy(false)
    }
  }
  return html`<button
    type="button"
    aria-disabled=${isBusy || !canWrite}
    title=${canWrite ? undefined : "Your token may only read."}
    onClick=${check}
  >
    ${isBusy ? "Comparing …" : "Check now"}
  </button>`
}

const keepOpen = "Keep this page open meanwhile: closing it ends the run."

/**
 * @param {any} last
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
const repairAction = (last, onDone) => {
  const open = (last?.rules ?? []).filter((/** @type {any} */ { count }) => count > 0)
  const mendable = open.filter((/** @type {any} */ { repair }) => repair !== null)
  return [
    {
      label: "Repair",
      tone: "primary",
      does:
        mendable.length === 0
          ? html`<p>The books are compared anew. The last run found nothing that a use case can repair. ${keepOpen}</p>`
          : html`<p>
                The books are compared anew, and each difference is looked at once more before it is repaired. By the
                last run this would be done. ${keepOpen}
              </p>
              <ul class="plain">
                ${mendable.map(
                  (/** @type {any} */ { count, repair, rule }) =>
                    html`<li key=${rule}><b>${number(count)}</b> × <code>${rule}</code>: ${repair}.</li>`
                )}
              </ul>`,
      run: async (reason) => {
        const report = await run({ repair: true, reason })
        onDone()
        return told(report)
      }
    }
  ]
}

const ruleColumns = [
  {
    head: "how many",
    as: /** @type {const} */ ("number"),
    cell: (/** @type {any} */ { count }) => html`<strong class=${count > 0 ? "bad" : ""}>${number(count)}</strong>`
  },
  {
    head: "rule",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { books, rule }) => html`<code>${rule}</code><br /><small class="dim">${books}</small>`
  },
  { head: "means", as: /** @type {const} */ ("wide"), cell: (/** @type {any} */ { means }) => means },
  {
    head: "repair",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { byHand = "a person has to mend it", repair }) =>
      repair ?? html`<span class="dim">by hand: ${byHand}</span>`
  }
]

/** @param {ReadonlyMap<string, any>} rules */
const itemColumnsOf = (rules) => [
  { head: "rule", cell: (/** @type {any} */ { rule }) => html`<code>${rule}</code>` },
  {
    head: "of",
    cell: (/** @type {any} */ { id, orderId, paymentId }) =>
      html`${paymentId === null ? null : html`payment <${Id} id=${paymentId} href=${`/console/payments/${paymentId}`} /><br />`}
      ${orderId === null ? null : html`order <${Id} id=${orderId} href=${`/console/orders/${orderId}`} />`}
      ${orderId === null && paymentId === null ? html`<code class="error">${id}</code>` : null}`
  },
  { head: "expected", cell: (/** @type {any} */ { expected }) => expected },
  {
    head: "found",
    cell: (/** @type {any} */ { found }) => html`<span class="error">${found}</span>`
  },
  {
    head: "repair",
    // A person's steps are the longest of all.
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { repair, rule }) =>
      rules.get(rule)?.byHand !== undefined
        ? html`by hand<br /><small class="dim">${rules.get(rule).byHand}</small>`
        : repair === null
          ? "–"
          : html`${repair.outcome === "manual" ? "refused" : repair.outcome}${
              repair.why === null ? null : html`<br /><small class="dim">${repair.why}</small>`
            }`
  }
]

/** @param {{ readonly last: any }} props */
const Last = ({ last }) => {
  const broken = last.rules.filter((/** @type {any} */ { count }) => count > 0)
  const rest = last.rules.filter((/** @type {any} */ { count }) => count === 0)
  const listed = last.items.filter((/** @type {any} */ { repair }) => repair === null || repair.outcome === "manual")
  const unlisted = last.differences - listed.length
  return html`<${Section} title="The last run">
      <${Facts}
        pairs=${[
          ["ended", html`<${Time} at=${last.finishedAt} />`],
          ["asked for by", html`<span class="error">${last.actor}</span>`],
          [
            "differences",
            html`<strong class=${last.differences > 0 ? "bad" : ""}>${number(last.differences)}</strong>`
          ],
          ["repaired", number(last.repaired)],
          [
            "went through",
            last.compared.map((/** @type {any} */ { name, rows }) => `${name} (${number(rows)})`).join(", ")
          ]
        ]}
      />
      ${last.notCompared.map(
        (/** @type {any} */ { rules, why }) =>
          html`<p key=${why} class="bad">
            Not compared, so that these rules count as before: ${why}: ${rules.join(", ")}.
          </p>`
      )}
    <//>
    <${Section} title="Differences">
      ${
        last.items.length === 0
          ? html`<${Empty}>${last.differences === 0 ? "All books agree." : "None is listed."}<//>`
          : html`<${Table}
              caption="Differences"
              columns=${itemColumnsOf(new Map(last.rules.map((/** @type {any} */ rule) => [rule.rule, rule])))}
              rows=${[...Map.groupBy(last.items, (/** @type {any} */ { orderId }) => orderId).values()].flat()}
              keyOf=${(/** @type {any} */ { id, rule }) => `${rule} ${id}`}
            />`
      }
      ${
        unlisted > 0
          ? html`<p>
              ${counted(unlisted, "difference")} more: <code>npm run paid-once -- reconcile --limit 10000</code> lists
              them.
            </p>`
          : null
      }
    <//>
    <${Section} title="Rules">
      <${Table}
        caption="Rules"
        columns=${ruleColumns}
        rows=${[...broken, ...rest]}
        keyOf=${(/** @type {any} */ { rule }) => rule}
      />
    <//>`
}

export const Page = () => {
  const load = useLoad(path, { everyMillis: refreshMillis })
  return html`<${PageHead} title="Reconciliation"><a href="/console/runbooks/ReconciliationDifference">Runbook</a><//>
    <p>
      Gateway, payments, orders, events, ledger, revenue, inventory and mail, two and two. Each night they are compared
      by themselves, and nothing is repaired without an operator.
    </p>
    <${Loaded} load=${load} what="Looking for the last run">
      ${(/** @type {any} */ { last }) =>
        html`<${Actions} actions=${repairAction(last, load.reload)}><${CheckNow} onDone=${load.reload} /><//>
          ${last === null ? html`<${Empty}>Nobody has compared the books yet.<//>` : html`<${Last} last=${last} />`}`}
    <//>`
}
