/**
 * Markup: `html` builds preact's elements from templates. What stands in `${…}` becomes text or a property, never markup, so a hostile string
 * is shown as it is.
 *
 * @import { VNode, ComponentChildren } from "preact"
 */
import htm from "htm"
import { h } from "preact"

/** @type {(strings: TemplateStringsArray, ...values: ReadonlyArray<unknown>) => VNode} */
export const html = /** @type {any} */ (htm).bind(h)

/** @typedef {ComponentChildren} Children */
