/** How many of the places for requests one caller may hold. */
import { assert, it, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Ref, Result } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { connect } from "node:net"
import * as Access from "../../src/http/access/Access.ts"
import { AccessSettings, Credentials } from "../../src/http/access/Credentials.ts"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import { AdmissionSettings } from "../../src/http/Admission.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import * as Turn from "../../src/platform/Turn.ts"
import { eventually } from "../support/Counters.ts"
import { ScriptedGateway } from "../support/ScriptedGateway.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { anyPort, newOrder, send, sendElsewhere, underHttpOn } from "./Service.ts"

const shop = ApiKeys.draw("shop", "customer")
const newShop = ApiKeys.draw("shop", "customer")
const other = ApiKeys.draw("other", "customer")
const keys = Result.getOrThrow(ApiKeys.parse([shop, newShop, other].map(({ entry }) => entry).join(",")))
const bearer = ({ key }: typeof shop) => ({ authorization: `Bearer ${key}` })

const fourPlaces = Layer.succeed(AdmissionSettings, { maxRequests: 4, answerTimeoutMillis: 600_000 })
const eightPlaces = Layer.merge(
  Layer.succeed(AdmissionSettings, { maxRequests: 8, answerTimeoutMillis: 600_000 }),
  Layer.succeed(AccessSettings, { keys })
)
const withKeys = Layer.merge(fourPlaces, Layer.succeed(AccessSettings, { keys }))

const gateway = new ScriptedGateway()
const service = HttpServer.layer.pipe(
  Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
  Layer.provide(withKeys),
  Layer.provideMerge(underHttpOn(TestDatabase.layer, gateway.layer))
)

layer(service, { excludeTestServices: true })((it) => {
  it.effect("a key whose payments wait for the gateway holds half of the places, and others are served", () =>
    Effect.gen(function* () {
      const { url } = yield* HttpServer.BoundAddress
      const place = (by: typeof shop) =>
        Effect.map(send(`${url}/orders`, { body: newOrder, headers: bearer(by) }), ({ json }) => json.id as string)
      const pay = (id: string, by: typeof shop) =>
        send(`${url}/orders/${id}/pay`, {
          body: { paymentMethod: "pm_ok" },
          headers: { ...bearer(by), "idempotency-key": id }
        })
      const orders = yield* Effect.replicateEffect(place(shop), 3)
      const theirs = yield* place(other)
      const answers = yield* Deferred.make<void>()
      yield* Effect.addFinalizer(() => Deferred.succeed(answers, undefined))
      gateway.next("before charge", Deferred.await(answers), Deferred.await(answers))
      const waiting = yield* Effect.forkChild(
        Effect.forEach(orders.slice(0, 2), (id) => pay(id, shop), { concurrency: "unbounded" })
      )
      yield* eventually(
        "both payments to wait for the gateway",
        Effect.sync(() => gateway.callsOf("charge").length === 2)
      )
      // A name has one share, whichever of its keys it sends.
      for (const by of [shop, newShop]) {
        const refused = yield* pay(orders[2]!, by)
        assert.deepStrictEqual(
          [refused.status, refused.headers.get("retry-after"), refused.headers.get("content-type")],
          [429, "1", "application/problem+json"]
        )
        assert.match(refused.json.detail, /^as many requests are in work for this caller as it leaves to others/)
      }
      assert.strictEqual((yield* pay(theirs, other)).status, 200)
      assert.strictEqual((yield* send(`${url}/openapi.json`)).status, 200)
      assert.strictEqual((yield* send(`${url}/health/ready`, { headers: bearer(shop) })).status, 200)
      yield* Deferred.succeed(answers, undefined)
      for (const { status } of yield* Fiber.join(waiting)) assert.strictEqual(status, 200)
      assert.strictEqual((yield* pay(orders[2]!, shop)).status, 200)
    })
  )
})

/** A server that knows its callers. A request to /wait is answered once the test says so. */
const serve = Effect.fnUntraced(function* (variable: "PORT" | "GATEWAY_PORT") {
  const begun = yield* Ref.make(0)
  const release = yield* Deferred.make<void>()
  const app = Effect.gen(function* () {
    const { url } = yield* HttpServerRequest.HttpServerRequest
    if (url === "/wait") {
      yield* Ref.update(begun, (count) => count + 1)
      yield* Turn.aside(Deferred.await(release))
    }
    if (url === "/body") yield* Turn.aside(Effect.flatMap(HttpServerRequest.HttpServerRequest, (it) => it.text))
    return HttpServerResponse.text("ok")
  })
  const { address, around, drain, server } = yield* HttpServer.listen({ host: "127.0.0.1", port: 0 }, variable)
  const identified = yield* Effect.provide(Access.identifying(around(app)), Credentials.layer)
  yield* server.serve(identified)
  yield* Effect.addFinalizer(() => Effect.andThen(Deferred.succeed(release, undefined), drain(0)))
  const ask = (path: string, by?: typeof shop) =>
    Effect.map(sendElsewhere(`${address.url}${path}`, by && { headers: bearer(by) }), ({ status }) => status)
  const occupy = Effect.fnUntraced(function* (count: number, by?: typeof shop) {
    const before = yield* Ref.get(begun)
    yield* Effect.forkChild(Effect.replicateEffect(ask("/wait", by), count, { concurrency: "unbounded" }))
    yield* eventually(
      `${count} requests to begin`,
      Effect.map(Ref.get(begun), (now) => now === before + count)
    )
  })
  return { ...address, ask, occupy }
})

it.live("requests without a valid key share half of the places by address, and keys don't wait behind them", () =>
  Effect.gen(function* () {
    const { ask, occupy, url } = yield* serve("PORT")
    yield* occupy(2)
    // Held against the document, as the gateway's reports have no rate limit.
    assert.strictEqual((yield* send(`${url}/webhooks/gateway`, { method: "POST" })).status, 429)
    assert.strictEqual(yield* ask("/"), 429)
    assert.strictEqual(yield* ask("/", { ...shop, key: "a guess" }), 429)
    assert.strictEqual(yield* ask("/", shop), 200)
  }).pipe(Effect.scoped, Effect.provide(Layer.mergeAll(withKeys, TestProcess.quiet, TestDatabase.layerPool)))
)

it.live("two callers that take all they get leave places to a third one", () =>
  Effect.gen(function* () {
    const { ask, occupy } = yield* serve("PORT")
    yield* occupy(4, shop)
    yield* occupy(2, other)
    for (const by of [shop, other]) assert.strictEqual(yield* ask("/", by), 429)
    assert.strictEqual(yield* ask("/"), 200)
  }).pipe(Effect.scoped, Effect.provide(Layer.mergeAll(eightPlaces, TestProcess.quiet, TestDatabase.layerPool)))
)

it.live("slow clients of one address keep neither it nor others out", () =>
  Effect.gen(function* () {
    const { ask, port } = yield* serve("PORT")
    for (let n = 0; n < 20; n++) {
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          const socket = connect(port, "127.0.0.1")
          socket.on("error", () => {})
          socket.write("POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
          return socket
        }),
        (socket) => Effect.sync(() => socket.destroy())
      )
    }
    assert.strictEqual(yield* ask("/", shop), 200)
    yield* eventually(
      "a place",
      Effect.map(ask("/"), (status) => status === 200),
      // Below the time that a request may take to arrive: after that, slow clients would leave by themselves.
      20
    )
  }).pipe(Effect.scoped, Effect.provide(Layer.mergeAll(withKeys, TestProcess.quiet, TestDatabase.layerPool)))
)

for (const [name, variable, settings] of [
  ["where no keys are configured, all is one caller on this machine, and may hold all places", "PORT", fourPlaces],
  ["the sandbox has one caller, the service, which may hold all places", "GATEWAY_PORT", withKeys]
] as const) {
  it.live(name, () =>
    Effect.gen(function* () {
      const { ask, occupy } = yield* serve(variable)
      yield* occupy(4)
      assert.strictEqual(yield* ask("/"), 503)
    }).pipe(Effect.scoped, Effect.provide(Layer.mergeAll(settings, TestProcess.quiet, TestDatabase.layerPool)))
  )
}
