/** A payment travels: an order is placed and paid in the console and followed to its effects, what holds it is resumed in place, and the events are found. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import * as PageChecks from "../support/PageChecks.ts"
import * as World from "./World.ts"

/** A declined payment is an answer 402, which the browser writes to its console. */
const declined = /status of 402/

/** The words of the hops' states on the page, the newest change of the order first. */
const effects = (page: Browser.BrowserPage) =>
  page.evaluate<ReadonlyArray<string>>(
    `[...document.querySelectorAll(".leg")].map((leg) => [...leg.querySelectorAll(".effect")].map((one) => one.className.replace("effect ", "")).join(" "))`
  )

const allDone = (page: Browser.BrowserPage, legs: number) =>
  eventually(
    "every effect to be done",
    Effect.map(
      effects(page),
      (found) => found.length === legs && found.every((states) => states === "done done done done")
    )
  )

const count = (from: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.orDie(
      Effect.map(sql.unsafe<{ readonly n: number }>(`SELECT count(*)::int4 AS n FROM ${from}`), ([row]) => row!.n)
    )
  )

Browser.describe("a payment travels", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    it.effect("an order that is placed and paid in the console is followed to each consumer and to its mail", () =>
      Effect.gen(function* () {
        const { url } = yield* World.start()
        yield* World.onPage({ url, path: "/console/orders" }, (page) =>
          Effect.gen(function* () {
            yield* page.click("button", "Place and pay an order")
            yield* page.see("25.00 EUR")
            yield* page.see("Paid · version 2 · OrderPaid")
            yield* allDone(page, 2)
            yield* page.see("Mail")
            // Each step has its time to the millisecond, and what it took.
            const shown = page.evaluate<ReadonlyArray<string>>(
              `[...document.querySelectorAll(".hop-time")].map(({ textContent }) => textContent.trim().replaceAll(/\\s+/g, " "))`
            )
            // The mail is on its way when all consumers are done.
            yield* eventually(
              "each step to have its time",
              Effect.map(shown, ({ length }) => length === 8 + 11)
            )
            const times = yield* shown
            for (const time of times) assert.match(time, /^\d\d:\d\d:\d\d\.\d{3}( \+[\d.]+ m?s( after .+)?)?$/)
            assert.strictEqual(yield* count("orders WHERE status = 'paid'"), 1)
            assert.strictEqual(yield* count("payments"), 1)
            for (const width of [1_400, 360]) {
              yield* Effect.promise(() => page.page.setViewport({ width, height: 900 }))
              yield* PageChecks.accessible(page, `an order at ${width} px`)
              yield* PageChecks.fits(page, `an order at ${width} px`)
            }
            yield* page.click("button", "Refund…")
            yield* page.see("The whole amount of 25.00 EUR is given back")
            assert.strictEqual(yield* count("operator_audit"), 0)
            yield* World.giveReason(page, "it came too late", "Refund")
            yield* World.audited("it came too late", { actor: "admin", action: "refund", subject: "order" })
            yield* page.see("Refunded · version 3 · OrderRefunded")
            yield* allDone(page, 3)
          })
        )
      }).pipe(Effect.scoped)
    )

    it.effect("an event that waits says why and what frees it, and is freed in place", () =>
      Effect.gen(function* () {
        const { url } = yield* World.start()
        const paused = yield* World.ask(url, "/admin/topics/orders/pause", { reason: "the broker is repaired" })
        assert.strictEqual(paused.status, 200, paused.text)
        const placed = yield* World.ask(
          url,
          "/orders",
          World.newOrder(1, `<img src=x onerror="document.title='pwned'">`)
        )
        yield* World.onPage({ url, path: `/console/orders/${placed.json.id}` }, (page) =>
          Effect.gen(function* () {
            yield* page.see("has paused the topic orders: the broker is repaired")
            // A hostile name is text.
            yield* page.see("<img src=x onerror=")
            assert.notInclude(yield* page.evaluate<string>("document.title"), "pwned")
            assert.deepStrictEqual(yield* effects(page), ["later later later later"])
            yield* page.click("button", "Resume orders…")
            yield* page.see("goes on where it stopped")
            yield* World.giveReason(page, "it is repaired", "Resume topic orders")
            yield* World.audited("it is repaired", { actor: "admin", action: "resume", subjectId: "orders" })
            yield* allDone(page, 1)
          })
        )
      }).pipe(Effect.scoped)
    )

    it.effect("a consumer that misses a version of the order goes on without it, from the order's page", () =>
      Effect.gen(function* () {
        const { url } = yield* World.startBeside()
        const orderId = yield* World.orderWithGap(url)
        yield* World.onPage({ url, path: `/console/orders/${orderId}` }, (page) =>
          Effect.gen(function* () {
            yield* page.see("Version 2 of its aggregate has not come")
            yield* PageChecks.accessible(page, "an order with gaps")
            yield* page.click("button", "Skip for billing")
            yield* page.see("billing goes on with version 3")
            yield* page.see("Should it still come, it is not applied.")
            assert.strictEqual(yield* count(`operator_audit WHERE action = 'skip'`), 0)
            yield* World.giveReason(page, "the decline is known", "Skip")
            yield* page.see("billing goes on without the missing versions.")
            yield* World.audited("the decline is known", { action: "skip", subject: "inbox event" })
            yield* eventually(
              "billing to be done",
              Effect.map(effects(page), ([newest]) => newest === "done done done done")
            )
            assert.strictEqual(yield* page.count({ role: "button", name: "Skip for billing" }), 0)
          })
        )
      }).pipe(Effect.scoped)
    )

    it.effect("a declined payment is a change of its own, and another method pays the order", () =>
      Effect.gen(function* () {
        const { url } = yield* World.start()
        yield* World.onPage({ url, path: "/console/orders", allowed: declined }, (page) =>
          Effect.gen(function* () {
            yield* page.choose("The payment", "pm_declined")
            yield* page.click("button", "Place and pay an order")
            yield* page.see("The gateway declined the payment.")
            yield* page.see("PaymentDeclined")
            yield* page.choose("The payment", "pm_ok")
            yield* page.click("button", "Pay")
            yield* page.see("Paid · version 3 · OrderPaid")
            yield* allDone(page, 3)
          })
        )
      }).pipe(Effect.scoped)
    )

    it.effect("load is made of real orders, goes on from page to page, and stops when the page is hidden", () =>
      Effect.gen(function* () {
        const { url } = yield* World.start()
        yield* World.onPage({ url, path: "/console/orders" }, (page) =>
          Effect.gen(function* () {
            yield* page.see("Make load")
            yield* Effect.promise(() => page.page.focus("#load-rate"))
            yield* page.press("ArrowRight", "ArrowRight", "ArrowRight")
            yield* page.click("link", "Overview")
            yield* page.see("load 3 / s")
            yield* eventually(
              "orders of the load",
              Effect.map(count("orders WHERE customer_id = 'console' AND status = 'paid'"), (paid) => paid >= 3)
            )
            yield* page.evaluate(
              `Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`
            )
            yield* page.seeNoMore("load 3 / s")
            yield* page.evaluate(
              `delete document.visibilityState; document.dispatchEvent(new Event("visibilitychange"))`
            )
            yield* page.click("link", "Orders")
            yield* page.see("It stopped when this page was hidden.")
          })
        )
      }).pipe(Effect.scoped)
    )

    it.effect("events are searched by what is known of them, and one tells its payload and its story", () =>
      Effect.gen(function* () {
        const { url } = yield* World.start()
        const customerId = `<b>${"W".repeat(150)}</b>`
        const [mine, other] = [
          yield* World.ask(url, "/orders", World.newOrder(1, customerId)),
          yield* World.ask(url, "/orders", World.newOrder())
        ]
        const rows = (page: Browser.BrowserPage) =>
          page.evaluate<number>("document.querySelectorAll('main tbody tr').length")
        for (const [theme, width] of [
          ["light", 1_400],
          ["dark", 360]
        ] as const) {
          yield* World.onPage({ url, path: "/console/events", theme, width }, (page) =>
            Effect.gen(function* () {
              yield* page.see("The last ten minutes")
              yield* eventually(
                "both orders' events",
                Effect.map(rows(page), (n) => n >= 2)
              )
              yield* page.fill("Order's id", other.json.id, "searchbox")
              yield* page.press("Enter")
              yield* eventually(
                "one order's events",
                Effect.map(rows(page), (n) => n === 1)
              )
              // The search has an address.
              yield* page.visit(`/console/events?customerId=${encodeURIComponent(customerId)}`)
              yield* eventually(
                "one customer's events",
                Effect.map(rows(page), (n) => n === 1)
              )
              yield* PageChecks.accessible(page, `events in ${theme} at ${width} px`)
              yield* PageChecks.fits(page, `events in ${theme} at ${width} px`)
              const event = yield* page.evaluate<string>(
                `document.querySelector("main a[href^='/console/events/']").getAttribute("href")`
              )
              yield* page.visit(event)
              yield* page.see("Its story")
              yield* page.see(mine.json.id.slice(0, 13))
              yield* page.see(`"customerId": "<b>WWW`)
              yield* page.see("traceparent")
              yield* PageChecks.accessible(page, `an event in ${theme} at ${width} px`)
              yield* PageChecks.fits(page, `an event in ${theme} at ${width} px`)
            })
          )
        }
      }).pipe(Effect.scoped)
    )
  })
})
