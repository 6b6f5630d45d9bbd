/**
 * Tables that become cards on a phone, with actions in place and pages by cursor.
 *
 * @import { Children } from "./html.js"
 * @import { Action } from "./act.js"
 */
import { Fragment } from "preact"
import { useState } from "preact/hooks"
import { ActionButtons, ActionForm } from "./act.js"
import { html } from "./html.js"
import { useQuery } from "./router.js"

/**
 * @template T
 * @typedef {object} Column
 * @property {string} head
 * @property {(row: T) => Children} cell
 * @property {"number" | "wide"} [as] Figures stand at the right; a wide cell takes what is left.
 */

/**
 * Roles are given, since a browser forgets them where a table is laid out as cards.
 *
 * @template T
 * @param {{ readonly caption: string, readonly columns: ReadonlyArray<Column<T>>, readonly rows: ReadonlyArray<T>, readonly keyOf: (row: T) => string,
 *   readonly actions?: (row: T) => ReadonlyArray<Action>, readonly nameOf?: (row: T) => string, readonly class?: string }} props
 */
export const Table = ({ actions, caption, class: name = "", columns, keyOf, nameOf = keyOf, rows }) => {
  const [open, setOpen] = useState(
    /** @type {{ readonly key: string, readonly label: string, readonly action: Action } | undefined} */ (undefined)
  )
  const width = columns.length + (actions === undefined ? 0 : 1)
  return html`<div class="table">
    <table class=${name} role="table">
      <caption class="unseen">
        ${caption}
      </caption>
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map(({ as = "", head }) => html`<th key=${head} role="columnheader" scope="col" class=${as}>${head}</th>`)}
          ${actions === undefined ? null : html`<th role="columnheader" scope="col"><span class="unseen">Actions</span></th>`}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map((row) => {
          const key = keyOf(row)
          const possible = actions?.(row) ?? []
          const shown = open?.key === key ? open : undefined
          return html`<${Fragment} key=${key}>
            <tr role="row">
              ${columns.map(
                ({ as = "", cell, head }) =>
                  html`<td key=${head} role="cell" class=${as} data-head=${head}><div>${cell(row)}</div></td>`
              )}
              ${
                actions === undefined
                  ? null
                  : html`<td role="cell" class="row-actions">
                      <div class="row">
                        <${ActionButtons}
                          actions=${possible}
                          of=${nameOf(row)}
                          open=${shown?.label}
                          setOpen=${(/** @type {string | undefined} */ label) => {
                            const action = possible.find((one) => one.label === label)
                            setOpen(label === undefined || action === undefined ? undefined : { key, label, action })
                          }}
                        />
                      </div>
                    </td>`
              }
            </tr>
            ${
              shown === undefined
                ? null
                : html`<tr role="row" class="act-row">
                    <td role="cell" colspan=${width}>
                      <${ActionForm} key=${shown.label} action=${shown.action} onClose=${() => setOpen(undefined)} />
                    </td>
                  </tr>`
            }
          <//>`
        })}
      </tbody>
    </table>
  </div>`
}

/**
 * The way to the next page, and back to the first one. The browser's own way back leads to the page before.
 *
 * @param {{ readonly nextCursor: string | number | null, readonly count: number }} props
 */
export const Pager = ({ count, nextCursor }) => {
  const [query, change] = useQuery()
  const isFirst = query["cursor"] === undefined
  if (isFirst && nextCursor === null) return null
  return html`<nav class="pager" aria-label="Pages of this list">
    <button type="button" disabled=${isFirst} onClick=${() => change({ cursor: "" })}>First page</button>
    <span class="dim">${count} shown</span>
    <button type="button" disabled=${nextCursor === null} onClick=${() => change({ cursor: String(nextCursor) })}>
      Next page
    </button>
  </nav>`
}
