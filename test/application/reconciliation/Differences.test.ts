/** Books are made to differ by hand, in a way for each rule. Each difference is found, named and repaired, or left to a person. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { agreeing, brokenIn, deliver, look, repair, repairs, test } from "./Books.ts"
import { billingCases } from "./cases/BillingCases.ts"
import { goodsAndMailCases } from "./cases/GoodsAndMailCases.ts"
import { eventsCases } from "./cases/EventsCases.ts"
import { gatewayCases } from "./cases/GatewayCases.ts"
import { ordersCases } from "./cases/OrdersCases.ts"

const cases = [...gatewayCases, ...ordersCases, ...eventsCases, ...billingCases, ...goodsAndMailCases]

const auditOf = (rule: string) => ({ actor: "ada", reason: "a test", rule })

for (const { afterwards, also = [], broken, by, of, rule } of cases) {
  test(
    `${of}: ${rule}`,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const books = yield* agreeing
      assert.deepStrictEqual(brokenIn(yield* look), {})

      yield* broken(books, sql)
      const found = yield* look
      assert.deepStrictEqual(
        brokenIn(found),
        Object.fromEntries(found.rules.filter((one) => [rule, ...also].includes(one.rule)).map((one) => [one.rule, 1]))
      )
      assert.deepStrictEqual(yield* repairs, [])

      const mended = yield* repair
      const one = mended.items.find((item) => item.rule === rule)
      if (by === "person") {
        assert.strictEqual(one?.repair?.outcome, "manual")
        // Events and money tell that a row is wrong: no repair of any rule believes it.
        if (of.startsWith("the row of")) assert.deepStrictEqual(yield* repairs, [])
        assert.include(brokenIn(yield* look), { [rule]: 1 })
        assert.notInclude(
          (yield* repairs).map((entry) => entry.rule),
          rule
        )
        yield* afterwards?.(books, sql) ?? Effect.void
        return
      }
      assert.deepStrictEqual(one?.repair, { outcome: "repaired", why: null })
      const audit = yield* repairs
      assert.deepInclude(audit[0], auditOf(rule))

      // Clean at once, and when all that the repair began is done.
      assert.deepStrictEqual(brokenIn(yield* look), {})
      yield* deliver
      assert.deepStrictEqual(brokenIn(yield* look), {})
      yield* afterwards?.(books, sql) ?? Effect.void

      // A second repair does nothing.
      const second = yield* repair
      assert.strictEqual(second.repaired, 0)
      assert.deepStrictEqual(yield* repairs, audit)
    })
  )
}
