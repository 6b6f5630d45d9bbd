/** The console's sign-in: what a token is exchanged for, how its session ends, and what guessing costs. */
import { assert, it, layer } from "@effect/vitest"
import { Effect, Layer, Logger, References, Result } from "effect"
import { TestClock } from "effect/testing"
import { HostSettings } from "../../src/http/access/AllowedHosts.ts"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import { AccessSettings } from "../../src/http/access/Credentials.ts"
import * as Guesses from "../../src/http/access/Guesses.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import { sendRaw } from "../support/RawHttp.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { anyPort, newOrder, send, underHttpOn } from "./Service.ts"

const wall = ApiKeys.draw("wall", "viewer")
const desk = ApiKeys.draw("desk", "operator")
const shop = ApiKeys.draw("shop", "customer")
const keys = Result.getOrThrow(ApiKeys.parse([wall, desk, shop].map(({ entry }) => entry).join(",")))
const adminToken = "correct-horse-battery"

/** Log lines with their annotations. */
const logged: Array<Record<string, unknown>> = []
const logger = Logger.make(({ fiber, message }) => {
  logged.push({ ...fiber.getRef(References.CurrentLogAnnotations), message: String(message) })
})

const serviceWith = (settings: Layer.Layer<never>) =>
  HttpServer.layer.pipe(
    Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
    Layer.provide(Logger.layer([logger])),
    Layer.provide(settings),
    Layer.provideMerge(underHttpOn(TestDatabase.layer))
  )

const publicHosts = Layer.succeed(HostSettings, {
  host: "127.0.0.1",
  publicHosts: [{ name: "shop.example", port: undefined }]
})

/** A request as a page of the service sends it, which may have another method, other headers or a body. */
const ask = (init: Parameters<typeof send>[1] = {}, path = "/admin/session") =>
  Effect.flatMap(HttpServer.BoundAddress, ({ url }) =>
    send(`${url}${path}`, { ...init, headers: { origin: url, ...init.headers } })
  )

const signIn = (token: string, headers: Record<string, string> = {}) => ask({ body: { token }, headers })

/** The cookie of an answer as the browser sends it, and its attributes. */
const cookieOf = ({ headers }: { readonly headers: Headers }) => {
  const [cookie = "", ...attributes] = (headers.getSetCookie()[0] ?? "").split("; ")
  return { cookie, attributes: attributes.map((one) => one.toLowerCase()).toSorted() }
}

const tokenOf = (consoleUrl: string | undefined) => new URL(consoleUrl ?? "").searchParams.get("token") ?? ""

layer(serviceWith(publicHosts), { excludeTestServices: true })("the link of the start", (it) => {
  it.effect("its token is good for one session, whose cookie reaches everything, and which a sign-out ends", () =>
    Effect.gen(function* () {
      const { consoleUrl, port, url } = yield* HttpServer.BoundAddress
      assert.match(consoleUrl ?? "", /^http:\/\/127\.0\.0\.1:\d+\/console\?token=[\w-]{43}$/)
      const token = tokenOf(consoleUrl)
      assert.match((yield* ask()).json.detail, /open the link that the service has printed at its start/)
      // The token is for the exchange alone.
      assert.strictEqual((yield* ask({ headers: { authorization: `Bearer ${token}` } })).status, 401)

      // Of many at once, one gets in.
      const answers = yield* Effect.all(
        Array.from({ length: 5 }, () => signIn(token)),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        answers.map(({ status }) => status).toSorted((a, b) => a - b),
        [204, 401, 401, 401, 401]
      )
      const { attributes, cookie } = cookieOf(answers.find(({ status }) => status === 204)!)
      assert.match(cookie, new RegExp(`^paid_once_session_${port}=[\\w-]{43}$`))
      assert.deepStrictEqual(attributes, ["httponly", "max-age=604800", "path=/", "samesite=strict"])
      assert.notInclude(cookie, token)
      assert.match((yield* signIn(token)).json.detail, /good once, and was used: a restart prints another.*ADMIN_TOKEN/)

      assert.deepStrictEqual((yield* ask({ headers: { cookie } })).json, { actor: "admin", canWrite: true })
      const placed = yield* ask({ headers: { cookie }, body: newOrder }, "/orders")
      assert.strictEqual(placed.status, 201)

      const out = yield* ask({ method: "DELETE", headers: { cookie } })
      assert.strictEqual(out.status, 204)
      assert.include(cookieOf(out).attributes, "max-age=0")
      assert.strictEqual((yield* ask({ headers: { cookie } })).status, 401)
      assert.strictEqual(url, `http://127.0.0.1:${port}`)
    })
  )
})

layer(
  serviceWith(
    Layer.merge(publicHosts, Layer.succeed(AccessSettings, { keys, adminToken: ApiKeys.ofAdmin(adminToken) }))
  ),
  { excludeTestServices: true }
)("with keys and ADMIN_TOKEN", (it) => {
  const cookieFor = (token: string) => Effect.map(signIn(token), (answer) => cookieOf(answer).cookie)

  it.effect("a session has the name and the scope of the credential that it was begun with", () =>
    Effect.gen(function* () {
      const { consoleUrl, url } = yield* HttpServer.BoundAddress
      assert.strictEqual(consoleUrl, `${url}/console`)
      for (const [token, session] of [
        [adminToken, { actor: "admin", canWrite: true }],
        [desk.key, { actor: "desk", canWrite: true }],
        [wall.key, { actor: "wall", canWrite: false }]
      ] as const) {
        const cookie = yield* cookieFor(token)
        assert.deepStrictEqual((yield* ask({ headers: { cookie } })).json, session)
        assert.strictEqual((yield* ask({ headers: { cookie } }, "/orders")).status, 200)
        const placed = yield* ask({ headers: { cookie }, body: newOrder }, "/orders")
        assert.strictEqual(placed.status, session.canWrite ? 201 : 403, session.actor)
      }
      assert.strictEqual((yield* signIn(shop.key)).status, 403)
      // Sent with the request, a wrong key is not made good by the cookie.
      const cookie = yield* cookieFor(desk.key)
      assert.strictEqual((yield* ask({ headers: { cookie, authorization: "Bearer wrong" } })).status, 401)
    })
  )

  it.effect("a cookie counts for pages of this service alone, and a change needs their Origin", () =>
    Effect.gen(function* () {
      const { port, url } = yield* HttpServer.BoundAddress
      const cookie = yield* cookieFor(desk.key)
      const read = (headers: Record<string, string>) =>
        Effect.map(send(`${url}/admin/session`, { headers: { cookie, ...headers } }), ({ status }) => status)
      for (const site of ["same-origin", "none"]) assert.strictEqual(yield* read({ "sec-fetch-site": site }), 200, site)
      // To a browser another port is the same site: SameSite lets the cookie through.
      for (const site of ["same-site", "cross-site", ""]) {
        assert.strictEqual(yield* read({ "sec-fetch-site": site }), 401, site)
      }
      assert.strictEqual(yield* read({ origin: "http://127.0.0.1:1" }), 403)
      const signOut = (headers: Record<string, string>) =>
        Effect.map(
          send(`${url}/admin/session`, { method: "DELETE", headers: { cookie, ...headers } }),
          ({ status }) => status
        )
      const withoutOrigin = yield* send(`${url}/admin/session`, { method: "DELETE", headers: { cookie } })
      assert.strictEqual(withoutOrigin.status, 403)
      assert.match(withoutOrigin.json.detail, /with the header Origin alone.*programs send Authorization: Bearer TOKEN/)
      const placed = yield* send(`${url}/orders`, { body: newOrder, headers: { cookie } })
      assert.strictEqual(placed.status, 403)
      // A made-up session is none, and is told so.
      const planted = `paid_once_session_${port}=${"x".repeat(43)}`
      assert.strictEqual(
        (yield* send(`${url}/admin/session`, { method: "DELETE", headers: { cookie: planted } })).status,
        401
      )
      assert.strictEqual(yield* signOut({ origin: `http://127.0.0.1:${port + 1}` }), 403)
      assert.strictEqual(yield* signOut({ origin: "null" }), 403)
      assert.strictEqual(yield* read({}), 200)
      assert.strictEqual(yield* signOut({ origin: url }), 204)
      // A page of another site can't sign its visitor in, either.
      const foreign = yield* signIn(desk.key, { origin: "https://evil.example" })
      assert.deepStrictEqual([foreign.status, foreign.headers.getSetCookie()], [403, []])
    })
  )

  it.effect("a session's id is drawn here: an id that a request brings along begins none", () =>
    Effect.gen(function* () {
      const { port } = yield* HttpServer.BoundAddress
      const planted = `paid_once_session_${port}=${"x".repeat(43)}`
      assert.strictEqual((yield* ask({ headers: { cookie: planted } })).status, 401)
      const answer = yield* signIn(desk.key, { cookie: planted })
      const { cookie } = cookieOf(answer)
      assert.notStrictEqual(cookie, planted)
      assert.strictEqual((yield* ask({ headers: { cookie: planted } })).status, 401)
      // A cookie that a page of another port has planted beside ours does not hide it.
      assert.strictEqual((yield* ask({ headers: { cookie: `${planted}; ${cookie}` } })).status, 200)
      // Signing in again ends the session before.
      const again = cookieOf(yield* signIn(desk.key, { cookie }))
      assert.strictEqual((yield* ask({ headers: { cookie } })).status, 401)
      assert.strictEqual((yield* ask({ headers: { cookie: again.cookie } })).status, 200)
    })
  )

  it.effect("behind TLS the cookie is for TLS alone, and a host without a port has a name without one", () =>
    Effect.gen(function* () {
      const { port, url } = yield* HttpServer.BoundAddress
      const body = JSON.stringify({ token: desk.key })
      const cookieAt = (host: string, origin: string) =>
        Effect.map(
          sendRaw(
            port,
            [
              "POST /admin/session HTTP/1.1",
              `Host: ${host}`,
              `Origin: ${origin}`,
              "Content-Type: application/json",
              `Content-Length: ${body.length}`
            ],
            body
          ),
          ({ headers }) => headers["set-cookie"] ?? ""
        )
      const secure = yield* cookieAt("shop.example", "https://shop.example")
      assert.match(secure, /^paid_once_session=[\w-]{43}; .*Secure/)
      assert.notInclude(yield* cookieAt(`127.0.0.1:${port}`, url), "Secure")
    })
  )

  it.effect("a body that is no token is refused, and names its field", () =>
    Effect.gen(function* () {
      for (const body of [
        {},
        { token: "" },
        { token: 1 },
        { token: "x".repeat(1_001) },
        { token: adminToken, more: 1 }
      ]) {
        const { json, status } = yield* ask({ body })
        assert.strictEqual(status, 400)
        assert.match(json.errors[0].pointer, /^\/(token|more)$/)
      }
      assert.strictEqual((yield* ask({ body: { token: "x".repeat(10_000) } })).status, 413)
      assert.strictEqual(
        (yield* ask({ method: "POST", body: `token=${adminToken}`, headers: { "content-type": "text/plain" } })).status,
        415
      )
    })
  )

  // Last: the address may try no more for a minute.
  it.effect("after ten wrong tokens a right guess looks like a wrong one; keys and sessions go on", () =>
    Effect.gen(function* () {
      logged.length = 0
      const cookie = yield* cookieFor(adminToken)
      const asAdmin = ask({ headers: { authorization: `Bearer ${adminToken}` } })
      assert.strictEqual((yield* asAdmin).status, 200)
      for (let n = 0; n < 5; n++) {
        yield* signIn(`guess ${n}`)
        yield* ask({ headers: { authorization: `Bearer guess-${n}` } })
      }
      for (const answer of [
        yield* signIn("another"),
        yield* signIn(adminToken),
        yield* asAdmin,
        yield* ask({ headers: { authorization: "Bearer another" } })
      ]) {
        assert.deepStrictEqual([answer.status, answer.headers.getSetCookie()], [429, []])
        const waitSeconds = Number(answer.headers.get("retry-after"))
        assert.isTrue(waitSeconds >= 1 && waitSeconds <= 6, String(waitSeconds))
      }
      assert.strictEqual((yield* ask({ headers: { authorization: `Bearer ${desk.key}` } })).status, 200)
      assert.strictEqual((yield* signIn(desk.key)).status, 204)
      assert.strictEqual((yield* ask({ headers: { cookie } })).status, 200)
      // The log tells who came in, and once that somebody guesses.
      assert.deepStrictEqual(
        logged.map(({ address, caller, message }) => [address, caller, message]),
        [
          ["127.0.0.1", "admin", "a session of the console begins"],
          ["127.0.0.1", "anonymous", "too many wrong tokens: the address is refused further ones for some seconds"],
          ["127.0.0.1", "desk", "a session of the console begins"]
        ]
      )
    })
  )
})

it.effect(
  "an address that has sent ten wrong tokens gets another try each six seconds, and others are not held up",
  () =>
    Effect.gen(function* () {
      const guesses = Guesses.make()
      const isOpen = (address: string) => Effect.map(guesses.refusal(address), (problem) => problem === undefined)
      for (let n = 0; n < 10; n++) {
        assert.isTrue(yield* isOpen("10.0.0.1"), String(n))
        yield* guesses.failed("10.0.0.1")
      }
      assert.isFalse(yield* isOpen("10.0.0.1"))
      // Two addresses share a bucket by chance, so not all of these can be held up.
      assert.isTrue((yield* Effect.filter(["10.0.0.2", "10.0.0.3", "::1"], isOpen)).length > 0)
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual((yield* guesses.refusal("10.0.0.1"))?.headers?.["retry-after"], "1")
      yield* TestClock.adjust("1 second")
      assert.isTrue(yield* isOpen("10.0.0.1"))
      yield* guesses.failed("10.0.0.1")
      assert.isFalse(yield* isOpen("10.0.0.1"))
      yield* TestClock.adjust("1 minute")
      for (let n = 0; n < 10; n++) {
        assert.isTrue(yield* isOpen("10.0.0.1"), String(n))
        yield* guesses.failed("10.0.0.1")
      }
    })
)
