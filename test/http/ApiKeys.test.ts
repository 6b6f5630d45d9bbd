/** The keys of callers, their scopes, their limits, and what stays open. */
import { assert, it, layer } from "@effect/vitest"
import { Context, Effect, Layer, Logger, Redacted, References, Result } from "effect"
import { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import { AccessSettings } from "../../src/http/access/Credentials.ts"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import { Readiness } from "../../src/http/Health.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import * as RequestContext from "../../src/http/RequestContext.ts"
import { RateLimitSettings } from "../../src/http/access/RateLimits.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import { anyPort, newOrder, send, underHttpOn, webhookSecret } from "./Service.ts"
import * as EventStream from "../support/EventStream.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const shop = ApiKeys.draw("shop", "customer")
const newShop = ApiKeys.draw("shop", "customer")
const other = ApiKeys.draw("other", "customer")
const desk = ApiKeys.draw("desk", "operator")
const keys = Result.getOrThrow(ApiKeys.parse([shop, newShop, other, desk].map(({ entry }) => entry).join(", ")))

/** Log lines with their annotations. */
const logged: Array<Record<string, unknown>> = []
const logger = Logger.make(({ fiber, message }) => {
  logged.push({ message: String(message), ...fiber.getRef(References.CurrentLogAnnotations) })
})

const serviceWith = (settings: Layer.Layer<never>) =>
  HttpServer.layer.pipe(
    Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
    Layer.provide(Layer.succeed(AccessSettings, { keys })),
    // Requests have the logger that is below.
    Layer.provide(Layer.fresh(RequestContext.layer)),
    Layer.provide(Layer.succeed(References.MinimumLogLevel, "Debug")),
    Layer.provide(Logger.layer([logger])),
    Layer.provide(settings),
    Layer.provideMerge(underHttpOn(TestDatabase.layer))
  )

const bearer = (key: string) => ({ authorization: `Bearer ${key}` })

const id = "01890a5d-ac96-774b-bcce-b302099a8057"
const door = "POST /admin/session"
const open = new Set([
  "GET /health/live",
  "GET /health/ready",
  "GET /openapi.json",
  "GET /docs",
  "POST /webhooks/gateway"
])
const forOperators = (route: string) =>
  ["GET /metrics", "POST /reports", `GET /reports/${id}`, `GET /tasks/${id}`].includes(route) ||
  (/^\w+ \/admin\//.test(route) && route !== door)

/** All routes that the documentation knows, and those beside the API. */
const routes = Effect.gen(function* () {
  const { url } = yield* HttpServer.BoundAddress
  const { json } = yield* send(`${url}/openapi.json`)
  const known = Object.entries<object>(json.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.replaceAll(/\{\w+\}/g, id)}`)
  )
  // The sign-in has a credential in its body: Sessions.test.ts asks it.
  return [...known.filter((route) => route !== door), "GET /metrics", "GET /openapi.json", "GET /docs"]
})

const ask = (route: string, headers: Record<string, string> = {}) =>
  Effect.flatMap(HttpServer.BoundAddress, ({ url }) => {
    const [method = "", path = ""] = route.split(" ")
    return send(`${url}${path}`, { method, headers })
  })

layer(serviceWith(Layer.empty), { excludeTestServices: true })("API keys", (it) => {
  it.effect("every route needs a key but health, the documentation and the signed webhook", () =>
    Effect.gen(function* () {
      const all = yield* routes
      assert.isAbove(all.length, 15)
      for (const route of all) {
        for (const headers of [
          {},
          bearer("wrong"),
          bearer(`${shop.key}x`),
          bearer(shop.entry.split(":")[2]!),
          { authorization: `Basic ${shop.key}` },
          { authorization: shop.key },
          { authorization: "Bearer" },
          { authorization: `Bearer ${shop.key} ${desk.key}` }
        ]) {
          const answer = yield* ask(route, headers)
          if (open.has(route)) {
            // The webhook refuses for its own reason: the request is not signed.
            if (route === "POST /webhooks/gateway") assert.match(answer.json.detail, /^gateway-signature must be /)
            else assert.notInclude([401, 403], answer.status, route)
            continue
          }
          assert.deepStrictEqual(
            [answer.status, answer.headers.get("content-type"), answer.headers.get("www-authenticate")],
            [401, "application/problem+json", "Bearer"],
            `${route} ${JSON.stringify(headers)}`
          )
        }
      }
    })
  )

  it.effect("a customer's key reaches orders and payments, an operator's key everything", () =>
    Effect.gen(function* () {
      const { url } = yield* HttpServer.BoundAddress
      for (const route of yield* routes) {
        const asCustomer = yield* ask(route, bearer(shop.key))
        assert.strictEqual(asCustomer.status === 403, forOperators(route), `${route}: ${asCustomer.status}`)
        if (route === "GET /admin/stream") {
          // An answer without an end.
          const { status } = yield* Effect.scoped(EventStream.listen(`${url}/admin/stream`, bearer(desk.key)))
          assert.strictEqual(status, 200)
          continue
        }
        for (const { key } of [shop, newShop, other, desk]) {
          const { json, status } = yield* ask(route, bearer(key))
          // The webhook asks for a signature instead.
          if (route !== "POST /webhooks/gateway") assert.notStrictEqual(status, 401, route)
          else assert.match(json.detail, /^gateway-signature must be /)
        }
        assert.notStrictEqual((yield* ask(route, bearer(desk.key))).status, 403, route)
      }
      assert.strictEqual((yield* ask("GET /orders", { authorization: `bearer  ${shop.key}` })).status, 200)
    })
  )

  it.effect("however a path is spelt, it needs the scope of the route that it leads to", () =>
    Effect.gen(function* () {
      for (const route of ["GET /%6detrics", "GET /%74asks/1", "GET /metrics?/orders", "GET /metrics;/orders"]) {
        assert.include([403, 404], (yield* ask(route, bearer(shop.key))).status, route)
        assert.include([401, 404], (yield* ask(route)).status, route)
      }
    })
  )

  it.effect("a process without requests shows its metrics to operators alone, and its health to anybody", () =>
    Effect.gen(function* () {
      const health = HttpServer.layerHealth.pipe(
        Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
        Layer.provide(Layer.succeed(AccessSettings, { keys })),
        Layer.provideMerge(Readiness.layer),
        Layer.fresh
      )
      const { url } = Context.get(yield* Layer.build(health), HttpServer.BoundAddress)
      assert.strictEqual((yield* send(`${url}/health/live`)).status, 200)
      assert.strictEqual((yield* send(`${url}/metrics`)).status, 401)
      assert.strictEqual((yield* send(`${url}/metrics`, { headers: bearer(shop.key) })).status, 403)
      assert.strictEqual((yield* send(`${url}/metrics`, { headers: bearer(desk.key) })).status, 200)
    })
  )

  it.effect("a request that is refused changes nothing", () =>
    Effect.gen(function* () {
      const { url } = yield* HttpServer.BoundAddress
      const sql = yield* SqlClient.SqlClient
      const count = sql`SELECT count(*)::int4 AS n FROM orders`
      const before = yield* count
      assert.strictEqual((yield* send(`${url}/orders`, { body: newOrder })).status, 401)
      assert.deepStrictEqual(yield* count, before)
    })
  )

  it.effect("an Idempotency-Key belongs to its caller, whichever of its API keys it sends", () =>
    Effect.gen(function* () {
      const { url } = yield* HttpServer.BoundAddress
      const place = (key: string, customerId: string) =>
        send(`${url}/orders`, {
          body: { ...newOrder, customerId },
          headers: { ...bearer(key), "idempotency-key": "one" }
        })
      const first = yield* place(shop.key, "a")
      assert.strictEqual(first.status, 201)
      assert.strictEqual((yield* place(newShop.key, "a")).text, first.text)
      assert.strictEqual((yield* place(shop.key, "b")).status, 422)
      const theirs = yield* place(other.key, "b")
      assert.deepStrictEqual([theirs.status, theirs.json.customerId], [201, "b"])
      assert.strictEqual((yield* place(other.key, "b")).text, theirs.text)
      const refund = (key: string) =>
        send(`${url}/orders/${first.json.id}/cancel`, {
          method: "POST",
          headers: { ...bearer(key), "idempotency-key": "two" }
        })
      assert.strictEqual((yield* refund(shop.key)).status, 200)
      const sql = yield* SqlClient.SqlClient
      yield* refund(other.key)
      assert.deepStrictEqual(
        yield* sql`SELECT caller FROM idempotency_keys WHERE idempotency_key = 'two' ORDER BY caller`,
        [{ caller: "other" }, { caller: "shop" }]
      )
    })
  )

  it.effect("the log names the caller of each request", () =>
    Effect.gen(function* () {
      logged.length = 0
      yield* ask(`GET /orders/${id}`, bearer(desk.key))
      yield* ask(`GET /orders/${id}`, bearer("wrong"))
      const callers = logged.filter(({ message }) => message === "request").map(({ caller }) => caller)
      assert.deepStrictEqual(callers, ["desk", "anonymous"])
      assert.notInclude(JSON.stringify(logged), desk.key)
    })
  )

  it.effect("the log names the gateway where it has signed, and nobody else can take its name", () =>
    Effect.gen(function* () {
      const { url } = yield* HttpServer.BoundAddress
      const body = `{"type":"refund.made","key":"re_of_nobody"}`
      const report = (secret: Redacted.Redacted) =>
        send(`${url}/webhooks/gateway`, {
          method: "POST",
          body,
          headers: { "gateway-signature": SignedMessage.sign(secret, Math.floor(Date.now() / 1000), body) }
        })
      logged.length = 0
      assert.strictEqual((yield* report(Redacted.make("somebody-elses-secret"))).status, 401)
      assert.deepStrictEqual(
        logged.filter(({ caller }) => caller === "gateway"),
        []
      )
      assert.strictEqual((yield* report(webhookSecret)).status, 200)
      const line = logged.find(({ message }) => String(message).includes("re_of_nobody"))
      assert.strictEqual(line?.["caller"], "gateway")
    })
  )

  it.effect("openapi.json tells which endpoints take a key, and that none is needed where none is configured", () =>
    Effect.gen(function* () {
      const { json } = yield* ask("GET /openapi.json")
      assert.deepStrictEqual(json.components.securitySchemes.apiKey.scheme, "bearer")
      for (const [path, methods] of Object.entries<Record<string, { security: unknown; responses: object }>>(
        json.paths
      )) {
        for (const [method, { responses, security }] of Object.entries(methods)) {
          const isOpen = open.has(`${method.toUpperCase()} ${path}`)
          const isDoor = `${method.toUpperCase()} ${path}` === door
          const without = path.startsWith("/admin/") ? [] : [{}]
          assert.deepStrictEqual(security, isOpen || isDoor ? [] : [{ apiKey: [] }, { session: [] }, ...without], path)
          assert.strictEqual("401" in responses, !isOpen || isDoor || path === "/webhooks/gateway", path)
        }
      }
    })
  )
})

const limited = serviceWith(Layer.succeed(RateLimitSettings, { rateLimit: { limit: 5, windowMillis: 3_600_000 } }))

layer(limited, { excludeTestServices: true })("rate limits", (it) => {
  it.effect("a caller who asks too often gets 429 with Retry-After; others, health and the gateway are served", () =>
    Effect.gen(function* () {
      const { url } = yield* HttpServer.BoundAddress
      for (let n = 0; n < 5; n++) assert.strictEqual((yield* ask("GET /orders", bearer(shop.key))).status, 200)
      for (const { key } of [shop, newShop]) {
        const refused = yield* ask("GET /orders", bearer(key))
        assert.deepStrictEqual([refused.status, refused.headers.get("content-type")], [429, "application/problem+json"])
        const waitSeconds = Number(refused.headers.get("retry-after"))
        assert.isTrue(waitSeconds >= 1 && waitSeconds <= 720, String(waitSeconds))
      }
      assert.strictEqual((yield* ask("GET /orders", bearer(other.key))).status, 200)

      // Guesses count for the address, which other callers without a key share.
      for (let n = 0; n < 5; n++) assert.strictEqual((yield* ask("GET /orders", bearer(`guess ${n}`))).status, 401)
      assert.strictEqual((yield* ask("GET /orders", bearer("guess"))).status, 429)
      assert.strictEqual((yield* ask("GET /docs")).status, 429)
      assert.strictEqual((yield* ask("GET /orders", bearer(desk.key))).status, 200)
      for (let n = 0; n < 10; n++) {
        assert.strictEqual((yield* ask("GET /health/live")).status, 200)
        assert.strictEqual((yield* ask("GET /health/ready", bearer(shop.key))).status, 200)
        const body = JSON.stringify({ id: `report-${n}`, type: "charge.captured", key: id })
        const signature = SignedMessage.sign(webhookSecret, Math.floor(Date.now() / 1000), body)
        const report = yield* send(`${url}/webhooks/gateway`, { body, headers: { "gateway-signature": signature } })
        assert.strictEqual(report.status, 200)
      }
    })
  )
})

it("a list of keys that is wrong is refused by the entry's position, and shows no hash", () => {
  const hash = createHash("sha256").update("k").digest("hex")
  for (const [value, reason] of [
    [`shop:customer:${hash},desk:root:${hash}`, /^a comma-.*: in entry 2 the scope is customer, viewer or operator$/],
    [`shop:customer:${hash}0`, /in entry 1 the hash/],
    [`shop:customer:${hash}:more`, /in entry 1 the hash/],
    [`shop:customer`, /in entry 1 the hash/],
    [`shop:customer:${hash},`, /in entry 2 a name/],
    [`a b:customer:${hash}`, /in entry 1 a name/],
    [`anonymous:customer:${hash}`, /in entry 1 "anonymous" is the name of callers without a key/],
    [`admin:operator:${hash}`, /in entry 1 "admin" is the name of the owner of ADMIN_TOKEN/],
    [`shop:customer:${hash},desk:operator:${hash.toUpperCase()}`, /entries 1 and 2 have one hash/],
    [Array.from({ length: 101 }, (_, n) => `n${n}:customer:${hash}`).join(","), /at most 100/]
  ] as const) {
    const parsed = ApiKeys.parse(value)
    assert.isTrue(Result.isFailure(parsed), value)
    if (Result.isFailure(parsed)) {
      assert.match(parsed.failure, reason)
      assert.notInclude(parsed.failure.toLowerCase(), hash.slice(0, 16))
    }
  }
})
