/**
 * The part of Markdown that the runbooks are written in, as elements: headings, paragraphs, lists, code and links among the pages. Text becomes
 * text: no string is ever read as markup of HTML. What is none of these is shown as it is written.
 *
 * @import { Children } from "./html.js"
 */
import { html } from "./html.js"
import { Copy } from "./parts.js"

/**
 * @typedef {{ readonly kind: "heading", readonly text: string } | { readonly kind: "paragraph", readonly text: string }
 *   | { readonly kind: "list", readonly items: ReadonlyArray<string> } | { readonly kind: "code", readonly text: string }} Block
 */

/** A block at the beginning of the text: each expression takes its lines. A list's item goes on in lines that are indented. */
const forms = /** @type {const} */ ([
  ["code", /^```\w*\n([^]*?)\n?```(?:\n|$)/],
  ["heading", /^#+ (.*)(?:\n|$)/],
  ["list", /^((?:- .*(?:\n {2,}\S.*)*(?:\n|$))+)/],
  ["paragraph", /^((?:(?!- |#+ |```).+(?:\n|$))+|.+(?:\n|$))/]
])

/** @param {string} text */
const joined = (text) => text.trim().replaceAll(/\s*\n\s*/g, " ")

/**
 * @param {string} text
 * @returns {ReadonlyArray<Block>}
 */
export const blocksOf = (text) => {
  /** @type {Array<Block>} */
  const blocks = []
  let rest = text.replaceAll("\r\n", "\n").replace(/^\n+/, "")
  while (rest !== "") {
    for (const [kind, form] of forms) {
      const [whole, inner = ""] = form.exec(rest) ?? []
      if (whole === undefined) continue
      if (kind === "list") blocks.push({ kind, items: inner.slice(2).split(/\n- /).map(joined) })
      else blocks.push({ kind, text: kind === "code" ? inner : joined(inner) })
      rest = rest.slice(whole.length).replace(/^\n+/, "")
      break
    }
  }
  return blocks
}

/** Code between backticks, or a link. */
const spans = /`([^`]+)`|\[([^\]]+)\]\(([^)\s]+)\)/g

/**
 * A line of text. A link leads to another runbook; one to elsewhere in the repository names its file.
 *
 * @param {{ readonly text: string }} props
 */
export const Inline = ({ text }) => {
  /** @type {Array<Children>} */
  const parts = []
  let end = 0
  for (const found of text.matchAll(spans)) {
    const [whole, code, label, target = ""] = found
    parts.push(text.slice(end, found.index))
    end = found.index + whole.length
    const runbook = /^(\w+)\.md$/.exec(target)?.[1]
    if (code !== undefined) parts.push(html`<code>${code}</code>`)
    else if (runbook !== undefined) parts.push(html`<a href=${`/console/runbooks/${runbook}`}>${label}</a>`)
    else
      parts.push(html`${label} <small class="dim">(docs/${target.replace(/^\.\.\//, "").replace(/#.*$/, "")})</small>`)
  }
  return html`${[...parts, text.slice(end)]}`
}

/** @param {{ readonly of: Block }} props */
const BlockOf = ({ of }) => {
  if (of.kind === "list")
    return html`<ul>
      ${of.items.map((item) => html`<li key=${item}><${Inline} text=${item} /></li>`)}
    </ul>`
  if (of.kind === "code")
    return html`<div class="json">
      <${Copy} text=${of.text} what="commands" />
      <pre tabindex="0" role="group" aria-label="Commands">${of.text}</pre>
    </div>`
  return html`<p><${Inline} text=${of.text} /></p>`
}

/** @param {{ readonly blocks: ReadonlyArray<Block> }} props */
export const Blocks = ({ blocks }) =>
  html`${blocks.map((block, index) => html`<${BlockOf} key=${index} of=${block} />`)}`

/**
 * The parts of a page below its title: each heading with what follows it.
 *
 * @param {string} text
 */
export const sectionsOf = (text) => {
  /** @type {Array<{ readonly title: string, readonly blocks: Array<Block> }>} */
  const sections = []
  for (const block of blocksOf(text)) {
    if (block.kind === "heading") sections.push({ title: block.text, blocks: [] })
    else sections.at(-1)?.blocks.push(block)
  }
  return sections.filter(({ blocks }) => blocks.length > 0)
}
