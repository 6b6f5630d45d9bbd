/** The runbooks: what an alert or a wait means, and how it is mended. The files of docs/runbooks, as the service has them. */
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Blocks, Inline, sectionsOf } from "../markdown.js"
import { Loaded, PageHead, Section } from "../parts.js"
import { Table } from "../table.js"

/** @typedef {readonly [name: string, text: string]} Runbook */

/** @type {ReadonlyArray<import("../table.js").Column<Runbook>>} */
const columns = [
  { head: "Runbook", cell: ([name]) => html`<a href=${`/console/runbooks/${name}`}>${name}</a>` },
  {
    head: "What it means",
    as: "wide",
    cell: ([, text]) => {
      const first = sectionsOf(text)[0]?.blocks[0]
      return first === undefined || !("text" in first) ? null : html`<${Inline} text=${first.text} />`
    }
  }
]

/** @param {{ readonly segments: ReadonlyArray<string> }} props */
export const Page = ({ segments: [asked] }) => {
  const load = useLoad("/console/runbooks.json")
  // An alert's runbook_url ends with the file's name.
  const name = asked?.replace(/\.md$/, "")
  return html`<${PageHead} key=${name} title=${name ?? "Runbooks"}
      >${name === undefined ? null : html`<a href="/console/runbooks">All runbooks</a>`}<//
    >
    <${Loaded} load=${load} what="Reading the runbooks">
      ${(/** @type {Readonly<Record<string, string>>} */ runbooks) => {
        const text = name !== undefined && Object.hasOwn(runbooks, name) ? runbooks[name] : undefined
        if (text !== undefined)
          return html`${sectionsOf(text).map(
            ({ blocks, title }) =>
              html`<${Section} key=${title} class="runbook" title=${title}><${Blocks} blocks=${blocks} /><//>`
          )}`
        return html`${name === undefined ? null : html`<p class="stale">There is no runbook of this name. These are there:</p>`}
          <${Section} title="All">
            <${Table}
              caption="Runbooks"
              columns=${columns}
              rows=${Object.entries(runbooks)}
              keyOf=${(/** @type {Runbook} */ [key]) => key}
            />
          <//>`
      }}
    <//>`
}
