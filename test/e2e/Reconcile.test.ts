/** The reconciliation in processes of the service: at night, and beside customers whose payments are no differences. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { newOrder, send, sendElsewhere } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { Directory, environmentWith } from "../support/OperatorCommand.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const token = "the-operator-of-this-test"

/** Customers who act at once: the service is busy with all of them. */
const customers = 12

it.live("three runs beside customers who pay, cancel and refund find nothing, nor does one after them", () =>
  Effect.gen(function* () {
    const service = yield* ServiceProcess.start({ env: yield* environmentWith({ ADMIN_TOKEN: token }) })
    const url = service.url!
    const reconcile = sendElsewhere(`${url}/admin/reconciliation`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}` }
    })
    let done = 0
    /** Orders go six ways: most are paid, one of these is refunded, one is declined, and one is cancelled while it is being paid. */
    const customer = Effect.gen(function* () {
      const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
      const way = ++done % 6
      const pay = sendElsewhere(`${url}/orders/${order.id}/pay`, {
        headers: { "idempotency-key": randomUUID() },
        body: { paymentMethod: way === 3 ? "pm_declined" : way === 4 ? "pm_flaky" : "pm_ok" }
      })
      const act = (verb: string) => sendElsewhere(`${url}/orders/${order.id}/${verb}`, { method: "POST" })
      if (way === 5) yield* Effect.all([pay, act("cancel")], { concurrency: 2 })
      else yield* pay
      if (way === 1) yield* act("refund")
    })
    const traffic = yield* Effect.forkChild(
      Effect.forEach(Array.from({ length: customers }), () => Effect.forever(customer), { concurrency: customers })
    )
    for (let round = 1; round <= 3; round++) {
      const before = done
      const { json, status, text } = yield* reconcile
      assert.strictEqual(status, 200, text)
      assert.deepStrictEqual([json.differences, json.items, json.notCompared], [0, [], []], `round ${round}`)
      assert.isAbove(done, before)
    }
    yield* Fiber.interrupt(traffic)
    const { json } = yield* reconcile
    assert.deepStrictEqual([json.differences, json.items], [0, []])
    // All that customers have placed, however fast the machine is.
    assert.isAtLeast(json.compared.find((one: { readonly name: string }) => one.name === "orders").rows, done)
  }).pipe(Effect.scoped, Effect.provide(Directory.layer), Effect.provide(TestDatabase.layer))
)

it.live("at night a process with the role maintenance compares the books, once", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
      AS $$ SELECT date_trunc('day', clock_timestamp(), 'UTC') + interval '1 day 3 hours 5 minutes' $$`
    yield* ServiceProcess.start({ roles: "maintenance", env: yield* environmentWith(plantedEnv()) })
    const runs = sql`SELECT actor, differences FROM reconciliation_runs`
    yield* eventually(
      "the nightly run",
      Effect.map(runs, ({ length }) => length > 0)
    )
    assert.deepStrictEqual(yield* runs, [{ actor: "the nightly round", differences: 0 }])
  }).pipe(Effect.scoped, Effect.provide(Directory.layer), Effect.provide(TestDatabase.layerPool))
)
