/** What an entry of the audit is about, with the way to it, and what the decision has changed. */
import { html } from "../html.js"
import { Id, Time } from "../parts.js"

const uuid = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i
const isoTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/

/** The page of each kind of thing that has an id. */
const pagesOfIds = /** @type {const} */ ({
  task: "tasks",
  mail: "tasks",
  payment: "payments",
  order: "orders",
  "outbox event": "dead-letters/outbox"
})

/** The page where a thing with a name is shown. */
const pagesOfNames = /** @type {const} */ ({
  topic: "",
  consumer: "",
  "task type": "/tasks",
  "fault point": "/break-it",
  "sandbox gateway": "/break-it",
  revenue: "/reconciliation"
})

/**
 * The thing that was decided about. What can't be an id of its kind is text: no page would know it.
 *
 * @param {{ readonly of: { readonly subject: string, readonly subjectId: string } }} props
 */
export const Subject = ({ of: { subject, subjectId } }) => {
  const page = Object.entries(pagesOfIds).find(([name]) => name === subject)?.[1]
  const named = Object.entries(pagesOfNames).find(([name]) => name === subject)?.[1]
  if (subject === "inbox event") {
    // Neither part has a blank.
    const [consumer = "", eventId = ""] = subjectId.split(" ")
    const href = `/console/dead-letters/inbox/${encodeURIComponent(consumer)}/${encodeURIComponent(eventId)}`
    return html`${subject} <small class="dim">for ${consumer}</small><br /><${Id} id=${eventId} href=${href} />`
  }
  if (page !== undefined && uuid.test(subjectId))
    return html`${subject}<br /><${Id} id=${subjectId} href=${`/console/${page}/${subjectId}`} />`
  const name = html`<code class="error">${subjectId}</code>`
  return html`${subject}<br />${named === undefined ? name : html`<a href=${`/console${named}`}>${name}</a>`}`
}

/**
 * `taskState` → `task state`. A name that is none of ours stays as it is.
 *
 * @param {string} name
 */
const inWords = (name) =>
  /^[a-z]+(?:[A-Z][a-z]*)*$/.test(name) ? name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`) : name

/** @param {{ readonly value: unknown }} props */
const Value = ({ value }) => {
  if (typeof value !== "string") return html`<code>${JSON.stringify(value)}</code>`
  if (uuid.test(value)) return html`<${Id} id=${value} />`
  return isoTime.test(value) ? html`<${Time} at=${value} />` : html`<code>${value}</code>`
}

/**
 * The values that a decision has changed. A value that is null is none, and one that stays is left out.
 *
 * @param {Readonly<Record<string, unknown>> | null} before
 * @param {Readonly<Record<string, unknown>> | null} after
 */
export const changesOf = (before, after) => {
  const [was, is] = [before ?? {}, after ?? {}]
  return [...new Set([...Object.keys(was), ...Object.keys(is)])]
    .map((name) => ({
      name,
      was: Object.hasOwn(was, name) ? (was[name] ?? undefined) : undefined,
      is: Object.hasOwn(is, name) ? (is[name] ?? undefined) : undefined
    }))
    .filter(({ is, was }) => JSON.stringify(was) !== JSON.stringify(is))
}

/**
 * Each value that changed: `state dead → pending`. What was not there before stands alone, and what is not told any more is struck out.
 *
 * @param {{ readonly before: Readonly<Record<string, unknown>> | null, readonly after: Readonly<Record<string, unknown>> | null }} props
 */
export const Change = ({ after, before }) => {
  const changes = changesOf(before, after)
  if (changes.length === 0) return html`<span class="dim">nothing</span>`
  return html`<ul class="plain changes">
    ${changes.map(
      ({ is, name, was }) =>
        html`<li key=${name}>
          <span class="dim">${inWords(name)}</span>
          ${was === undefined ? null : is === undefined ? html`<s><${Value} value=${was} /></s>` : html`<${Value} value=${was} /> →`}
          ${is === undefined ? null : html`<${Value} value=${is} />`}
        </li>`
    )}
  </ul>`
}
