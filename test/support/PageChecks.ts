/** Checks that every page of the console has to pass: axe, and nothing wider than the window. */
import { assert } from "@effect/vitest"
import axe from "axe-core"
import { Effect } from "effect"
import type { BrowserPage } from "./Browser.ts"

interface Violation {
  readonly id: string
  readonly help: string
  readonly nodes: ReadonlyArray<{ readonly html: string; readonly failureSummary?: string }>
}

/** axe finds nothing, with all its rules, in the theme of the page. Its script comes through DevTools: the page's policy stays as it is. */
export const accessible = Effect.fnUntraced(function* (page: BrowserPage, what: string) {
  yield* page.evaluate(`${axe.source}; undefined`)
  const violations = yield* page.evaluate<ReadonlyArray<Violation>>(
    "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations)"
  )
  const told = violations.flatMap(({ help, id, nodes }) =>
    nodes.map(({ failureSummary, html }) => `${id}: ${help}\n  ${html}\n  ${failureSummary}`)
  )
  assert.isEmpty(told, `axe at ${what}: ${told.join("\n")}`)
})

interface Wide {
  readonly width: number
  readonly needed: number
  readonly wide: ReadonlyArray<string>
}

/** Neither the page nor a table has a horizontal scroll bar; a failure names what is too wide. */
export const fits = Effect.fnUntraced(function* (page: BrowserPage, what: string) {
  const { needed, wide, width } = yield* page.evaluate<Wide>(`(() => {
    const width = document.documentElement.clientWidth
    const wide = [...document.querySelectorAll("body *")]
      .filter((one) => one.getBoundingClientRect().left + one.scrollWidth > width + 1 && getComputedStyle(one).overflowX === "visible" ||
        one.matches(".table") && one.scrollWidth > one.clientWidth + 1)
      .slice(0, 5).map((one) => one.outerHTML.slice(0, 200))
    return { width, needed: document.documentElement.scrollWidth, wide }
  })()`)
  const tables = wide.filter((html) => html.startsWith('<div class="table"'))
  assert.deepStrictEqual(tables, [], `${what}: a table is wider than its card`)
  assert.isAtMost(needed, width, `${what} is wider than its window: ${wide.join("\n")}`)
})
