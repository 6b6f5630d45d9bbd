/** Decisions on many things at once, in a real browser: they take what the filter or the cause shows, and nothing else. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Browser from "../support/Browser.ts"
import * as World from "./World.ts"

Browser.describe("decisions on many at once", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    it.effect("the dead letters of one consumer are retried all at once, and those of another stay", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { url } = yield* World.startBeside({ INBOX_MAX_ATTEMPTS: "1" })
        const hide = (table: string) => sql`ALTER TABLE ${sql(table)} RENAME TO ${sql(`away_${table}`)}`
        yield* hide("billing_ledger")
        yield* hide("revenue_daily")
        for (const _ of [1, 2]) {
          const { json: order } = yield* World.ask(url, "/orders", World.newOrder())
          assert.strictEqual((yield* World.pay(url, order.id)).status, 200)
        }
        const dead = (consumer: string) =>
          `SELECT count(*)::int4 AS value FROM inbox_dead_letters WHERE consumer_name = '${consumer}'`
        for (const consumer of ["billing", "analytics"]) {
          yield* World.becomes(`two dead letters of ${consumer}`, dead(consumer), 2)
        }
        yield* sql`ALTER TABLE away_billing_ledger RENAME TO billing_ledger`
        yield* World.onPage({ url, path: "/console/dead-letters?side=inbox&consumer=billing" }, (page) =>
          Effect.gen(function* () {
            // Until all its parts are there, a button moves.
            yield* page.see("Show these")
            yield* page.see("OrderPaid for billing")
            // Its tab says what waits on each side.
            yield* page.see("Not applied by a consumer4")
            yield* page.click("button", "Retry all that match…")
            yield* page.see("2 dead events will be tried again")
            yield* World.giveReason(page, "the ledger is back", "Retry all that match")
            yield* page.see("2 events tried again.")
            yield* page.visit("/console/dead-letters?side=inbox&consumer=analytics")
            yield* page.see("Show these")
            yield* page.see("OrderPaid for analytics")
            yield* page.click("button", "Discard all that match…")
            yield* page.see("2 dead events will be given up for their consumer.")
            yield* World.giveReason(page, "the report is made by hand", "Discard all that match")
            yield* page.see("2 events given up.")
          })
        )
        yield* World.becomes(
          "both to be booked",
          `SELECT count(DISTINCT order_id)::int4 AS value FROM billing_ledger`,
          2
        )
        yield* World.becomes("no dead letter of billing", dead("billing"), 0)
        assert.strictEqual(yield* World.one(`${dead("analytics")} AND status = 'discarded'`), 2)
        assert.deepStrictEqual(
          yield* sql`SELECT DISTINCT actor, action, subject FROM operator_audit WHERE reason = 'the report is made by hand'`,
          [{ actor: "admin", action: "discard", subject: "inbox event" }]
        )
        assert.deepStrictEqual(
          yield* sql`SELECT DISTINCT actor, action, subject FROM operator_audit WHERE reason = 'the ledger is back'`,
          [{ actor: "admin", action: "retry", subject: "inbox event" }]
        )
      }).pipe(Effect.scoped)
    )

    it.effect("dead tasks of one cause are retried all at once, and those of another stay", () =>
      Effect.gen(function* () {
        const { url } = yield* World.startBeside()
        const cause = "the mail server hung up"
        const retried = [yield* World.deadTask(cause), yield* World.deadTask(cause)]
        const other = yield* World.deadTask("the address is refused")
        yield* World.onPage({ url, path: "/console/tasks" }, (page) =>
          Effect.gen(function* () {
            yield* page.see("Pause…")
            yield* page.click("button", `Retry all all that failed so: ${cause}`)
            yield* page.see("2 dead tasks will run again")
            yield* World.giveReason(page, "it is back", "Retry all")
            yield* page.see("2 tasks tried again.")
          })
        )
        yield* World.becomes(
          "both to be completed",
          `SELECT count(*)::int4 AS value FROM outbox_tasks
           WHERE task_id IN (${retried.map((id) => `'${id}'`).join()}) AND state = 'completed'`,
          2
        )
        assert.strictEqual(
          yield* World.one(`SELECT state AS value FROM outbox_tasks WHERE task_id = '${other}'`),
          "dead"
        )
        assert.strictEqual(
          yield* World.one("SELECT count(*)::int4 AS value FROM operator_audit WHERE reason = 'it is back'"),
          2
        )
      }).pipe(Effect.scoped)
    )

    it.effect("dead mails of one cause are sent again all at once, and those of another stay", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { url } = yield* World.startBeside()
        const again = [yield* World.uncertainMail("First"), yield* World.uncertainMail("Second")]
        const other = yield* World.uncertainMail("Third")
        yield* sql`UPDATE mail_deliveries SET status = 'refused', last_error = 'no such mailbox' WHERE task_id = ${other}::uuid`
        const reason = yield* sql<{ readonly error: string }>`
          SELECT last_error AS error FROM mail_deliveries WHERE task_id = ${again[0]!}::uuid`
        const dead = String(yield* World.one("SELECT count(*)::int4 AS value FROM outbox_tasks WHERE state = 'dead'"))
        yield* World.onPage({ url, path: "/console/mail?customer=ada" }, (page) =>
          Effect.gen(function* () {
            // A dead mail is a dead task as well.
            yield* page.see(`Tasks\n${dead}\n, ${dead} need a decision`)
            yield* page.see("Mail\n3\n, 3 need a decision")
            yield* page.see("Show these")
            yield* page.see("Third")
            yield* page.click("button", `Send all again uncertain mail that failed so: ${reason[0]!.error}`)
            yield* page.see("2 dead mails will be sent again")
            yield* page.see("its receiver may get a second copy")
            yield* World.giveReason(page, "it is back", "Send all again")
            yield* page.see("2 mails sent again, 2 maybe a second time.")
          })
        )
        yield* World.becomes(
          "both to be sent",
          `SELECT count(*)::int4 AS value FROM mail_deliveries
           WHERE task_id IN (${again.map((id) => `'${id}'`).join()}) AND status = 'sent'`,
          2
        )
        assert.strictEqual(
          yield* World.one(`SELECT state AS value FROM outbox_tasks WHERE task_id = '${other}'`),
          "dead"
        )
        assert.strictEqual(
          yield* World.one(
            "SELECT count(*)::int4 AS value FROM operator_audit WHERE subject = 'mail' AND reason = 'it is back'"
          ),
          2
        )
      }).pipe(Effect.scoped)
    )
  })
})
