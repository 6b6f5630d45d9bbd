/** The overview as it moves: its stream, a service that dies and comes back, the tabs of one browser, pauses in place. */
import { assert, layer } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import * as PageChecks from "../support/PageChecks.ts"
import * as World from "./World.ts"

/** Refusals of a service that is away, as the browser writes them to its console. */
const away = /ERR_CONNECTION|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE|ERR_NETWORK|Failed to load resource/

const live = `document.querySelector("header .live")?.textContent ?? ""`

Browser.describe("the overview, live", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    it.effect(
      "figures come over the stream, the lines are drawn, axe finds nothing, and nothing is wider than a phone",
      () =>
        Effect.gen(function* () {
          const { url } = yield* World.start()
          for (const [theme, width] of [
            ["light", 1_400],
            ["dark", 820],
            ["dark", 360]
          ] as const) {
            yield* World.onPage({ url, path: "/console", theme, width }, (page) =>
              Effect.gen(function* () {
                yield* page.see("Nothing waits for a decision.")
                // Before the second look at the broker a rate is not known, and nothing else is claimed.
                assert.notMatch(yield* page.text, /\b0 consumers|does not tell/)
                yield* page.see("4 consumers")
                yield* page.see("live ·")
                yield* page.see("Topic orders")
                assert.strictEqual(yield* page.evaluate<number>("document.querySelectorAll('.tile canvas').length"), 6)
                const what = `the overview in ${theme} at ${width} px`
                yield* PageChecks.accessible(page, what)
                yield* PageChecks.fits(page, what)
              })
            )
          }
        }).pipe(Effect.scoped)
    )

    it.effect(
      "a service that dies is said to be away, a half-typed name stays, and the page goes on when it is back",
      () =>
        Effect.gen(function* () {
          const first = yield* Scope.make()
          const { exit, signal, url } = yield* Scope.provide(World.start(), first)
          yield* World.onPage({ url, path: "/console", allowed: away }, (page) =>
            Effect.gen(function* () {
              yield* page.see("live ·")
              yield* page.see("Topic orders")
              yield* page.evaluate(`document.querySelector("details.who summary").click()`)
              yield* page.fill("Your name, for the audit", "half a na")
              yield* signal("SIGKILL")
              yield* exit
              yield* page.see("The service does not answer.")
              yield* page.see("trying again")
              // The header claims nothing of now either.
              yield* page.see("state not known")
              yield* page.see("decisions not known")
              // The header was drawn anew around the field.
              assert.strictEqual(yield* page.evaluate(`document.querySelector("#operator-name").value`), "half a na")
              // The last figures stay in sight, with their time.
              yield* page.see("What is shown below was so at")
              yield* page.see("Topic orders")
              // The session is known to the new process, too: the page goes on where it was.
              yield* World.start({ PORT: new URL(url).port })
              yield* page.see("live ·")
              yield* page.seeNoMore("The service does not answer.")
              yield* page.see("nothing to decide")
              yield* page.seeNoMore("state not known")
            })
          )
          yield* Scope.close(first, Exit.void)
        }).pipe(Effect.scoped)
    )

    it.effect("a filter that is half typed stays while the list is read anew, and follows the address", () =>
      Effect.gen(function* () {
        const { url } = yield* World.startBeside()
        yield* World.onPage({ url, path: "/console/dead-letters" }, (page) =>
          Effect.gen(function* () {
            const looks = page.evaluate<number>(
              `performance.getEntriesByType("resource").filter(({ name }) => name.includes("/admin/outbox/events")).length`
            )
            const cause = page.evaluate<string>(`document.querySelector("input[name=cause]").value`)
            yield* page.see("No event is dead or retrying.")
            yield* page.fill("Cause", "half a cau", "searchbox")
            const before = yield* looks
            yield* eventually(
              "the list read anew",
              Effect.map(looks, (now) => now >= before + 2)
            )
            assert.strictEqual(yield* cause, "half a cau")
            yield* page.press("Enter")
            yield* page.see("No event is dead or retrying and matches.")
            yield* page.click("button", "Clear")
            yield* page.seeNoMore("and matches")
            assert.strictEqual(yield* cause, "")
          })
        )
      }).pipe(Effect.scoped)
    )

    it.effect("tabs of a browser read one stream, and the next one goes on with it when its reader is closed", () =>
      Effect.gen(function* () {
        const { url } = yield* World.start()
        yield* World.onPage({ url, path: "/console" }, (page) =>
          Effect.gen(function* () {
            yield* page.see("live ·")
            const second = yield* Effect.promise(() => page.page.browserContext().newPage())
            const asked: Array<string> = []
            second.on("request", (request) => asked.push(request.url()))
            yield* Effect.promise(() => second.goto(`${url}/console/orders`, { waitUntil: "domcontentloaded" }))
            const isLive = eventually(
              "the second tab to be live",
              Effect.promise(async () => ((await second.evaluate(live)) as string).startsWith("live ·"))
            )
            const streams = () => asked.filter((one) => one.includes("/admin/stream"))
            yield* isLive
            assert.deepStrictEqual(streams(), [])
            yield* Effect.promise(() => page.page.close())
            yield* eventually(
              "the second tab to read the stream from the last sample on",
              Effect.sync(() => streams().some((one) => /\?after=\d+$/.test(one)))
            )
            yield* isLive
          })
        )
      }).pipe(Effect.scoped)
    )

    it.effect(
      "a consumer and a topic are paused and resumed in place, each once, and the page shows it without being asked",
      () =>
        Effect.gen(function* () {
          const { url } = yield* World.start()
          yield* World.onPage({ url, path: "/console" }, (page) =>
            Effect.gen(function* () {
              yield* page.click("button", "Pause billing")
              yield* page.see("This consumer reads nothing until it is resumed")
              yield* page.fill("Reason", "the ledger is moved")
              yield* Effect.promise(() =>
                page.page.$eval(".act-form button.primary", (button) => {
                  const element = button as unknown as { readonly click: () => void }
                  element.click()
                  element.click()
                })
              )
              yield* page.see("The consumer billing is paused.")
              yield* World.audited("the ledger is moved", { actor: "admin", action: "pause", subjectId: "billing" })
              yield* page.see("the ledger is moved")
              yield* page.click("button", "Resume billing")
              // Enter sends it: the list of pauses has a button of this name, too.
              yield* page.fill("Reason", "the ledger is there")
              yield* page.press("Enter")
              yield* World.audited("the ledger is there", { actor: "admin", action: "resume", subjectId: "billing" })
              yield* page.click("button", "Pause orders…")
              yield* World.giveReason(page, "the broker is repaired", "Pause topic orders")
              yield* World.audited("the broker is repaired", { actor: "admin", action: "pause", subjectId: "orders" })
              yield* page.click("button", "Resume orders…")
              yield* page.press("Escape")
              yield* page.see("Resume orders…")
            })
          )
        }).pipe(Effect.scoped)
    )

    it.effect("the lanes are reached by the keyboard, and are there as a table", () =>
      Effect.gen(function* () {
        const { url } = yield* World.start()
        yield* World.onPage({ url, path: "/console" }, (page) =>
          Effect.gen(function* () {
            yield* page.see("Topic orders")
            yield* Effect.promise(() => page.page.focus(".lanes button[tabindex='0']"))
            yield* page.press("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowDown")
            const focused = yield* page.evaluate<string>("document.activeElement.textContent")
            assert.match(focused, /^\s*Lane 32, owned by \d+@/)
            yield* page.click("button", "As a table")
            assert.strictEqual(yield* page.evaluate<number>("document.querySelectorAll('.topic tbody tr').length"), 64)
          })
        )
      }).pipe(Effect.scoped)
    )
  })
})
