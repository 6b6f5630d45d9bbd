import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestDatabase } from "../../support/TestDatabase.ts"
import { soak } from "./PaymentSoak.ts"

/** Enough kills to hit most of the critical points, in about a minute; `npm run soak:payments` runs longer. */
const kills = 12

it.live(
  `killed ${kills} times while orders are paid, cancelled and refunded: captures minus refunds equal the paid orders, and no order was captured twice`,
  () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase.make()
      const report = yield* soak({ url, directory: yield* TestDatabase.dataDirectory, kills })
      assert.isAbove(report.captured, report.refunded)
      assert.isAbove(report.refunded, 0)
    }).pipe(Effect.scoped),
  600_000
)
