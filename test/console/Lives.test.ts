/** The console over a service that dies and comes back, a session that ends, ten thousand dead letters, and what is broken on purpose. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { createServer } from "node:net"
import type { AddressInfo } from "node:net"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import * as PageChecks from "../support/PageChecks.ts"
import { idAt } from "../support/SqlIds.ts"
import * as World from "./World.ts"

/** A port that is free now, so that the service comes back where it was. */
const freePort = Effect.promise(
  () =>
    new Promise<string>((resolve) => {
      const server = createServer()
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo
        server.close(() => resolve(String(port)))
      })
    })
)

Browser.describe("the console and what befalls its service", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    it.effect(
      "a service that is killed under the page: what is shown is marked as old, a form keeps its text, and goes on when it is back",
      () =>
        Effect.gen(function* () {
          const PORT = yield* freePort
          const first = yield* World.startBeside({ PORT })
          const id = yield* World.uncertainMail()
          yield* World.onPage({ url: first.url, path: "/console/mail", allowed: /ERR_|status of (401|50\d)/ }, (page) =>
            Effect.gen(function* () {
              yield* page.click("button", `It arrived mail ${id}`)
              yield* page.fill("Reason", "she has told us so")
              yield* first.signal("SIGKILL")
              yield* first.exit
              yield* page.see("Shown as it was")
              yield* page.click("button", "It arrived")
              yield* page.see("Doing it again is safe")
              // The next process knows the session: the form is open as it was, with its text.
              yield* World.startBeside({ PORT })
              yield* page.seeNoMore("Shown as it was")
              yield* page.click("button", "It arrived")
              yield* page.see("The mail is sent by your word.")
              yield* World.audited("she has told us so", { subjectId: id })
            })
          )
        }).pipe(Effect.scoped)
    )

    it.effect("a page that is opened while the service is away says so, and opens when it is back", () =>
      Effect.gen(function* () {
        const PORT = yield* freePort
        const first = yield* World.startBeside({ PORT })
        yield* World.onPage({ url: first.url, path: "/console/mail", allowed: /ERR_|status of 50\d/ }, (page) =>
          Effect.gen(function* () {
            yield* page.see("Mail")
            yield* first.signal("SIGKILL")
            yield* first.exit
            yield* page.click("link", "Runbooks")
            yield* page.see("The page opens by itself when the service is back.")
            yield* World.startBeside({ PORT })
            yield* page.seeNoMore("The page opens by itself")
            yield* eventually(
              "the page to be open",
              // It is loaded anew, and may be between two documents.
              Effect.catchDefect(
                page.evaluate<boolean>(`document.querySelector("main h1")?.textContent === "Runbooks"`),
                () => Effect.succeed(false)
              )
            )
          })
        )
      }).pipe(Effect.scoped)
    )

    it.effect("a session that is ended elsewhere leads to the form, and the decision is not made", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { url } = yield* World.startBeside()
        const id = yield* World.uncertainMail()
        yield* World.onPage({ url, path: "/console/mail" }, (page) =>
          Effect.gen(function* () {
            yield* page.click("button", `It arrived mail ${id}`)
            // As in another tab: the same cookie.
            yield* page.evaluate(`fetch("/admin/session", { method: "DELETE" }).then(() => undefined)`)
            yield* World.giveReason(page, "too late", "It arrived")
            yield* page.see("Operator's token")
            yield* page.see("Your session has ended.")
          })
        )
        assert.lengthOf(yield* sql`SELECT 1 AS one FROM operator_audit WHERE reason = 'too late'`, 0)
      }).pipe(Effect.scoped)
    )

    it.effect(
      "ten thousand dead letters are paged, grouped, previewed and retried, and the page stays small",
      () =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const { url } = yield* World.startBeside()
          yield* World.limitTopic(1_000_000)
          yield* sql`
            WITH made AS (
              SELECT n, ${sql.literal(idAt("clock_now()"))} AS event_id, gen_random_uuid()::text AS aggregate_id FROM generate_series(1, 10000) AS n),
            letters AS (
              INSERT INTO outbox_dead_letters
                (lane, seq, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id,
                 span_id, record_bytes, data, status, attempts, last_error, history, ended_at)
              SELECT n % 64, 1000000 + n, event_id, 'orders', 'OrderPlaced', 1, 'Order', aggregate_id, 1, clock_now(), repeat('0', 32), repeat('0', 16), 100,
                     '{}', 'dead', 10, CASE WHEN n % 50 = 0 THEN 'not allowed' ELSE 'the batch takes ' || n || ' bytes' END, '[]', clock_now()
              FROM made RETURNING *)
            INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, last_error, held_at)
            SELECT aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, last_error, clock_now() FROM letters`
          yield* World.onPage({ url, path: "/console/dead-letters" }, (page) =>
            Effect.gen(function* () {
              const rows = page.evaluate<number>(
                `document.querySelectorAll("table[class] tbody tr, main table tbody tr").length`
              )
              const firstId = page.evaluate<string>(
                `[...document.querySelectorAll("main table")].at(-1).querySelector("tbody code")?.title ?? ""`
              )
              yield* page.see("50 shown")
              yield* page.see("9,800")
              assert.isAtMost(yield* rows, 60, "rows of both tables")
              const newest = yield* firstId
              yield* page.click("button", "Next page")
              yield* eventually(
                "another page",
                Effect.map(firstId, (id) => id !== "" && id !== newest)
              )
              yield* page.click("button", "First page")
              yield* eventually(
                "the first page again",
                Effect.map(firstId, (id) => id === newest)
              )
              yield* page.choose("State", "dead")
              yield* page.fill("Cause", "not allowed", "searchbox")
              yield* page.press("Enter")
              yield* eventually(
                "a list of the wanted cause alone",
                page.evaluate<boolean>(`(() => {
                  const rows = [...[...document.querySelectorAll("main table")].at(-1).querySelectorAll("tbody tr")]
                  return rows.length === 50 && rows.every((row) => row.textContent.includes("not allowed"))
                })()`)
              )
              yield* page.click("button", "Retry all that match…")
              yield* page.see("200 dead events")
              yield* page.see("not allowed")
              yield* PageChecks.accessible(page, "a preview")
              yield* World.giveReason(page, "the rights are set", "Retry all that match")
              yield* page.see("200 events tried again.")
            })
          )
          const [left] = yield* sql<{ readonly n: number }>`
            SELECT count(*)::int4 AS n FROM outbox_dead_letters WHERE status = 'dead' AND seq > 1000000`
          assert.strictEqual(left?.n, 9_800)
          const audits = yield* sql`SELECT 1 AS one FROM operator_audit WHERE reason = 'the rights are set'`
          assert.lengthOf(audits, 200)
        }).pipe(Effect.scoped),
      240_000
    )

    it.effect(
      "Break it says plainly that faults are off; where they are on it arms one, and the sums agree afterwards",
      () =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const off = yield* World.startBeside()
          yield* World.outboxDeadLetter(off.url)
          const isNotHere = /status of 404 .*\/admin\/(faults|gateway)/
          yield* World.onPage({ url: off.url, path: "/console/break-it", allowed: isNotHere }, (page) =>
            Effect.gen(function* () {
              yield* page.see("Faults are switched off.")
              yield* page.see("FAULTS=on npm start")
              yield* page.see("This service charges at GATEWAY_URL")
              yield* page.see("An event waits for a decision, and nothing is lost.")
            })
          )
          yield* off.signal("SIGTERM")
          yield* off.exit
          yield* sql`TRUNCATE orders, payments, order_lines, outbox_events, outbox_dead_letters, outbox_holds, outbox_parked CASCADE`

          // Beside its own sandbox.
          const { url } = yield* World.start({ FAULTS: "on", GATEWAY_TIMEOUT_MILLIS: "2000" })
          yield* World.onPage({ url, path: "/console/break-it" }, (page) =>
            Effect.gen(function* () {
              yield* page.see("No order was placed in the last hour.")
              yield* page.click("button", "Arm pay.before-commit")
              yield* page.choose("What happens", "delay")
              yield* page.fill("For how long, in ms", "50", "spinbutton")
              yield* World.giveReason(page, "see it wait", "Arm")
              yield* page.see("1 time left of 50 ms")
              yield* World.audited("see it wait", {
                action: "arm",
                subject: "fault point",
                subjectId: "pay.before-commit"
              })
              yield* page.click("button", "Change…")
              yield* page.choose("Behaviour", "error-after")
              yield* page.fill("For how many requests", "1", "spinbutton")
              yield* World.giveReason(page, "see nobody charged twice", "Change")
              yield* page.see("The gateway is error-after now.")

              const placed = yield* World.ask(url, "/orders", World.newOrder())
              yield* World.pay(url, placed.json.id)
              yield* page.see("All sums agree.")
              yield* page.seeNoMore("1 time left of 50 ms")
              // The story in the order of time, and how it ends.
              yield* page.see("waits 50 ms at pay.before-commit")
              const told = (yield* page.text).split("What happened")[1] ?? ""
              assert.match(
                told,
                /arm fault point pay\.before-commit[^]*see it wait[^]*A fault strikes: the process \d+@\S+ waits 50 ms at pay\.before-commit[^]*All sums agree\./
              )
              yield* PageChecks.accessible(page, "break it")

              yield* page.click("button", "Arm mail.after-send")
              yield* World.giveReason(page, "a mistake", "Arm")
              yield* page.click("button", "Clear mail.after-send")
              yield* World.giveReason(page, "it was a mistake", "Clear")
              yield* page.see("mail.after-send is cleared.")
              yield* World.audited("it was a mistake", { action: "clear" })
            })
          )
        }).pipe(Effect.scoped)
    )
  })
})
