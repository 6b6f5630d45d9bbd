import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { analytics } from "../../../src/application/subscribers/Analytics.ts"
import * as Subscribed from "../../support/Subscribed.ts"

const revenue = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ readonly line: string }>`
      SELECT day::text || ' ' || currency || ' ' || amount_minor::text AS line FROM revenue_daily ORDER BY 1`,
    (rows) => rows.map(({ line }) => line)
  )
)

layer(Subscribed.layer, { excludeTestServices: true })("analytics", (it) => {
  it.effect("revenue counts on the UTC day of the payment, and a refund on its own day, whatever comes twice", () =>
    Effect.gen(function* () {
      const late = Subscribed.order({ lines: [{ sku: "pen", quantity: 3, unitAmountMinor: 100 }] })
      const early = Subscribed.order({ lines: [{ sku: "pen", quantity: 7, unitAmountMinor: 100 }] })
      const yen = Subscribed.order({ currency: "JPY" })
      const events = [
        late.placed(),
        late.paid("2026-03-01T23:59:59.999Z"),
        early.placed(),
        early.paid("2026-03-02T00:00:00.000Z"),
        yen.placed(),
        yen.paid("2026-03-02T12:00:00.000Z")
      ]
      yield* Subscribed.apply(analytics, ...events)
      yield* Subscribed.apply(analytics, ...events, late.refunded("2026-03-03T08:00:00.000Z"))
      assert.deepStrictEqual(yield* revenue, [
        "2026-03-01 EUR 300",
        "2026-03-02 EUR 700",
        "2026-03-02 JPY 1250",
        "2026-03-03 EUR -300"
      ])
    })
  )
})
