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

/** The page has no horizontal scroll bar; a failure names what is too wide. */
export const fits = Effect.fnUntraced(function* (page: BrowserPage, what: string) {
  const { needed, wide, width } = yield* page.evaluate<Wide>(`(() => {
    const width = document.documentElement.clientWidth
    const wide = [...document.querySelectorAll("body *")]
      .filter((one) => one.getBoundingClientRect().left + one.scrollWidth > width + 1 && getComputedStyle(one).overflowX === "visible")
      .slice(0, 5).map((one) => one.outerHTML.slice(0, 200))
    return { width, needed: document.documentElement.scrollWidth, wide }
  })()`)
  assert.isAtMost(needed, width, `${what} is wider than its window: ${wide.join("\n")}`)
})
