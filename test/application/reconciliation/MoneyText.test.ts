/** Amounts in the texts of differences are those of `Money.format`, whatever the currency. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { moneyText } from "../../../src/application/reconciliation/MoneyText.ts"
import { format } from "../../../src/domain/Money.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import { agreeing, look, test } from "./Books.ts"

it.live("SQL writes an amount as the terminal and the mails do", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const amounts = ["EUR", "JPY", "BHD", "CLF"].flatMap((currency) =>
      [0, 5, 12, 999, 2_500, 123_456, Number.MAX_SAFE_INTEGER].map((amountMinor) => ({ amountMinor, currency }))
    )
    const rows = yield* sql<{ readonly text: string }>`
      SELECT ${sql.literal(moneyText("minor", "currency"))} AS text
      FROM unnest(${amounts.map(({ amountMinor }) => String(amountMinor))}::int8[], ${amounts.map(({ currency }) => currency)}::text[])
           WITH ORDINALITY AS amounts(minor, currency, at) ORDER BY at`
    assert.deepStrictEqual(
      rows.map(({ text }) => text),
      amounts.map(format)
    )
    assert.includeMembers(
      rows.map(({ text }) => text),
      ["25.00 EUR", "0.05 EUR", "2500 JPY", "2.500 BHD"]
    )
    const [odd] = yield* sql`SELECT ${sql.literal(moneyText("'many'", "NULL"))} AS text`
    assert.deepStrictEqual(odd, { text: "many" })
  }).pipe(Effect.provide(TestDatabase.layerPool))
)

test(
  "a difference tells amounts as people write them, those below nothing included",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paid, pending } = yield* agreeing
    yield* sql`UPDATE billing_ledger SET amount_minor = 90 WHERE order_id = ${paid.orderId}::uuid`
    yield* sql`UPDATE revenue_daily SET amount_minor = amount_minor - 305`
    yield* sql`UPDATE sandbox_gateway.charges SET amount_minor = 99 WHERE idempotency_key = ${paid.paymentId}`
    yield* sql`UPDATE event_log SET data = jsonb_set(data::jsonb, '{total,amountMinor}', '"a lot"')::json WHERE aggregate_id = ${pending}`
    const { items } = yield* look
    const textsOf = (rule: string) => items.flatMap((one) => (one.rule === rule ? [one.expected, one.found] : []))
    assert.deepStrictEqual(
      textsOf("billing-entry-differs").map((text) => text.split(" from ")[0]),
      ["1.00 EUR of a payment of the order", "0.90 EUR of a payment of the order"]
    )
    assert.deepStrictEqual(textsOf("gateway-amount-differs"), ["1.00 EUR", "0.99 EUR captured at the gateway"])
    const [wanted, is] = textsOf("revenue-differs")
    assert.match(wanted ?? "", /^1\.00 EUR on 20/)
    assert.strictEqual(is, "-2.05 EUR")
    assert.match(textsOf("event-differs")[1] ?? "", /^a lot EUR for /)
  })
)
