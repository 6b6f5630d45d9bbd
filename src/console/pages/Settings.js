/** The settings that are in force. Secrets are never told. */
import { useState } from "preact/hooks"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Empty, Loaded, PageHead, Section } from "../parts.js"
import { Inline } from "../markdown.js"
import { Table } from "../table.js"

const columns = [
  {
    head: "Variable",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { description, variable }) =>
      html`<code>${variable}</code><br /><small class="dim"><${Inline} text=${description} /></small>`
  },
  {
    head: "Value",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { isDefault, isSecret, value }) =>
      html`${
        isSecret
          ? html`<span class="dim">${isDefault ? "not set" : "set, and secret"}</span>`
          : value === null
            ? html`<span class="dim">not set</span>`
            : html`<code class="error">${value}</code>`
      }
      ${isDefault ? html`<small class="dim">default</small>` : html`<span class="pill">set</span>`}`
  }
]

export const Page = () => {
  const load = useLoad("/admin/settings")
  const [wanted, setWanted] = useState("")
  const [only, setOnly] = useState(false)
  const matches = (/** @type {any} */ { description, isDefault, variable }) =>
    (!only || !isDefault) && `${variable} ${description}`.toLowerCase().includes(wanted.trim().toLowerCase())
  return html`<${PageHead} title="Settings" />
    <p>As the process that answers has read them at its start. A change takes effect with the next start.</p>
    <form
      class="filter"
      role="search"
      aria-label="Filter"
      onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}
    >
      <div class="field">
        <label for="settings-search">Search</label>
        <input
          id="settings-search"
          type="search"
          value=${wanted}
          onInput=${(/** @type {Event} */ event) => setWanted(/** @type {HTMLInputElement} */ (event.currentTarget).value)}
        />
      </div>
      <label class="check"
        ><input type="checkbox" checked=${only} onChange=${() => setOnly(!only)} /> Only what is set</label
      >
    </form>
    <${Section} title="In force">
      <${Loaded} load=${load} what="Reading the settings">
        ${(/** @type {any} */ answer) => {
          const rows = answer.items.filter(matches)
          return rows.length === 0
            ? html`<${Empty}>No variable matches.<//>`
            : html`<${Table}
                caption="Settings"
                columns=${columns}
                rows=${rows}
                keyOf=${(/** @type {any} */ { variable }) => variable}
              />`
        }}
      <//>
    <//>`
}
