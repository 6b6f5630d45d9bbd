/** Access to /admin: nobody without a credential, a viewer for reads, an operator for everything. */
import { assert, layer, type Vitest } from "@effect/vitest"
import { Effect, Layer, Result, Schema } from "effect"
import { HostSettings } from "../../src/http/access/AllowedHosts.ts"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import { AccessSettings } from "../../src/http/access/Credentials.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { anyPort, newOrder, send, underHttpOn } from "./Service.ts"

const shop = ApiKeys.draw("shop", "customer")
const wall = ApiKeys.draw("wall", "viewer")
const desk = ApiKeys.draw("desk", "operator")
const keys = Result.getOrThrow(ApiKeys.parse([shop, wall, desk].map(({ entry }) => entry).join(",")))
const adminToken = "a token of sixteen and more".replaceAll(" ", "-")

const serviceWith = (settings: Layer.Layer<never>) =>
  HttpServer.layer.pipe(
    Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
    Layer.provide(settings),
    Layer.provideMerge(underHttpOn(TestDatabase.layer))
  )

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
const id = "01890a5d-ac96-774b-bcce-b302099a8057"
const signIn = "POST /admin/session"

/** All routes under /admin that the documentation knows, and HEAD of those that read. The sign-in has its credential in the body. */
const adminRoutes = Effect.gen(function* () {
  const { url } = yield* HttpServer.BoundAddress
  const { json } = yield* send(`${url}/openapi.json`)
  const known = Object.entries<object>(json.paths)
    .filter(([path]) => path.startsWith("/admin/"))
    .flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.replaceAll(/\{\w+\}/g, id)}`)
    )
  return [...known, ...known.filter((route) => route.startsWith("GET ")).map((route) => route.replace("GET", "HEAD"))]
    .filter((route) => route !== signIn)
    .toSorted()
})

/** A streaming answer never ends: only its head is read. */
const ask = (route: string, headers: Readonly<Record<string, string>> = {}) =>
  Effect.flatMap(HttpServer.BoundAddress, ({ url }) =>
    Effect.promise(async (signal) => {
      const [method = "", path = ""] = route.split(" ")
      const response = await fetch(`${url}${path}`, { method, headers, signal, redirect: "manual" })
      await response.body?.cancel()
      return response
    })
  )

/** After many guesses at ADMIN_TOKEN the answer is 429. */
const isRefused = ({ headers, status }: Response) =>
  (status === 401 ? headers.get("www-authenticate") === "Bearer" : status === 429 && headers.has("retry-after")) &&
  headers.get("content-type") === "application/problem+json"

/** Any value of a header. */
const HeaderText = Schema.String.check(Schema.isPattern(/^[\x21-\x7e][\x20-\x7e]{0,80}$/))
const Guess = Schema.Struct({
  route: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 10_000 })),
  authorization: Schema.UndefinedOr(HeaderText),
  cookie: Schema.UndefinedOr(HeaderText),
  operator: Schema.UndefinedOr(HeaderText)
})

const nobodyGetsIn = (it: Vitest.MethodsNonLive<HttpServer.BoundAddress>) => {
  it.effect("no route under /admin answers without a credential", () =>
    Effect.gen(function* () {
      const { port } = yield* HttpServer.BoundAddress
      const routes = yield* adminRoutes
      assert.include(routes, "GET /admin/session")
      for (const route of routes) {
        for (const headers of [
          { accept: "*/*" },
          bearer("wrong"),
          bearer(""),
          { authorization: `Basic ${adminToken}` },
          { authorization: adminToken },
          { cookie: `paid_once_session_${port}=` },
          { cookie: `paid_once_session_${port}=${adminToken}` },
          { "x-operator": "admin" },
          { "x-forwarded-for": "127.0.0.1" }
        ]) {
          assert.isTrue(isRefused(yield* ask(route, headers)), `${route} ${JSON.stringify(headers)}`)
        }
      }
    })
  )

  it.effect.prop(
    "whatever a stranger sends, no route under /admin answers",
    [Guess],
    ([{ authorization, cookie, operator, route }]) =>
      Effect.gen(function* () {
        const routes = yield* adminRoutes
        const response = yield* ask(routes[route % routes.length]!, {
          ...(authorization === undefined ? {} : { authorization }),
          ...(cookie === undefined ? {} : { cookie }),
          ...(operator === undefined ? {} : { "x-operator": operator })
        })
        assert.isTrue(isRefused(response), String(response.status))
      }),
    { arbitrary: { runs: 100 } }
  )
}

layer(serviceWith(Layer.empty), { excludeTestServices: true })("without keys, on loopback", (it) => {
  nobodyGetsIn(it)

  it.effect("the other routes need no credential", () =>
    Effect.gen(function* () {
      const { url } = yield* HttpServer.BoundAddress
      assert.strictEqual((yield* send(`${url}/orders`, { body: newOrder })).status, 201)
      assert.strictEqual((yield* send(`${url}/metrics`)).status, 200)
    })
  )
})

layer(serviceWith(Layer.succeed(AccessSettings, { keys, adminToken: ApiKeys.ofAdmin(adminToken) })), {
  excludeTestServices: true
})("with keys and ADMIN_TOKEN", (it) => {
  it.effect("a viewer reads, and gets 403 for each change; a customer gets 403 for both", () =>
    Effect.gen(function* () {
      for (const route of yield* adminRoutes) {
        const isRead = /^(GET|HEAD) /.test(route)
        const asViewer = yield* ask(route, bearer(wall.key))
        // Signing out changes nothing but one's own session.
        assert.strictEqual(asViewer.status === 403, !isRead && route !== "DELETE /admin/session", route)
        assert.notStrictEqual(asViewer.status, 401, route)
        assert.strictEqual((yield* ask(route, bearer(shop.key))).status, 403, route)
      }
      for (const route of ["GET /orders", "GET /metrics", "POST /reports"]) {
        assert.strictEqual((yield* ask(route, bearer(wall.key))).status, 403, route)
      }
    })
  )

  it.effect("a key of scope operator and ADMIN_TOKEN reach everything", () =>
    Effect.gen(function* () {
      for (const route of [...(yield* adminRoutes), "GET /orders", "GET /metrics"]) {
        for (const token of [desk.key, adminToken]) {
          assert.notInclude([401, 403], (yield* ask(route, bearer(token))).status, route)
        }
      }
    })
  )

  it.effect("the actor is the credential's name, and the person's where X-Operator tells it", () =>
    Effect.gen(function* () {
      const { url } = yield* HttpServer.BoundAddress
      const actor = (token: string, operator?: string) =>
        Effect.map(
          send(`${url}/admin/session`, {
            headers: { ...bearer(token), ...(operator === undefined ? {} : { "x-operator": operator }) }
          }),
          ({ json, status }) => (status === 200 ? [json.actor, json.canWrite] : json.errors)
        )
      assert.deepStrictEqual(yield* actor(adminToken), ["admin", true])
      assert.deepStrictEqual(yield* actor(adminToken, "ada"), ["admin/ada", true])
      assert.deepStrictEqual(yield* actor(desk.key, " Ada Lovelace "), ["desk/Ada Lovelace", true])
      assert.deepStrictEqual(yield* actor(wall.key, encodeURIComponent("Łukasz 王")), ["wall/Łukasz 王", false])
      const refused = [
        {
          in: "header",
          pointer: "/x-operator",
          message: "must be 1 to 64 printable characters, percent-encoded where they are not ASCII"
        }
      ]
      for (const operator of ["", "%20", "x".repeat(65), "%", "%ff", "%00", "a%0ab", "%e2%80%ae", "ø", "a%E2%80%A8b"]) {
        assert.deepStrictEqual(yield* actor(adminToken, operator), refused, operator)
      }
    })
  )

  // Last: the guesses use up what the address may try.
  nobodyGetsIn(it)
})

layer(
  serviceWith(
    Layer.mergeAll(
      Layer.succeed(AccessSettings, { keys: [keys[0]!] }),
      Layer.succeed(HostSettings, { host: "0.0.0.0", publicHosts: [] })
    )
  ),
  { excludeTestServices: true }
)("with a customer's key alone, on a host that others reach", (it) => {
  nobodyGetsIn(it)

  it.effect("no link is drawn, and the refusal names what to set", () =>
    Effect.gen(function* () {
      const { consoleUrl, url } = yield* HttpServer.BoundAddress
      assert.strictEqual(consoleUrl, `${url}/console`)
      const { json } = yield* send(`${url}/admin/session`)
      assert.match(json.detail, /set ADMIN_TOKEN, or add a key of scope operator to API_KEYS/)
    })
  )
})
