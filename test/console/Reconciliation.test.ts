/** The console's page of the reconciliation, by hand in a real browser: a check, a difference, and its repair. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Browser from "../support/Browser.ts"
import { ask, audited, becomes, giveReason, layer as world, newOrder, onPage, pay, startBeside } from "./World.ts"

Browser.describe("the reconciliation in the console", () => {
  layer(world, { excludeTestServices: true })((it) => {
    it.effect(
      "books are compared, differ, are on the overview, are repaired with a reason, and agree",
      () =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          // Without upkeep, which compares the books by itself at night.
          const { url } = yield* startBeside({}, "http,dispatcher,consumers,workers")
          const { json: order } = yield* ask(url, "/orders", newOrder())
          yield* pay(url, order.id)
          yield* becomes("the sale to be booked", "SELECT count(*)::int4 AS value FROM billing_ledger", 1)
          yield* onPage({ url, path: "/console/reconciliation", width: 1_300 }, (page) =>
            Effect.gen(function* () {
              yield* page.see("Nobody has compared the books yet.")
              yield* page.click("button", "Check now")
              yield* page.see("All books that were compared agree.")
              yield* page.see("a day's revenue is told wrong")

              yield* sql`DELETE FROM billing_ledger`
              yield* page.click("button", "Check now")
              yield* page.see("1 difference is left.")
              yield* page.see("no entry, and billing has gone through the order's events")

              yield* page.visit("/console")
              yield* page.see("difference between the books")
              yield* page.visit("/console/reconciliation")
              yield* page.click("button", "Repair…")
              yield* page.see("billing's own handler books the event from the archive")
              yield* giveReason(page, "a table was restored", "Repair")
              yield* page.see("Repaired 1 difference. All books that were compared agree.")
              yield* audited("a table was restored", {
                actor: "admin",
                action: "reconcile",
                subject: "order",
                subjectId: order.id
              })
              yield* becomes("the sale to be booked again", "SELECT count(*)::int4 AS value FROM billing_ledger", 1)

              yield* sql`UPDATE orders SET customer_id = 'somebody else'`
              yield* page.click("button", "Check now")
              yield* page.see("of somebody else by a payment of the order")
              const steps = yield* page.evaluate<number>(
                "document.querySelector('td[data-head=repair]').getBoundingClientRect().width"
              )
              assert.isAbove(steps, 350, "a person's steps have room")

              yield* sql`
                INSERT INTO sandbox_gateway.charges (id, idempotency_key, amount_minor, currency, payment_method, status, charged_at)
                SELECT gen_random_uuid(), 'lost-' || n, 100, 'EUR', 'pm_ok', 'captured', clock_now() FROM generate_series(1, 23) AS n`
              yield* page.click("button", "Check now")
              yield* page.see("3 differences more: npm run paid-once -- reconcile --limit 10000 lists them.")
            })
          )
        }).pipe(Effect.scoped),
      120_000
    )
  })
})
