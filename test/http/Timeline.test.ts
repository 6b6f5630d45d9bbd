/** The timeline of an order once retention has dropped a part of it. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { publishAll } from "../support/Published.ts"
import { newOrder, send, service } from "./Service.ts"

layer(Layer.provideMerge(Queue.layer, service), { excludeTestServices: true })("Timeline", (it) => {
  it.effect("is complete until retention has dropped events of the order, and says so from then on", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      yield* DatabaseClock.install
      const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
      yield* publishAll
      const timeline = Effect.map(send(`${url}/orders/${order.id}/timeline`), ({ json }) => ({
        complete: json.complete,
        events: json.events.map((event: { type: string; delivery: { state: string } }) => [
          event.type,
          event.delivery.state
        ])
      }))
      assert.deepStrictEqual(yield* timeline, { complete: true, events: [["OrderPlaced", "published"]] })
      yield* DatabaseClock.advance("5 days")
      const paid = yield* send(`${url}/orders/${order.id}/pay`, {
        body: { paymentMethod: "pm_ok" },
        headers: { "idempotency-key": "days-later" }
      })
      assert.strictEqual(paid.status, 200)
      yield* Maintenance.runOnce()
      assert.deepStrictEqual(yield* timeline, { complete: false, events: [["OrderPaid", "queued"]] })
      yield* publishAll
      assert.deepStrictEqual(yield* timeline, { complete: false, events: [["OrderPaid", "published"]] })
    })
  )
})
