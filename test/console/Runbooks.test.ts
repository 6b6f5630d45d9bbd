/** The runbooks in the console: where an alert, a wait and a decision lead to. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { root, rules } from "../docs/AlertRules.ts"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import * as PageChecks from "../support/PageChecks.ts"
import * as World from "./World.ts"

/** What a person reads of a page in Markdown, without blanks. */
const read = (text: string) =>
  text
    .replaceAll(/^```\w*$/gm, "")
    .replaceAll(/^(?:#+|-) /gm, "")
    .replaceAll("`", "")
    .replaceAll(/\[([^\]]+)\]\(\w+\.md\)/g, "$1")
    .replaceAll(/\[([^\]]+)\]\(\.\.\/([^)#]+)[^)]*\)/g, "$1(docs/$2)")
    .replaceAll(/\s/g, "")

const shown = (page: Browser.BrowserPage) =>
  page.evaluate<string>(`(document.querySelector("main")?.textContent ?? "").replaceAll(/\\s/g, "")`)

Browser.describe("the runbooks in the console", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    it.effect(
      "each alert's runbook_url opens there, word for word, and links lead from one to the next",
      () =>
        Effect.gen(function* () {
          const { url } = yield* World.start()
          yield* World.onPage({ url, path: "/console/runbooks" }, (page) =>
            Effect.gen(function* () {
              for (const { alert, annotations } of rules) {
                const file = annotations["runbook_url"]!
                yield* page.visit(`/console/runbooks/${Path.basename(file)}`)
                const text = read(readFileSync(Path.join(root, file), "utf8"))
                const expected = text.replace(alert, `${alert}Allrunbooks`)
                yield* eventually(
                  `the page ${alert}`,
                  Effect.map(shown(page), (found) => found === expected)
                )
              }
              yield* page.visit("/console/runbooks/DiskAlmostFull")
              yield* page.click("link", "WalRetained")
              yield* page.see("A replication slot holds more than five gigabytes")
              yield* page.visit("/console/runbooks/constructor")
              yield* page.see("There is no runbook of this name.")
              yield* page.see("PaymentsManual")
            })
          )
        }).pipe(Effect.scoped),
      240_000
    )

    it.effect("a wait of the verdict and a decision lead to theirs, and axe finds nothing on the pages", () =>
      Effect.gen(function* () {
        const { url } = yield* World.start({ INBOX_MAX_ATTEMPTS: "1" })
        yield* World.inboxDeadLetters()
        for (const [theme, width] of [
          ["light", 1_400],
          ["dark", 360]
        ] as const) {
          yield* World.onPage({ url, path: "/console", theme, width }, (page) =>
            Effect.gen(function* () {
              yield* page.see("billing misses an event")
              const links = (within: string) =>
                page.evaluate<number>(
                  `document.querySelectorAll("${within} a[href='/console/runbooks/InboxGaps']").length`
                )
              assert.strictEqual(yield* links(".waits"), 4)
              assert.strictEqual(yield* links(".needs"), 4)
              yield* PageChecks.accessible(page, `the overview in ${theme} at ${width} px`)
              yield* PageChecks.fits(page, `the overview in ${theme} at ${width} px`)
              for (const [name, shows] of [
                ["", "What it means"],
                ["/PaymentsManual", "How to see that it is mended"],
                ["/OutboxStuckTasks", "How to see that it is mended"]
              ] as const) {
                yield* page.visit(`/console/runbooks${name}`)
                yield* page.see(shows)
                yield* PageChecks.accessible(page, `runbooks${name} in ${theme} at ${width} px`)
                yield* PageChecks.fits(page, `runbooks${name} in ${theme} at ${width} px`)
              }
            })
          )
        }
      }).pipe(Effect.scoped)
    )
  })
})
