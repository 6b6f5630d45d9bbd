/** Each decision of the console, by hand in a real browser, against a real service: what it changes, and its row in the audit. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Browser from "../support/Browser.ts"
import * as World from "./World.ts"

const { describe } = Browser
const { becomes, one } = World

describe("decisions in the console", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    it.effect(
      "an event that the broker refused is looked at, retried and discarded; each once, however often it is clicked",
      () =>
        Effect.gen(function* () {
          const { url } = yield* World.startBeside()
          const [first, second] = [yield* World.outboxDeadLetter(url), yield* World.outboxDeadLetter(url)]
          yield* World.onPage({ url, path: "/console/dead-letters" }, (page) =>
            Effect.gen(function* () {
              const named = ({ orderId }: typeof first) => `OrderPlaced version 1 of ${orderId}`
              yield* page.see("By cause")
              // An action without a reason does nothing, and Escape leaves the form without doing anything.
              yield* page.click("button", `Discard ${named(second)}`)
              yield* page.see("consumers miss this version")
              yield* page.click("button", "Discard")
              yield* page.press("Escape")
              assert.strictEqual(yield* one(`SELECT count(*)::int4 AS value FROM operator_audit`), 0)

              yield* page.click("button", `Discard ${named(second)}`)
              yield* World.giveReason(page, "the order was a test", "Discard")
              yield* page.see("The event is given up, and the order goes on.")
              yield* World.audited("the order was a test", {
                actor: "admin",
                action: "discard",
                subject: "outbox event",
                subjectId: second.eventId
              })

              yield* World.limitTopic(1_000_000)
              yield* page.click("button", `Retry ${named(first)}`)
              yield* page.see("The event is sent again, with all its attempts")
              yield* page.fill("Reason", "the limit is raised")
              // Two clicks as fast as a hand can: the button is gone or busy for the second one.
              yield* Effect.promise(() =>
                page.page.$eval(".act-form button.primary", (button) => {
                  const element = button as unknown as { readonly click: () => void }
                  element.click()
                  element.click()
                })
              )
              yield* page.see("The event is sent again.")
              yield* becomes(
                "the event to be published",
                `SELECT status AS value FROM outbox_status WHERE event_id = '${first.eventId}'`,
                "published"
              )
              yield* World.audited("the limit is raised", { action: "retry", subjectId: first.eventId })
              yield* page.seeNoMore(first.orderId.slice(0, 13))
            })
          )
        }).pipe(Effect.scoped)
    )

    it.effect("dead letters are found by cause, previewed, and retried all at once", () =>
      Effect.gen(function* () {
        const { url } = yield* World.startBeside()
        const letters = yield* Effect.forEach([1, 2, 3], () => World.outboxDeadLetter(url))
        yield* World.limitTopic(1_000_000)
        yield* World.onPage({ url, path: "/console/dead-letters" }, (page) =>
          Effect.gen(function* () {
            yield* page.see("Show these")
            yield* Effect.promise(() =>
              page.page.$eval("details.who summary", (summary) => (summary as unknown as { click: () => void }).click())
            )
            yield* page.fill("Your name, for the audit", "Zoë 100 %")
            yield* page.click("button", "Retry all that match…")
            yield* page.see("3 dead events")
            yield* page.see("go to the broker again")
            yield* World.giveReason(page, "the limit is raised for all", "Retry all that match")
            yield* page.see("3 events tried again.")
          })
        )
        const ids = letters.map(({ eventId }) => `'${eventId}'`).join()
        yield* becomes(
          "all to be published",
          `SELECT count(*)::int4 AS value FROM event_log WHERE event_id IN (${ids})`,
          3
        )
        const sql = yield* SqlClient.SqlClient
        const rows = yield* sql`SELECT actor FROM operator_audit WHERE reason = 'the limit is raised for all'`
        assert.deepStrictEqual(
          rows,
          letters.map(() => ({ actor: "admin/Zoë 100 %" }))
        )
      }).pipe(Effect.scoped)
    )

    it.effect(
      "an event that a consumer can't apply is discarded, a gap is skipped, from the list and from the event's own page",
      () =>
        Effect.gen(function* () {
          const { url } = yield* World.startBeside()
          const { dead, gap, gapEvent } = yield* World.inboxDeadLetters()
          yield* World.onPage({ url, path: "/console/dead-letters?side=inbox&consumer=billing" }, (page) =>
            Effect.gen(function* () {
              yield* page.see("version 2 of its aggregate has not come")
              yield* page.click("button", `Skip OrderRefunded ${gapEvent} for billing`)
              yield* page.see("billing goes on with version 3")
              yield* page.see("version 2 of its aggregate has not come. Should it still come, it is not applied.")
              yield* World.giveReason(page, "it was settled by hand", "Skip")
              yield* page.see("billing goes on without the missing versions.")
              yield* World.audited("it was settled by hand", { action: "skip", subject: "inbox event" })

              const record = String(
                yield* one(
                  `SELECT event_id AS value FROM inbox_dead_letters WHERE consumer_name = 'billing' AND aggregate_id = '${dead}'`
                )
              )
              yield* page.visit(`/console/dead-letters/inbox/billing/${encodeURIComponent(record)}`)
              yield* page.see("can't be read")
              yield* page.click("button", "Discard…")
              yield* World.giveReason(page, "a foreign writer's noise", "Discard")
              yield* page.see("discarded")
              yield* World.audited("a foreign writer's noise", { action: "discard", subject: "inbox event" })
            })
          )
          assert.strictEqual(
            yield* one(
              `SELECT count(*)::int4 AS value FROM inbox_holds WHERE consumer_name = 'billing' AND aggregate_id IN ('${dead}', '${gap}')`
            ),
            0
          )
        }).pipe(Effect.scoped)
    )

    it.effect(
      "a payment that nobody heard of: the gateway is asked, and it is settled with what the gateway says",
      () =>
        Effect.gen(function* () {
          const { url } = yield* World.startBeside()
          const { orderId, paymentId } = yield* World.manualPayment(url)
          yield* World.onPage({ url, path: "/console/payments?status=manual" }, (page) =>
            Effect.gen(function* () {
              yield* page.click("button", `Ask the gateway about payment ${paymentId}`)
              yield* page.see("Our books and the gateway differ.")
              yield* page.click("button", `Settle payment ${paymentId}`)
              yield* page.see("It may become")
              yield* World.giveReason(page, "the gateway has the money", "Settle")
              yield* page.see("The payment is captured, its order paid.")
              yield* World.audited("the gateway has the money", {
                action: "settle",
                subject: "payment",
                subjectId: paymentId
              })
              yield* page.see("No payment is manual.")
              yield* page.visit(`/console/payments/${paymentId}`)
              yield* page.see("operator: settle by admin: the gateway has the money")
            })
          )
          assert.strictEqual(yield* one(`SELECT status AS value FROM orders WHERE id = '${orderId}'`), "paid")
        }).pipe(Effect.scoped)
    )

    it.effect("mail of unknown outcome arrived, is given up, or is sent again, with a warning of the second copy", () =>
      Effect.gen(function* () {
        const { url } = yield* World.startBeside()
        const [first, second] = [yield* World.uncertainMail("First"), yield* World.uncertainMail("Second")]
        const third = yield* World.uncertainMail("Third")
        yield* World.onPage({ url, path: "/console/mail" }, (page) =>
          Effect.gen(function* () {
            yield* page.click("button", `It arrived mail ${first}`)
            yield* World.giveReason(page, "she has it", "It arrived")
            yield* page.see("The mail is sent by your word.")
            yield* World.audited("she has it", { action: "resolve", subject: "mail", subjectId: first })
            yield* page.click("button", `Send again mail ${second}`)
            yield* page.see("its receiver may get a second copy")
            yield* World.giveReason(page, "she has none", "Send again")
            yield* page.see("The mail is sent again.")
            yield* page.click("button", `Give up mail ${third}`)
            yield* page.see("The mail is not sent any more.")
            yield* World.giveReason(page, "she has moved", "Give up")
            yield* page.see("The mail is given-up by your word.")
          })
        )
        // Its task has ended with it, and says why as well.
        assert.strictEqual(
          yield* one(`SELECT state AS value FROM outbox_tasks WHERE task_id = '${third}'`),
          "cancelled"
        )
        assert.strictEqual(
          yield* one(`
            SELECT string_agg(action || ' ' || subject, ', ' ORDER BY audit_id) AS value FROM operator_audit
            WHERE reason = 'she has moved' AND subject_id = '${third}'`),
          "cancel task, resolve mail"
        )
        yield* becomes(
          "the mail to be sent",
          `SELECT status AS value FROM mail_deliveries WHERE task_id = '${second}'`,
          "sent"
        )
      }).pipe(Effect.scoped)
    )

    it.effect("a dead task is retried, another cancelled, and its type paused and resumed", () =>
      Effect.gen(function* () {
        const { url } = yield* World.startBeside()
        const [first, second] = [yield* World.deadTask(), yield* World.deadTask("another cause")]
        yield* World.onPage({ url, path: "/console/tasks?type=email" }, (page) =>
          Effect.gen(function* () {
            yield* page.click("button", "Pause email")
            yield* page.see("Those that run now end as always")
            yield* World.giveReason(page, "the mail server moves", "Pause task type email")
            yield* page.see("The task type email is paused.")
            yield* World.audited("the mail server moves", { action: "pause", subject: "task type", subjectId: "email" })
            yield* page.click("button", `Retry email task ${first}`)
            yield* World.giveReason(page, "the server is back", "Retry")
            yield* page.see("The task is pending now.")
            yield* page.click("button", `Cancel email task ${second}`)
            yield* World.giveReason(page, "nobody needs it", "Cancel the task")
            yield* World.audited("nobody needs it", { action: "cancel", subject: "task", subjectId: second })
            yield* page.click("button", "Resume email")
            yield* World.giveReason(page, "it has moved", "Resume task type email")
            yield* page.see("The task type email runs.")
          })
        )
        yield* becomes(
          "the task to run",
          `SELECT state AS value FROM outbox_tasks WHERE task_id = '${first}'`,
          "completed"
        )
        assert.strictEqual(
          yield* one(`SELECT state AS value FROM outbox_tasks WHERE task_id = '${second}'`),
          "cancelled"
        )
      }).pipe(Effect.scoped)
    )
  })
})
