import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { send, service } from "./Service.ts"

const newOrder = {
  customerId: "customer-1",
  currency: "EUR",
  lines: [{ sku: "book", quantity: 2, unitAmountMinor: 1_250 }, { sku: "pen", quantity: 1, unitAmountMinor: 99 }]
}

layer(service, { excludeTestServices: true })("HTTP", (it) => {
  it.effect("probe", () =>
    Effect.gen(function*() {
      const { url } = yield* BoundAddress
      const show = (a: any) => console.log(a.status, a.headers.get("content-type"), a.headers.get("location"), a.text.slice(0, 600))
      show(yield* send(`${url}/orders`, { body: newOrder }))
      show(yield* send(`${url}/orders`, { body: { ...newOrder, lines: [] } }))
      show(yield* send(`${url}/orders`, { body: { x: 1, customerId: 3, currency: "XXX", lines: [{ sku: "", quantity: 0.5, unitAmountMinor: "3", y: 1 }] } }))
      show(yield* send(`${url}/orders/abc/pay`, { body: { x: 1 } }))
      show(yield* send(`${url}/orders?limit=0&status=x&cursor=1&foo=1`))
      show(yield* send(`${url}/orders`))
      show(yield* send(`${url}/orders/%zz`))
      show(yield* send(`${url}/nope`))
      show(yield* send(`${url}/orders`, {method: "DELETE"}))
      show(yield* send(`${url}/health/live`))
      show(yield* send(`${url}/health/ready`))
      show(yield* send(`${url}/metrics`))
      const o = yield* send(`${url}/openapi.json`)
      console.log(o.text.length, Object.keys(o.json.paths), JSON.stringify(o.json.paths["/orders/{id}/pay"]).slice(0, 3000), Object.keys(o.json.components.schemas))
      console.log(JSON.stringify(o.json.paths["/orders"].get.parameters))
      show(yield* send(`${url}/docs`))
      assert.ok(true)
    }))
})
