/** A bar of filters that are kept in the address. */
import { useId, useLayoutEffect, useRef } from "preact/hooks"
import { html } from "./html.js"
import { useQuery } from "./router.js"

/**
 * @typedef {object} FilterField
 * @property {string} name Of the query's value.
 * @property {string} label
 * @property {ReadonlyArray<string | { readonly value: string, readonly label: string }>} [options] A choice; without it a line of text.
 * @property {string} [placeholder]
 * @property {string} [any] The words for no choice.
 */

/** How far lists look back, in seconds. */
export const sinceOptions = [
  { value: "600", label: "10 minutes" },
  { value: "3600", label: "1 hour" },
  { value: "86400", label: "1 day" },
  { value: "604800", label: "7 days" }
]

/**
 * A line of text that shows `value` whenever that changes. As a property it would take back what is half typed each time the page is drawn anew.
 *
 * @param {{ readonly value: string, readonly [property: string]: unknown }} props
 */
const Line = ({ value, ...props }) => {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null))
  useLayoutEffect(() => {
    if (input.current !== null) input.current.value = value
  }, [value])
  return html`<input ref=${input} type="search" ...${props} />`
}

/**
 * Choices apply at once, lines of text on Enter or when they are left.
 *
 * @param {{ readonly fields: ReadonlyArray<FilterField>, readonly label?: string }} props
 */
export const Filter = ({ fields, label = "Filter" }) => {
  const id = useId()
  const [query, change] = useQuery()
  const isSet = fields.some(({ name }) => query[name] !== undefined)
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault()
    const data = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget))
    const textOf = (/** @type {string} */ name) => {
      const value = data.get(name)
      return typeof value === "string" ? value.trim() : ""
    }
    change(Object.fromEntries(fields.map(({ name }) => [name, textOf(name)])))
  }
  const changeOne = (/** @type {string} */ name) => (/** @type {Event} */ event) => {
    const value = /** @type {HTMLInputElement} */ (event.currentTarget).value.trim()
    if (value !== (query[name] ?? "")) change({ [name]: value })
  }
  return html`<form class="filter" role="search" aria-label=${label} onSubmit=${submit}>
    ${fields.map(
      ({ any = "any", label, name, options, placeholder }) =>
        html`<div class="field" key=${name}>
          <label for=${`${id}-${name}`}>${label}</label>
          ${
            options === undefined
              ? html`<${Line}
                  id=${`${id}-${name}`}
                  name=${name}
                  value=${query[name] ?? ""}
                  placeholder=${placeholder}
                  spellcheck=${false}
                  onChange=${changeOne(name)}
                />`
              : html`<select id=${`${id}-${name}`} name=${name} value=${query[name] ?? ""} onChange=${changeOne(name)}>
                  <option value="">${any}</option>
                  ${options
                    .map((option) => (typeof option === "string" ? { value: option, label: option } : option))
                    .map(({ label, value }) => html`<option key=${value} value=${value}>${label}</option>`)}
                </select>`
          }
        </div>`
    )}
    <button class="unseen-until-focus">Apply</button>
    <button
      type="button"
      disabled=${!isSet}
      onClick=${() => change(Object.fromEntries(fields.map(({ name }) => [name, ""])))}
    >
      Clear
    </button>
  </form>`
}
