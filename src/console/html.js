/**
 * Markup: `html` builds preact's elements from templates. What stands in `${…}` becomes text or a property, never markup, so a hostile string
 * is shown as it is.
 *
 * @import { VNode, ComponentChildren } from "preact"
 */
import htm from "htm"
import { h } from "preact"

/** @type {(strings: ReadonlyArray<string>, ...values: ReadonlyArray<unknown>) => VNode} */
const build = /** @type {any} */ (htm).bind(h)

/** htm knows a template by its array of strings: the normal form of each is made once. */
const normalForms = /** @type {WeakMap<TemplateStringsArray, ReadonlyArray<string>>} */ (new WeakMap())

/**
 * A line break is a blank, as in HTML; htm alone would drop it. So a formatter may break a line wherever HTML lets it.
 *
 * @param {TemplateStringsArray} strings
 */
const normal = (strings) => {
  const known = normalForms.get(strings)
  if (known !== undefined) return known
  const last = strings.length - 1
  const form = strings.map((text, i) => {
    const begun = i === 0 ? text.replace(/^\s*\n\s*/, "") : text
    const ended = i === last ? begun.replace(/\s*\n\s*$/, "") : begun
    return ended.replaceAll(/\s*\n\s*/g, " ")
  })
  normalForms.set(strings, form)
  return form
}

/**
 * @param {TemplateStringsArray} strings
 * @param {ReadonlyArray<unknown>} values
 * @returns {VNode}
 */
export const html = (strings, ...values) => build(normal(strings), ...values)

/** @typedef {ComponentChildren} Children */
