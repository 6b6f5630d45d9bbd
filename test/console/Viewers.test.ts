/** A viewer's console: every page is there to read, and nothing on it changes anything. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import * as World from "./World.ts"

/** Buttons that open the form of a decision. */
const decisions =
  "[...document.querySelectorAll('main button')].filter(({ textContent }) => textContent.trim().endsWith('…'))"
/** Presses every button of a page, but those that copy an id: their notices would push out the others. */
const pressAll = "document.querySelectorAll('main button:not(.copy)').forEach((button) => button.click())"
/** Each change of the operators' API, with the answer to this page's session. Signing in and out is for everybody. */
const changeAll = `fetch("/openapi.json").then((answer) => answer.json()).then(({ paths }) => Promise.all(
  Object.entries(paths).flatMap(([path, methods]) => Object.keys(methods)
    .filter((method) => !["get", "head"].includes(method) && path.startsWith("/admin/") && path !== "/admin/session")
    .map(async (method) => {
      const headers = { "content-type": "application/json" }
      const { status } = await fetch(path.replaceAll(/{[^}]*}/g, "x"), { method: method.toUpperCase(), headers, body: "{}" })
      return \`\${method} \${path} \${status}\`
    }))))`

Browser.describe("a viewer's console", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    it.effect(
      "a viewer sees every page, is offered no decision, and changes nothing whatever is pressed",
      () =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const { entry, key } = ApiKeys.draw("wall", "viewer")
          const { url } = yield* World.startBeside({ API_KEYS: entry })
          const { paymentId } = yield* World.manualPayment(url)
          const [letter, record] = [yield* World.outboxDeadLetter(url), yield* World.inboxDeadLetters()]
          yield* World.uncertainMail()
          const taskId = yield* World.deadTask()
          const pending = (yield* World.ask(url, "/orders", World.newOrder())).json.id
          // Faults, and a sandbox gateway of its own: then Break it has all its parts.
          const breakable = yield* World.start({ API_KEYS: entry, FAULTS: "on" })
          const pages: ReadonlyArray<readonly [path: string, shows: string, hasDecisions: boolean]> = [
            ["", "billing", true],
            ["/orders", "Place and pay", false],
            [`/orders/${pending}`, "OrderPlaced", false],
            ["/events", "OrderPlaced", false],
            [`/events/${letter.eventId}`, "OrderPlaced", false],
            ["/dead-letters", "Retry all that match", true],
            ["/dead-letters?side=inbox", "Retry all that match", true],
            [`/dead-letters/outbox/${letter.eventId}`, "What is known", true],
            [`/dead-letters/inbox/billing/${record.gapEvent}`, "What is known", true],
            ["/payments", "Ask the gateway", true],
            [`/payments/${paymentId}`, "What our books say", true],
            ["/tasks", "Retry all dead ones that match", true],
            [`/tasks/${taskId}`, "What happened", true],
            ["/mail", "It arrived", true],
            ["/audit", "No entry matches.", false],
            ["/runbooks", "PaidOnceDown", false],
            ["/settings", "DATABASE_URL", false],
            ["/break-it", "Over all", true]
          ]
          const asked: Array<string> = []
          for (const service of [url, breakable.url]) {
            const allowed = /status of 403|status of 404 .*\/admin\/(faults|gateway)/
            yield* World.onPage({ url: service, path: "/console", as: key, allowed }, (page) =>
              Effect.gen(function* () {
                yield* page.see("viewer: ")
                page.page.on("request", (request) => {
                  if (request.method() !== "GET") asked.push(`${request.method()} ${request.url()}`)
                })
                for (const [path, shows, hasDecisions] of service === url ? pages : pages.slice(-1)) {
                  yield* page.visit(`/console${path}`)
                  yield* page.see(shows)
                  if (hasDecisions) {
                    yield* eventually(
                      `the decisions of /console${path}`,
                      Effect.map(page.evaluate<number>(`${decisions}.length`), (count) => count > 0)
                    )
                  }
                  const offered = `${decisions}.filter(({ ariaDisabled }) => ariaDisabled !== "true").map(({ textContent }) => textContent.trim())`
                  assert.deepStrictEqual(yield* page.evaluate(offered), [], path)
                  yield* page.evaluate(pressAll)
                  if (hasDecisions) yield* page.see("Your token may only read.")
                  assert.strictEqual(yield* page.evaluate("document.querySelectorAll('.act-form').length"), 0, path)
                }
                assert.deepStrictEqual(asked, [])

                const answers = yield* page.evaluate<ReadonlyArray<string>>(changeAll)
                assert.isAbove(answers.length, 15)
                assert.deepStrictEqual(
                  answers.filter((answer) => !answer.endsWith(" 403")),
                  []
                )
                asked.length = 0
              })
            )
          }
          assert.deepStrictEqual(yield* sql`SELECT * FROM operator_audit`, [])
          assert.strictEqual(
            yield* World.one(`SELECT status AS value FROM payments WHERE id = '${paymentId}'`),
            "manual"
          )
          assert.strictEqual(yield* World.one(`SELECT status AS value FROM orders WHERE id = '${pending}'`), "pending")
        }).pipe(Effect.scoped),
      240_000
    )
  })
})
