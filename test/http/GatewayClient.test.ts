import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Option } from "effect"
import { Gateway, GatewaySettings } from "../../src/application/Gateway.ts"
import { PaymentId } from "../../src/domain/Ids.ts"
import { AmountMinor, Currency } from "../../src/domain/Money.ts"
import { PaymentMethod } from "../../src/domain/Payment.ts"
import { Outages } from "../../src/platform/Outages.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import { gatewayContract } from "../contracts/Gateway.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { gateway, send } from "./Service.ts"

/** A client with that timeout. */
const clientOf = (timeoutMillis: number) =>
  Gateway.layerHttp.pipe(
    Layer.provide(
      Layer.effect(
        GatewaySettings,
        GatewayServer.useSync(({ url }) => ({ url, timeoutMillis, keyRetentionMillis: 86_400_000 }))
      )
    ),
    Layer.provide(NodeHttpClient.layerUndici)
  )

/** Longer than ten concurrent answers take on a busy machine. */
const client = clientOf(5_000).pipe(Layer.provideMerge(gateway), Layer.provideMerge(TestDatabase.layerPool))

/** The timeout for answers that never come. It is waited for, and the gateway must have done its work by then. */
const impatient = Layer.fresh(clientOf(2_000))

const command = (behaviour: object) =>
  GatewayServer.use(({ url }) => send(`${url}/behaviour`, { method: "PUT", body: behaviour }))

const ledger = GatewayServer.use(({ url }) => send(`${url}/ledger`))

gatewayContract("the HTTP client on the sandbox gateway", client, {
  totals: Effect.map(ledger, ({ json }) => ({
    captured: json.totals[0]?.captured ?? 0,
    refunded: json.totals[0]?.refunded ?? 0
  })),
  refundThere: (charge) =>
    GatewayServer.use(({ url }) => Effect.asVoid(send(`${url}/dashboard/refunds`, { body: { charge } })))
})

const id = PaymentId.make("01890a5d-b1f4-7a53-9f5e-0d6f8f0c2b11")
const amount = { amountMinor: AmountMinor.make(100), currency: Currency.make("EUR") }
const captured = { _tag: "Captured" as const, ...amount }
const charge = (method = "pm_ok") =>
  Gateway.use((service) => service.charge({ paymentId: id, amount, paymentMethod: PaymentMethod.make(method) }))
/** A first attempt, whose outcome is unknown. */
const failing = (method?: string) =>
  Effect.map(Effect.flip(charge(method)), ({ _tag }) => _tag).pipe(Effect.provide(impatient))

for (const [mode, isCaptured] of [
  ["down", false],
  ["error", false],
  ["error-after", true],
  ["timeout", false],
  ["timeout-after", true]
] as const) {
  it.live(
    `${mode}, once: the outcome is unknown, ${isCaptured ? "and it was captured" : "and nothing was charged"}; then it works`,
    () =>
      Effect.gen(function* () {
        yield* command({ mode, times: 1 })
        assert.strictEqual(yield* failing(), "OutcomeUnknown")
        const found = yield* Gateway.use((service) => service.lookUpCharge(id))
        assert.strictEqual(Option.isSome(found), isCaptured)
        assert.deepStrictEqual(yield* charge(), captured)
        assert.strictEqual((yield* ledger).json.totals[0].captured, 1)
      }).pipe(Effect.provide(client))
  )
}

it.live("a failed look-up is an unknown outcome, not an absent charge", () =>
  Effect.gen(function* () {
    yield* command({ mode: "down" })
    const { lookUpCharge, lookUpRefund } = yield* Gateway
    assert.strictEqual((yield* Effect.flip(lookUpCharge(id)))._tag, "OutcomeUnknown")
    assert.strictEqual((yield* Effect.flip(lookUpRefund(id)))._tag, "OutcomeUnknown")
    yield* command({})
    assert.isTrue(Option.isNone(yield* lookUpCharge(id)))
  }).pipe(Effect.provide(client))
)

for (const [method, isCaptured] of [
  ["pm_flaky", false],
  ["pm_timeout_then_nothing", false],
  ["pm_timeout_then_captured", true]
] as const) {
  it.live(
    `${method}: unknown at first, ${isCaptured ? "captured already" : "nothing charged"}; the same key again captures once`,
    () =>
      Effect.gen(function* () {
        assert.strictEqual(yield* failing(method), "OutcomeUnknown")
        assert.strictEqual(Option.isSome(yield* Gateway.use((service) => service.lookUpCharge(id))), isCaptured)
        assert.deepStrictEqual(yield* charge(method), captured)
        assert.strictEqual((yield* ledger).json.totals[0].captured, 1)
      }).pipe(Effect.provide(client))
  )
}

it.live("a slow gateway's answer counts, within the timeout", () =>
  Effect.gen(function* () {
    yield* command({ mode: "slow", delayMillis: 100 })
    assert.deepStrictEqual(yield* charge(), captured)
    yield* command({ mode: "slow", delayMillis: 60_000, times: 1 })
    assert.strictEqual(yield* failing(), "OutcomeUnknown")
    yield* charge()
  }).pipe(Effect.provide(client))
)

it.live("a key is kept for its retention, and charges again after it: the client must not repeat it then", () =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    yield* charge()
    yield* DatabaseClock.advance("23 hours")
    yield* charge()
    assert.strictEqual((yield* ledger).json.totals[0].captured, 1)
    yield* DatabaseClock.advance("2 hours")
    assert.isTrue(Option.isNone(yield* Gateway.use((service) => service.lookUpCharge(id))))
    yield* charge()
    assert.strictEqual((yield* ledger).json.totals[0].captured, 2)
  }).pipe(Effect.provide(client))
)

it.live("refunds never exceed the capture, whatever their keys", () =>
  Effect.gen(function* () {
    yield* charge()
    const { url } = yield* GatewayServer
    const ask = (key: string, change: object = {}) =>
      send(`${url}/refunds`, {
        body: { charge: id, amountMinor: 100, currency: "EUR", ...change },
        headers: { "idempotency-key": key }
      })
    const answers = yield* Effect.all(
      ["a", "b", "c"].map((key) => ask(key)),
      { concurrency: "unbounded" }
    )
    assert.deepStrictEqual(
      answers.map(({ status }) => status).toSorted((a, b) => a - b),
      [200, 422, 422]
    )
    assert.strictEqual((yield* ask("d", { currency: "USD" })).status, 422)
    assert.strictEqual((yield* ask("e", { amountMinor: 0 })).status, 400)
    const { json } = yield* ledger
    assert.deepInclude(json.totals[0], { captured: 1, refunded: 1, capturedMinor: "100", refundedMinor: "100" })
  }).pipe(Effect.provide(client))
)

it.live("an unreachable gateway is an outage, and the first answer is its end; a declined charge is no outage", () =>
  Effect.gen(function* () {
    const told: Array<string> = []
    const outages = Layer.succeed(Outages, {
      failed: (part, { subject }) => Effect.sync(() => void told.push(`${part}: ${subject}`)),
      recovered: (part) => Effect.sync(() => void told.push(`${part} again`))
    })
    const unreachable = Layer.succeed(GatewaySettings, {
      url: "http://127.0.0.1:1",
      timeoutMillis: 5_000,
      keyRetentionMillis: 86_400_000
    })
    const nowhere = Gateway.layerHttp.pipe(Layer.provide(NodeHttpClient.layerUndici), Layer.provide(unreachable))
    const { _tag } = yield* Effect.flip(charge()).pipe(Effect.provide(Layer.provide(nowhere, outages)))
    assert.strictEqual(_tag, "OutcomeUnknown")
    assert.deepStrictEqual(told.splice(0), ["charges and refunds: the payment gateway"])
    yield* charge("pm_declined").pipe(Effect.provide(Layer.provide(Layer.fresh(clientOf(5_000)), outages)))
    assert.deepStrictEqual(told, ["charges and refunds again"])
  }).pipe(Effect.provide(gateway.pipe(Layer.provideMerge(TestDatabase.layerPool))))
)
