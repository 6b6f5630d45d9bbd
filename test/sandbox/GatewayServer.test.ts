import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import { type Answer, gateway, send } from "../http/Service.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const charge = (key: string, change: object = {}) =>
  Effect.flatMap(GatewayServer, ({ url }) =>
    send(`${url}/charges`, {
      body: { amountMinor: 2_599, currency: "EUR", paymentMethod: "pm_ok", ...change },
      headers: { "idempotency-key": key }
    })
  )

const get = (path: string) => Effect.flatMap(GatewayServer, ({ url }) => send(`${url}${path}`))

layer(gateway.pipe(Layer.provideMerge(TestDatabase.layerPool)), { excludeTestServices: true })(
  "sandbox gateway",
  (it) => {
    it.effect("a key is charged once, and a repeated request gets the first answer", () =>
      Effect.gen(function* () {
        const answers = yield* Effect.all(
          Array.from({ length: 20 }, () => charge("once")),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(
          new Set(answers.map(({ status, text }) => `${status} ${text}`)),
          new Set(['200 {"status":"captured","amountMinor":2599,"currency":"EUR"}'])
        )
        const { json } = yield* get("/ledger")
        assert.deepStrictEqual(json.totals, [
          { currency: "EUR", captured: 1, declined: 0, capturedMinor: "2599", refunded: 0, refundedMinor: "0" }
        ])
        assert.strictEqual(json.charges[0].key, "once")
      })
    )

    it.effect("a key has 1 to 255 characters, and the ledger's limit is a whole number up to 1,000", () =>
      Effect.gen(function* () {
        assert.strictEqual((yield* charge("k".repeat(255))).status, 200)
        assert.strictEqual((yield* charge("k".repeat(256))).status, 400)
        for (const limit of ["1", "1000"]) assert.strictEqual((yield* get(`/ledger?limit=${limit}`)).status, 200, limit)
        for (const limit of ["", "0", "1001", "0x10", "1e2", "%2010", "010"]) {
          assert.strictEqual((yield* get(`/ledger?limit=${limit}`)).status, 400, limit)
        }
      })
    )

    it.effect("the whole ledger comes in pages, in the order of the keys' bytes, and keys are found", () =>
      Effect.gen(function* () {
        const keys = ["ledger-B", "ledger-a", "ledger-~", "ledger-Z"]
        for (const key of keys) yield* charge(key)
        yield* send(`${(yield* GatewayServer).url}/refunds`, {
          headers: { "idempotency-key": "ledger-a-refund" },
          body: { charge: "ledger-a", amountMinor: 2_599, currency: "EUR" }
        })
        const found: Array<string> = []
        for (let cursor: string | null = "ledger-"; cursor !== null;) {
          const page: Answer = yield* get(`/ledger/entries?limit=2&cursor=${encodeURIComponent(cursor)}`)
          found.push(...page.json.items.map(({ key }: { readonly key: string }) => key))
          cursor = page.json.nextCursor
        }
        assert.deepStrictEqual(
          found.filter((key) => key.startsWith("ledger-")),
          ["ledger-B", "ledger-Z", "ledger-a", "ledger-~"]
        )
        const some = yield* send(`${(yield* GatewayServer).url}/ledger/find`, {
          body: { keys: ["ledger-a", "nobody's"] }
        })
        assert.deepStrictEqual(some.json, {
          items: [
            {
              key: "ledger-a",
              charges: [{ status: "captured", amountMinor: 2_599, currency: "EUR" }],
              refunds: [{ key: "ledger-a-refund", amountMinor: 2_599, currency: "EUR" }]
            }
          ],
          nextCursor: null
        })
        assert.strictEqual((yield* get("/ledger/entries?limit=1001")).status, 400)
      })
    )

    it.effect("a key with another charge is refused", () =>
      Effect.gen(function* () {
        yield* charge("other")
        for (const change of [{ amountMinor: 1 }, { currency: "USD" }, { paymentMethod: "pm_declined" }]) {
          assert.strictEqual((yield* charge("other", change)).status, 422)
        }
      })
    )

    it.effect("it declines by payment method, and declines an unknown one", () =>
      Effect.gen(function* () {
        const declined = yield* charge("declined", { paymentMethod: "pm_declined" })
        assert.deepStrictEqual(
          [declined.status, declined.json],
          [402, { status: "declined", reason: "insufficient funds" }]
        )
        // Every object has the last three, which a lookup of the method must not find.
        for (const paymentMethod of ["pm_nobody", "constructor", "__proto__", "toString"]) {
          const { json, status } = yield* charge(`unknown ${paymentMethod}`, { paymentMethod })
          assert.deepStrictEqual([status, json.reason], [402, "unknown payment method"], paymentMethod)
        }
      })
    )

    it.effect("a charge can be looked up by its key", () =>
      Effect.gen(function* () {
        yield* charge("a key / with %")
        const found = yield* get(`/charges/${encodeURIComponent("a key / with %")}`)
        assert.deepStrictEqual([found.status, found.json.status, found.json.amountMinor], [200, "captured", 2_599])
        assert.strictEqual((yield* get("/charges/nobody")).status, 404)
        assert.strictEqual((yield* get("/charges/%00")).status, 404)
      })
    )

    it.effect("bad charges are refused", () =>
      Effect.gen(function* () {
        for (const change of [
          { amountMinor: 0 },
          { amountMinor: 1.5 },
          { currency: "euro" },
          { paymentMethod: "" },
          { more: 1 }
        ]) {
          assert.strictEqual((yield* charge("bad", change)).status, 400)
        }
        const { url } = yield* GatewayServer
        assert.strictEqual((yield* send(`${url}/charges`, { body: {} })).status, 400)
        assert.strictEqual((yield* get("/charges/bad")).status, 404)
      })
    )

    it.effect("a command is stored, ends after its count, and a wrong one is refused", () =>
      Effect.gen(function* () {
        const { url } = yield* GatewayServer
        const put = (body: object) => send(`${url}/behaviour`, { method: "PUT", body })
        assert.strictEqual((yield* put({ mode: "down", times: 2 })).status, 200)
        // Another gateway on the same database starts with the same mode.
        const other = Context.get(yield* Layer.build(Layer.fresh(gateway)), GatewayServer).url
        assert.deepInclude((yield* send(`${other}/behaviour`)).json, { mode: "down", timesLeft: 2 })
        const answers = [yield* charge("command"), yield* charge("command"), yield* charge("command")]
        assert.deepStrictEqual(
          answers.map(({ status }) => status),
          [503, 503, 200]
        )
        assert.deepInclude((yield* send(`${url}/behaviour`)).json, { mode: "normal" })
        yield* put({ mode: "down", durationMillis: 0 })
        assert.strictEqual((yield* charge("command")).status, 200)
        for (const wrong of [{ mode: "sulky" }, { times: 0 }, { more: 1 }])
          assert.strictEqual((yield* put(wrong)).status, 400)
      })
    )

    it.effect("gateways that start together create their schema once", () =>
      Effect.gen(function* () {
        const { url } = yield* TestDatabase.make()
        const one = gateway.pipe(Layer.provide(Database.layer), Layer.provide(DatabaseSettings.layerOf({ url })))
        const gateways = yield* Effect.all(
          Array.from({ length: 4 }, () => Layer.build(Layer.fresh(one))),
          {
            concurrency: "unbounded"
          }
        )
        for (const running of gateways) {
          const { json } = yield* send(`${Context.get(running, GatewayServer).url}/ledger`)
          assert.deepStrictEqual(json, { totals: [], charges: [], refunds: [] })
        }
      })
    )
  }
)
