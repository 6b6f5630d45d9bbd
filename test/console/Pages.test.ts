/** What holds for every page of the console: axe, both themes, a phone's width, the keyboard alone, and hostile text in every field. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import * as PageChecks from "../support/PageChecks.ts"
import * as World from "./World.ts"

/** The pages of lists and tools, each with a text that it shows once its data is there. */
const pages: ReadonlyArray<readonly [path: string, shows: string]> = [
  ["dead-letters", "Retry all that match"],
  ["dead-letters?side=inbox", "Retry all that match"],
  ["payments", "Ask the gateway"],
  ["events", "OrderPlaced"],
  ["tasks", "Retry all dead ones that match"],
  ["mail", "It arrived"],
  ["reconciliation", "Check now"],
  ["doctor", "Look again"],
  ["audit", "seeded by the test"],
  ["settings", "DATABASE_URL"],
  ["runbooks", "PaymentsManual"],
  ["break-it", "Over all"]
]

/** Break it asks for what this service does not have: faults, and a sandbox of its own. */
const isNotHere = /status of 404 .*\/admin\/(faults|gateway)/

/** Markup, a change of direction, control characters, a word without an end, a formula, and an emoji of several code points. */
const hostile = `<img src=x onerror="document.title='pwned'"> \u202egnp.exe\u2066 \u0007\u001b[2J ${"W".repeat(300)} =1+1 {{7*7}} 👩‍👩‍👧`

Browser.describe("every page of the console", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    /** A service with something on each page, and a detail page of each kind. */
    const seeded = Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { url } = yield* World.startBeside()
      yield* World.inboxDeadLetters(hostile)
      const letter = yield* World.outboxDeadLetter(url, hostile.slice(0, 190).replaceAll(/\p{C}/gu, ""))
      const { paymentId } = yield* World.manualPayment(url)
      yield* World.uncertainMail(hostile.slice(0, 200).replaceAll(/\p{Cc}/gu, ""))
      const taskId = yield* World.deadTask(hostile)
      yield* sql`
        UPDATE outbox_dead_letters SET last_error = ${hostile}, history = jsonb_build_array(jsonb_build_object('attempt', 1, 'at', '2026-01-01T00:00:00.000Z', 'error', ${hostile}::text))`
      yield* sql`
        INSERT INTO operator_audit (at, actor, action, reason, subject, subject_id, before, after)
        VALUES (clock_now(), ${hostile}, 'retry', ${`seeded by the test ${hostile}`}, 'task', ${hostile},
                ${JSON.stringify({ state: hostile })}::text::jsonb, ${JSON.stringify({ [hostile]: [hostile] })}::text::jsonb)`
      const [record] = yield* sql<{ readonly id: string }>`
        SELECT event_id AS id FROM inbox_dead_letters WHERE consumer_name = 'billing' LIMIT 1`
      const details: typeof pages = [
        [`dead-letters/outbox/${letter.eventId}`, "What is known"],
        [`dead-letters/inbox/billing/${encodeURIComponent(record!.id)}`, "What is known"],
        [`payments/${paymentId}`, "What our books say"],
        [`tasks/${taskId}`, "What happened"]
      ]
      return { url, all: [...pages, ...details] }
    })

    it.effect(
      "axe finds nothing in both themes, nothing is wider than a phone, and hostile text is text",
      () =>
        Effect.gen(function* () {
          const { all, url } = yield* seeded
          for (const [theme, width] of [
            ["light", 1_400],
            ["light", 1_000],
            ["dark", 360]
          ] as const) {
            yield* World.onPage({ url, path: "/console", theme, width, allowed: isNotHere }, (page) =>
              Effect.forEach(
                all,
                ([path, shows]) =>
                  Effect.gen(function* () {
                    yield* page.visit(`/console/${path}`)
                    yield* page.see(shows)
                    const what = `${path} in ${theme} at ${width} px`
                    yield* PageChecks.accessible(page, what)
                    yield* PageChecks.fits(page, what)
                    assert.notInclude(yield* page.evaluate<string>("document.title"), "pwned")
                    assert.strictEqual(
                      yield* page.evaluate<number>("document.querySelectorAll('main img').length"),
                      0,
                      what
                    )
                  }),
                { discard: true }
              )
            )
          }
        }).pipe(Effect.scoped),
      240_000
    )

    it.effect("a reason and a name of hostile text go through the form, the audit and back unharmed", () =>
      Effect.gen(function* () {
        const { url } = yield* World.startBeside()
        const taskId = yield* World.deadTask()
        const reason = `<img src=x onerror="alert(1)"> \u202e ${"W".repeat(300)} 👩‍👩‍👧`
        yield* World.onPage({ url, path: "/console/tasks", width: 360 }, (page) =>
          Effect.gen(function* () {
            yield* page.click("button", `Cancel email task ${taskId}`)
            yield* World.giveReason(page, reason, "Cancel the task")
            yield* World.audited(reason, { actor: "admin", action: "cancel" })
            yield* page.visit("/console/audit")
            yield* page.see(`<img src=x onerror="alert(1)">`)
            yield* PageChecks.fits(page, "the audit")
          })
        )
      }).pipe(Effect.scoped)
    )

    it.effect("a decision with the keyboard alone: the form takes the focus, and gives it back", () =>
      Effect.gen(function* () {
        const { url } = yield* World.startBeside()
        yield* World.uncertainMail()
        const focused =
          "document.activeElement?.ariaLabel ?? document.activeElement?.labels?.[0]?.textContent ?? document.activeElement?.textContent?.trim() ?? ''"
        yield* World.onPage({ url, path: "/console/mail" }, (page) =>
          Effect.gen(function* () {
            yield* page.see("It arrived")
            const focusIs = (label: string) =>
              eventually(
                `the focus on "${label}"`,
                Effect.map(page.evaluate<string>(focused), (name) => name.startsWith(label))
              )
            const tabTo = (label: string) =>
              Effect.gen(function* () {
                // More stops than a page has: else the focus is caught somewhere.
                for (let stop = 0; stop < 100; stop++) {
                  yield* page.press("Tab")
                  if ((yield* page.evaluate<string>(focused)).startsWith(label)) return
                }
                assert.fail(`no way to "${label}" by the keyboard`)
              })
            yield* tabTo("It arrived")
            yield* page.press("Enter")
            yield* page.see("It is not sent again.")
            yield* focusIs("Reason")
            yield* page.press("Escape")
            yield* page.seeNoMore("It is not sent again.")
            yield* focusIs("It arrived")
            yield* page.press("Enter")
            yield* focusIs("Reason")
            yield* Effect.promise(() => page.page.keyboard.type("she has it"))
            yield* page.press("Enter")
            yield* page.see("The mail is sent by your word.")
            yield* World.audited("she has it", { action: "resolve" })
          })
        )
      }).pipe(Effect.scoped)
    )
  })
})
