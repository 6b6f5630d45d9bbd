/** The audit's page: each entry leads to the thing that was decided about, and shows what was changed and no more. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import * as PageChecks from "../support/PageChecks.ts"
import * as World from "./World.ts"

const id = "01890a5d-ac96-774b-bcce-b302099a8057"
const hostile = `<img src=x onerror="document.title='pwned'">`

/** The subject, its id, the states, the page that the entry leads to, and the change as text. */
const entries = [
  [
    "outbox event",
    id,
    { status: "dead", attempts: 10 },
    { status: "queued", attempts: 0 },
    `/console/dead-letters/outbox/${id}`,
    "status dead → queued; attempts 10 → 0"
  ],
  [
    "inbox event",
    `billing ${id}`,
    { status: "gap", version: 1 },
    { status: "skipped", version: 2 },
    `/console/dead-letters/inbox/billing/${id}`,
    "status gap → skipped; version 1 → 2"
  ],
  [
    "inbox event",
    "billing orders:5:17",
    { status: "dead" },
    { status: "discarded" },
    "/console/dead-letters/inbox/billing/orders%3A5%3A17",
    "status dead → discarded"
  ],
  [
    "task",
    id,
    { state: "dead", attempts: 3 },
    { state: "pending", due: "now" },
    `/console/tasks/${id}`,
    "state dead → pending; attempts 3; due now"
  ],
  [
    "payment",
    id,
    { status: "manual", orderStatus: "pending", capturedMinor: 0, refundedMinor: 0 },
    { status: "captured", orderStatus: "paid", capturedMinor: 2500, refundedMinor: 0, as: null },
    `/console/payments/${id}`,
    "status manual → captured; order status pending → paid; captured minor 0 → 2500"
  ],
  [
    "mail",
    id,
    { status: "uncertain", taskState: "dead" },
    { status: "sent" },
    `/console/tasks/${id}`,
    "status uncertain → sent; task state dead"
  ],
  ["order", id, {}, { note: null }, `/console/orders/${id}`, "nothing"],
  ["topic", "orders", { status: "running" }, { status: "paused" }, "/console", "status running → paused"],
  ["consumer", "billing", { status: "running" }, { status: "paused" }, "/console", "status running → paused"],
  ["task type", "email", { status: "running" }, { status: "paused" }, "/console/tasks", "status running → paused"],
  ["fault point", "pay.after-charge", {}, { action: "crash" }, "/console/break-it", "action crash"],
  [
    "sandbox gateway",
    "behaviour",
    { mode: "normal", delayMillis: 0 },
    { mode: "down", delayMillis: 0 },
    "/console/break-it",
    "mode normal → down"
  ],
  [
    "task",
    `${hostile} ../..`,
    { [hostile]: hostile, __proto__: null },
    { constructor: hostile },
    null,
    `${hostile} ${hostile}; constructor ${hostile}`
  ]
] as const

Browser.describe("the audit in the console", () => {
  layer(World.layer, { excludeTestServices: true })((it) => {
    it.effect("an entry leads to its thing, shows what has changed, and its id stands on one line", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { url } = yield* World.start()
        for (const [subject, subjectId, before, after] of entries) {
          yield* sql`
            INSERT INTO operator_audit (at, actor, action, reason, subject, subject_id, before, after)
            VALUES (clock_now(), 'ada', 'decide', 'for the test', ${subject}, ${subjectId},
                    ${JSON.stringify(before)}::text::jsonb, ${JSON.stringify(after)}::text::jsonb)`
        }
        for (const [theme, width] of [
          ["light", 1_400],
          ["dark", 360]
        ] as const) {
          yield* World.onPage({ url, path: "/console/audit", theme, width }, (page) =>
            Effect.gen(function* () {
              yield* eventually(
                "every entry",
                Effect.map(
                  page.evaluate<number>("document.querySelectorAll('main tbody tr').length"),
                  (rows) => rows === entries.length
                )
              )
              const shown = yield* page.evaluate<ReadonlyArray<readonly [string | null, ReadonlyArray<string>]>>(
                `[...document.querySelectorAll("main tbody tr")].map((row) => [
                  row.querySelector("td[data-head=To] a")?.getAttribute("href") ?? null,
                  [...row.querySelectorAll("td[data-head=Changed] li, td[data-head=Changed] div > .dim")]
                    .map(({ textContent }) => textContent.trim().replaceAll(/\\s+/g, " "))
                ])`
              )
              assert.deepStrictEqual(
                shown.toReversed().map(([href, changes]) => [href, [...changes].toSorted()]),
                entries.map(([, , , , href, changes]) => [href, changes.split("; ").toSorted()])
              )
              assert.deepStrictEqual(
                yield* page.evaluate(
                  `[...document.querySelectorAll("td[data-head=To] .id code")].map((code) => code.getClientRects().length).filter((lines) => lines !== 1)`
                ),
                []
              )
              // The whole id is there on hover, and on the clipboard.
              assert.isAbove(
                yield* page.evaluate<number>(
                  `document.querySelectorAll("td[data-head=To] code[title='${id}']").length`
                ),
                5
              )
              yield* PageChecks.accessible(page, `the audit in ${theme} at ${width} px`)
              yield* PageChecks.fits(page, `the audit in ${theme} at ${width} px`)
              assert.notInclude(yield* page.evaluate<string>("document.title"), "pwned")
              assert.strictEqual(yield* page.evaluate<number>("document.querySelectorAll('main img').length"), 0)
            })
          )
        }
      }).pipe(Effect.scoped)
    )
  })
})
