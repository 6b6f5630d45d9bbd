/** The reconciliation through /admin: it compares, repairs with a reason, remembers its last result, and tells the overview of what is left. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { runIfDue } from "../../src/application/reconciliation/Nightly.ts"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { ask, audited, service } from "./Admin.ts"
import { newOrder, send } from "./Service.ts"

const path = "/reconciliation"
const run = (body?: object) => ask(path, body, { method: "POST" })

const decisions = Effect.map(ask("/overview"), ({ json }) =>
  (json.decisions as ReadonlyArray<Readonly<Record<string, unknown>>>).filter(({ kind }) => kind === "difference")
)

layer(service, { excludeTestServices: true })((it) => {
  it.effect(
    "a check, a repair without a reason, a repair, what is left to a person, and the nightly run",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { url } = yield* BoundAddress
        assert.deepStrictEqual((yield* ask(path)).json, { last: null })

        const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
        yield* send(`${url}/orders/${order.id}/pay`, {
          body: { paymentMethod: "pm_ok" },
          headers: { "idempotency-key": "k" }
        })
        const clean = yield* run()
        assert.strictEqual(clean.status, 200, clean.text)
        assert.deepInclude(clean.json, { differences: 0, repaired: 0, items: [], notCompared: [], actor: "admin" })
        assert.isAtLeast(clean.json.rules.length, 20)
        assert.deepStrictEqual((yield* ask(path)).json, { last: clean.json })
        assert.deepStrictEqual(yield* decisions, [])

        // The last event is lost, and the gateway has a charge of nobody.
        yield* sql`DELETE FROM outbox_events WHERE aggregate_version = 2`
        yield* sql`
          INSERT INTO sandbox_gateway.charges (id, idempotency_key, amount_minor, currency, payment_method, status, charged_at)
          VALUES (gen_random_uuid(), 'a-key-of-nobody', 100, 'EUR', 'pm_ok', 'captured', clock_now())`
        const found = yield* run({})
        assert.strictEqual(found.json.differences, 2)
        assert.deepStrictEqual(
          found.json.items.map(({ rule }: { readonly rule: string }) => rule),
          ["gateway-charge-unknown", "event-missing"]
        )
        const [decision] = yield* decisions
        assert.deepInclude(decision, {
          count: 2,
          what: "differences between the books",
          page: "reconciliation",
          command: "paid-once reconcile"
        })

        const silent = yield* run({ repair: true })
        assert.strictEqual(silent.status, 400)
        assert.deepInclude(silent.json.errors[0], { in: "body", pointer: "/reason" })
        assert.strictEqual((yield* run({ fix: true })).status, 400)
        assert.deepStrictEqual(yield* audited(order.id), [])

        const repaired = yield* run({ repair: true, reason: "a backup was restored" })
        assert.deepInclude(repaired.json, { differences: 1, repaired: 1 })
        assert.deepStrictEqual(yield* audited(order.id), ["reconcile by admin: a backup was restored"])
        assert.strictEqual((yield* sql`SELECT FROM outbox_events WHERE aggregate_version = 2`).length, 1)

        // It is not night, and then it is: one run, which repairs nothing.
        yield* sql`DELETE FROM outbox_events WHERE aggregate_version = 2`
        const at = (time: string) =>
          sql.unsafe(`CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
                      AS 'SELECT date_trunc(''day'', clock_timestamp(), ''UTC'') + interval ''1 day ${time}'''`)
        yield* at("2 hours 59 minutes")
        assert.isUndefined(yield* runIfDue(Effect.void))
        yield* at("3 hours 5 minutes")
        assert.deepInclude(yield* runIfDue(Effect.void), { actor: "the nightly round", differences: 2, repaired: 0 })
        assert.isUndefined(yield* runIfDue(Effect.void))
        yield* at("4 hours 1 minute")
        assert.isUndefined(yield* runIfDue(Effect.void))
      }),
    60_000
  )
})
