/** What operators did: who, why, and what it was before and after. */
import { withQuery } from "../api.js"
import { Filter, sinceOptions } from "../filter.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Empty, Loaded, PageHead, Section, Time } from "../parts.js"
import { useQuery } from "../router.js"
import { Pager, Table } from "../table.js"
import { Change, Subject } from "./auditEntry.js"

/** A person who looks at the audit sees a new entry within this time. */
const refreshMillis = 5_000

const subjects = [
  "outbox event",
  "inbox event",
  "task",
  "order",
  "payment",
  "mail",
  "topic",
  "consumer",
  "task type",
  "fault point",
  "sandbox gateway",
  "revenue"
]

const columns = [
  { head: "When", cell: (/** @type {any} */ { at }) => html`<${Time} at=${at} />` },
  { head: "Who", cell: (/** @type {any} */ { actor }) => html`<span class="error">${actor}</span>` },
  { head: "Did", cell: (/** @type {any} */ { action }) => action },
  {
    head: "To",
    cell: (/** @type {any} */ entry) => html`<${Subject} of=${entry} />`
  },
  {
    head: "Why",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { reason }) => html`<span class="error">${reason}</span>`
  },
  {
    head: "Changed",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ entry) => html`<${Change} before=${entry.before} after=${entry.after} />`
  }
]

export const Page = () => {
  const [{ action, actor, cursor, sinceSeconds, subject, subjectId }] = useQuery()
  const load = useLoad(withQuery("/admin/audit", { action, actor, cursor, sinceSeconds, subject, subjectId }), {
    everyMillis: refreshMillis
  })
  return html`<${PageHead} title="Audit" />
    <${Filter}
      fields=${[
        { name: "actor", label: "Who", placeholder: "admin/ada" },
        { name: "action", label: "Did", placeholder: "retry" },
        { name: "subject", label: "To a", options: subjects },
        { name: "subjectId", label: "Its id" },
        { name: "sinceSeconds", label: "Within", options: sinceOptions }
      ]}
    />
    <${Section} title="Entries">
      <${Loaded} load=${load} what="Reading the audit">
        ${(/** @type {any} */ { items, nextCursor }) =>
          html`${
              items.length === 0
                ? html`<${Empty}>No entry matches.<//>`
                : html`<${Table}
                    caption="Audit"
                    columns=${columns}
                    rows=${items}
                    keyOf=${(/** @type {any} */ { id }) => String(id)}
                  />`
            } <${Pager} nextCursor=${nextCursor} count=${items.length} />`}
      <//>
    <//>`
}
