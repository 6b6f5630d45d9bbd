/** Many orders: the command goes through them in bounded memory, also where every one of them differs. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as SandboxSchema from "../../../src/sandbox/SandboxSchema.ts"
import { plantedEnv } from "../../mutants/planted.ts"
import * as ManyOrders from "../../support/ManyOrders.ts"
import { commandOf, Directory, environmentWith } from "../../support/OperatorCommand.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

/** All of this program's modules and a page of rows fit, and 50,000 differences of several rules do not. */
const heapMegabytes = 96

const reconcile = commandOf(
  "reconcile",
  environmentWith({
    NODE_OPTIONS: `--max-old-space-size=${heapMegabytes} --disable-warning=TimeoutNegativeWarning ${plantedEnv()["NODE_OPTIONS"] ?? ""}`
  }),
  // Far above what it takes on a slow machine.
  300_000
)

const orders = 50_000

it.live(
  "50,000 orders that agree, and then as many that differ in four ways, within a small heap",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* SandboxSchema.migrate
      yield* ManyOrders.fill(orders)
      const agreeing = yield* reconcile("--json")
      assert.strictEqual(agreeing.code, 0, agreeing.stdout + agreeing.stderr)
      const { compared, differences } = JSON.parse(agreeing.stdout)
      assert.strictEqual(differences, 0)
      assert.deepStrictEqual(compared, [
        { name: "the gateway's ledger", rows: orders },
        { name: "orders", rows: orders },
        { name: "event_log", rows: 2 * orders },
        { name: "billing_ledger", rows: orders },
        { name: "inventory_reservations", rows: orders },
        { name: "revenue_daily", rows: compared.at(-1).rows }
      ])
      assert.isAtLeast(compared.at(-1).rows, 2)

      yield* sql`DELETE FROM outbox_tasks`
      yield* sql`DELETE FROM inventory_reservations`
      yield* sql`DELETE FROM sandbox_gateway.charges`
      yield* sql`UPDATE billing_ledger SET amount_minor = 1`
      const differing = yield* reconcile("--json")
      assert.strictEqual(differing.code, 1, differing.stderr)
      const report = JSON.parse(differing.stdout)
      const counts = Object.fromEntries(
        report.rules
          .filter(({ count }: { readonly count: number }) => count > 0)
          .map(({ count, rule }: { readonly rule: string; readonly count: number }) => [rule, count])
      )
      assert.deepStrictEqual(counts, {
        "gateway-capture-missing": orders,
        "billing-entry-differs": orders,
        "reservation-missing": orders,
        "mail-missing": orders
      })
      assert.strictEqual(report.items.length, 4 * 20)

      // More than a run keeps if nobody asks, and than a page has.
      const listed = yield* reconcile("--json", "--limit", "2500")
      assert.strictEqual(listed.code, 1, listed.stderr)
      assert.strictEqual(JSON.parse(listed.stdout).items.length, 4 * 2_500)
    }).pipe(Effect.provide(Layer.provideMerge(Directory.layer, TestDatabase.layerPool))),
  900_000
)
