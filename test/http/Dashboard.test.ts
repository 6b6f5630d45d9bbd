/** Refunds and disputes of the gateway's dashboard reach the service by signed webhook, over real sockets. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import { eventually } from "../support/Counters.ts"
import { newOrder, send, service, webhookSecret } from "./Service.ts"

/** An order that is paid at the sandbox gateway, which reports to the service and signs with this secret. */
const paidOrder = Effect.fnUntraced(function* (secret: Redacted.Redacted = webhookSecret) {
  const { url } = yield* BoundAddress
  const gateway = yield* GatewayServer
  yield* gateway.reportTo({ url: `${url}/webhooks/gateway`, secret })
  const order = `${url}/orders/${(yield* send(`${url}/orders`, { body: newOrder })).json.id}`
  const headers = { "idempotency-key": "k" }
  yield* send(`${order}/pay`, { body: { paymentMethod: "pm_ok" }, headers })
  const { charges } = (yield* send(`${gateway.url}/ledger`)).json
  const charge: string = charges[0].key
  const payment = `${url}/payments/${charge}`
  const until = (resource: string, status: string) =>
    eventually(
      `${resource} to be ${status}`,
      Effect.map(send(resource), ({ json }) => json.status === status)
    )
  return { charge, dashboard: `${gateway.url}/dashboard`, order, payment, until }
})

it.live("a refund in the gateway's dashboard refunds the order", () =>
  Effect.gen(function* () {
    const { charge, dashboard, order, payment, until } = yield* paidOrder()
    assert.strictEqual((yield* send(`${dashboard}/refunds`, { body: { charge } })).status, 200)
    yield* until(order, "refunded")
    assert.deepInclude((yield* send(payment)).json, { status: "refunded", capturedMinor: 2_599, refundedMinor: 2_599 })
    assert.strictEqual((yield* send(`${order}/refund`, { method: "POST" })).status, 409)
    assert.strictEqual((yield* send(`${dashboard}/refunds`, { body: { charge } })).status, 422)
  }).pipe(Effect.provide(service))
)

it.live("a refund of a part, and a dispute, make the payment manual and leave the order paid", () =>
  Effect.gen(function* () {
    const first = yield* paidOrder()
    yield* send(`${first.dashboard}/refunds`, { body: { charge: first.charge, amountMinor: 99 } })
    yield* first.until(first.payment, "manual")
    const second = yield* paidOrder()
    yield* send(`${second.dashboard}/disputes`, { body: { charge: second.charge, reason: "fraud" } })
    yield* second.until(second.payment, "manual")
    for (const { order } of [first, second]) assert.strictEqual((yield* send(order)).json.status, "paid")
    assert.strictEqual((yield* send(`${first.dashboard}/disputes`, { body: { charge: "nobody's" } })).status, 404)
  }).pipe(Effect.provide(service))
)

it.live("a report before its charge has an outcome is not accepted, and is sent again", () =>
  Effect.gen(function* () {
    const { url } = yield* BoundAddress
    const gateway = yield* GatewayServer
    const order = `${url}/orders/${(yield* send(`${url}/orders`, { body: newOrder })).json.id}`
    // Captured, and answered with an error: the charge has no outcome here.
    yield* send(`${gateway.url}/behaviour`, {
      method: "PUT",
      body: { mode: "error-after", times: 1, webhooks: "never" }
    })
    yield* send(`${order}/pay`, { body: { paymentMethod: "pm_ok" }, headers: { "idempotency-key": "k" } })
    const charge: string = (yield* send(`${gateway.url}/ledger`)).json.charges[0].key
    yield* gateway.reportTo({ url: `${url}/webhooks/gateway`, secret: webhookSecret })
    // The look-up fails, too, and then the gateway is well again.
    yield* send(`${gateway.url}/behaviour`, { method: "PUT", body: { mode: "down", times: 1, webhooks: "first" } })
    const { status } = yield* send(`${gateway.url}/dashboard/refunds`, { body: { charge } })
    assert.strictEqual(status, 200)
    yield* eventually(
      "the order to be refunded",
      Effect.map(send(order), ({ json }) => json.status === "refunded")
    )
  }).pipe(Effect.provide(service))
)
