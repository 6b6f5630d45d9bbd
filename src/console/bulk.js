/**
 * Actions on everything that a filter matches. The service says first what it would do.
 *
 * @import { Action } from "./act.js"
 */
import { exchange, post } from "./api.js"
import { counted, number, shortId } from "./format.js"
import { html } from "./html.js"

/** Thousands of events take minutes: each is a decision of its own, with its row in the audit. */
const patienceMillis = 600_000

/** Groups that fit in sight; the rest is counted. */
const shownGroups = 6

/**
 * @typedef {object} Preview
 * @property {number} matching
 * @property {ReadonlyArray<{ readonly cause: string, readonly count: number }>} [groups]
 * @property {ReadonlyArray<string>} [examples]
 */

/**
 * What a preview says, as a person reads it.
 *
 * @param {{ readonly preview: Preview, readonly thing: string, readonly does: string }} props
 */
export const PreviewOf = ({ does, preview, thing }) => {
  const { examples = [], groups = [], matching } = preview
  if (matching === 0) return html`<p>Nothing matches: nothing would change.</p>`
  const rest = groups.slice(shownGroups).reduce((sum, { count }) => sum + count, 0)
  return html`<p><strong>${counted(matching, thing)}</strong> ${does}</p>
    ${
      groups.length === 0
        ? null
        : html`<ul class="plain">
            ${groups.slice(0, shownGroups).map(({ cause, count }) => html`<li key=${cause}><b>${number(count)}</b> × <code>${cause}</code></li>`)}
            ${rest === 0 ? null : html`<li><b>${number(rest)}</b> × other causes</li>`}
          </ul>`
    }
    ${examples.length === 0 ? null : html`<p class="dim">Such as ${examples.slice(0, 3).map(shortId).join(", ")}.</p>`}`
}

/**
 * An action on all that match: `POST path {filter, reason, preview}`.
 *
 * @param {{ readonly label: string, readonly path: string, readonly filter: Readonly<Record<string, unknown>>, readonly thing: string, readonly does: string,
 *   readonly told: (answer: any) => string, readonly onDone?: () => void, readonly impossible?: string }} of
 * @returns {Action}
 */
export const bulkAction = ({ does, filter, impossible, label, onDone, path, thing, told }) => ({
  label,
  ...(impossible === undefined ? {} : { impossible }),
  does: async () => {
    const preview = await post(path, { filter, preview: true })
    return html`<${PreviewOf} preview=${preview} thing=${thing} does=${does} />`
  },
  run: async (reason) => {
    const { body: answer } = await exchange("POST", path, { body: { filter, reason, preview: false }, patienceMillis })
    onDone?.()
    return told(answer)
  }
})
