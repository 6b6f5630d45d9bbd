/** A page of another site can't use its visitor's browser: it has no name for the service, sends no form, and frames no answer. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { networkInterfaces } from "node:os"
import { HostSettings } from "../../src/http/access/AllowedHosts.ts"
import { Readiness } from "../../src/http/Health.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import { sendRaw } from "../support/RawHttp.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { anyPort, newOrder, send, underHttpOn } from "./Service.ts"

const hosts = Layer.succeed(HostSettings, {
  host: "127.0.0.1",
  publicHosts: [
    { name: "shop.example", port: undefined },
    { name: "admin.example", port: "8443" }
  ]
})

const service = HttpServer.layer.pipe(
  Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
  Layer.provideMerge(Layer.provide(underHttpOn(TestDatabase.layer), hosts)),
  Layer.provideMerge(hosts)
)

const securityHeaders = {
  "x-content-type-options": "nosniff",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "cache-control": "no-store"
}

const assertSecurityHeaders = (headers: Readonly<Record<string, string | undefined>>, of: string) => {
  for (const [name, value] of Object.entries(securityHeaders))
    assert.strictEqual(headers[name], value, `${of}: ${name}`)
}

/** The ports of the service and of its sandbox gateway. */
const ports = Effect.gen(function* () {
  const { port } = yield* HttpServer.BoundAddress
  const { url } = yield* GatewayServer
  return { port, gatewayPort: Number(new URL(url).port) }
})

const place = Effect.gen(function* () {
  const { url } = yield* HttpServer.BoundAddress
  return (yield* send(`${url}/orders`, { body: newOrder })).json.id as string
})

layer(service, { excludeTestServices: true })("hosts and origins", (it) => {
  it.effect("a Host that is not ours is 421, at the service and at the sandbox, and reads nothing", () =>
    Effect.gen(function* () {
      const { gatewayPort, port } = yield* ports
      const foreign = [
        "evil.example",
        `evil.example:${port}`,
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil-localhost",
        "10.1.2.3",
        "0.0.0.0",
        "[::2]",
        "admin.example",
        "admin.example:8444",
        "shop.example.evil.example"
      ]
      for (const host of foreign) {
        for (const [to, path] of [
          [port, "/orders"],
          [port, "/health/live"],
          [port, "/metrics"],
          [port, "/nothing"],
          [port, "/docs"],
          [gatewayPort, "/ledger"]
        ] as const) {
          const answer = yield* sendRaw(to, [`GET ${path} HTTP/1.1`, `Host: ${host}`])
          assert.deepStrictEqual(
            [answer.status, answer.headers["content-type"]],
            [421, "application/problem+json"],
            `${host} ${path}: ${answer.body}`
          )
          assertSecurityHeaders(answer.headers, `${host} ${path}`)
        }
      }
    })
  )

  it.effect("loopback names, the names of PUBLIC_HOSTS, and the address that the connection came to are served", () =>
    Effect.gen(function* () {
      const { gatewayPort, port } = yield* ports
      const ours = [
        "localhost",
        "LOCALHOST",
        `localhost:${port}`,
        "localhost:8080",
        "127.0.0.1",
        "127.8.8.8:1",
        "[::1]"
      ]
      for (const host of [...ours, "[0:0:0:0:0:0:0:1]:80", "shop.example", "Shop.Example:444", "admin.example:8443"]) {
        assert.strictEqual((yield* sendRaw(port, ["GET /orders HTTP/1.1", `Host: ${host}`])).status, 200, host)
        assert.strictEqual((yield* sendRaw(gatewayPort, ["GET /ledger HTTP/1.1", `Host: ${host}`])).status, 200, host)
      }
    })
  )

  it.effect("an address of the machine is served to those who connect to it, as the probes of an orchestrator do", () =>
    Effect.gen(function* () {
      // Every address of the machine answers, as with HOST=0.0.0.0.
      const everywhere = HttpServer.layerHealth.pipe(
        Layer.provide(Layer.succeed(HttpServer.HttpSettings, { ...anyPort, host: "::" })),
        Layer.provide(Layer.succeed(HostSettings, { host: "0.0.0.0", publicHosts: [] })),
        Layer.provideMerge(Readiness.layer),
        Layer.fresh
      )
      const { port } = Context.get(yield* Layer.build(everywhere), HttpServer.BoundAddress)
      const addresses = Object.values(networkInterfaces()).flatMap((some) => some ?? [])
      for (const { address, family, scopeid } of addresses.filter(({ scopeid }) => !scopeid)) {
        assert.isTrue(scopeid === undefined || scopeid === 0)
        const url = `http://${family === "IPv6" ? `[${address}]` : address}:${port}/health/live`
        assert.strictEqual((yield* send(url)).status, 200, url)
      }
      assert.strictEqual((yield* sendRaw(port, ["GET /health/live HTTP/1.1", "Host: 10.1.2.3"])).status, 421)
      assert.strictEqual((yield* sendRaw(port, ["GET /health/live HTTP/1.1", "Host: 0.0.0.0"])).status, 421)
    })
  )

  it.effect("no Host, two of them, or one that is no host is refused; an old client may send none", () =>
    Effect.gen(function* () {
      const { gatewayPort, port } = yield* ports
      for (const to of [port, gatewayPort]) {
        const path = to === port ? "/orders" : "/ledger"
        for (const lines of [
          [],
          ["Host:"],
          ["Host: localhost", "Host: localhost"],
          ["Host: localhost", "Host: evil.example"],
          ["Host: user@localhost"],
          ["Host: localhost:port"],
          ["Host: localhost, evil.example"],
          ["Host: [::1"],
          ["Host: http://localhost"]
        ]) {
          const answer = yield* sendRaw(to, [`GET ${path} HTTP/1.1`, ...lines])
          assert.deepStrictEqual(
            [answer.status, answer.headers["content-type"]],
            [400, "application/problem+json"],
            `${lines.join(" ")} ${answer.body}`
          )
          assertSecurityHeaders(answer.headers, lines.join(" "))
        }
        assert.strictEqual((yield* sendRaw(to, [`GET ${path} HTTP/1.0`])).status, 200)
      }
    })
  )

  it.effect("a target with a host of its own has to name ours, and the one of the Host header", () =>
    Effect.gen(function* () {
      const { gatewayPort, port } = yield* ports
      for (const [to, path] of [
        [port, "/orders"],
        [gatewayPort, "/ledger"]
      ] as const) {
        for (const [authority, host, status] of [
          ["localhost", "localhost", 200],
          ["evil.example", "evil.example", 421],
          ["evil.example", "localhost", 400],
          ["localhost", "evil.example", 400],
          ["localhost:1", "localhost", 400],
          ["localhost@evil.example", "localhost", 400]
        ] as const) {
          const answer = yield* sendRaw(to, [`GET http://${authority}${path} HTTP/1.1`, `Host: ${host}`])
          assert.strictEqual(answer.status, status, `${authority} ${host}: ${answer.body}`)
        }
      }
    })
  )

  it.effect("an Origin that is not ours is 403, and so is null; ours, or none, is served", () =>
    Effect.gen(function* () {
      const { gatewayPort, port } = yield* ports
      const id = yield* place
      const cancel = [`POST /orders/${id}/cancel HTTP/1.1`, `Host: localhost:${port}`]
      for (const origin of [
        "null",
        "http://evil.example",
        "https://localhost.evil.example",
        "http://localhost:1",
        "http://localhost",
        "file://",
        "chrome-extension://localhost",
        `http://localhost:${port} http://evil.example`,
        `http://localhost:${port}/path`,
        `http://evil.example@localhost:${port}`,
        "https://admin.example",
        ""
      ]) {
        const answer = yield* sendRaw(port, [...cancel, `Origin: ${origin}`])
        assert.deepStrictEqual(
          [answer.status, answer.headers["content-type"]],
          [403, "application/problem+json"],
          origin
        )
        assert.strictEqual(
          (yield* sendRaw(gatewayPort, [
            "PUT /behaviour HTTP/1.1",
            `Host: localhost:${gatewayPort}`,
            `Origin: ${origin}`
          ])).status,
          403,
          origin
        )
        assert.strictEqual(
          (yield* sendRaw(port, ["GET /orders HTTP/1.1", `Host: localhost:${port}`, `Origin: ${origin}`])).status,
          403,
          origin
        )
      }
      const { url } = yield* HttpServer.BoundAddress
      assert.strictEqual((yield* send(`${url}/orders/${id}`)).json.status, "pending")
      for (const origin of [
        `http://localhost:${port}`,
        `http://127.0.0.1:${port}`,
        "https://shop.example",
        "https://admin.example:8443"
      ]) {
        assert.strictEqual((yield* sendRaw(port, [...cancel, `Origin: ${origin}`])).status, 200, origin)
      }
      assert.strictEqual((yield* sendRaw(port, cancel)).status, 200)
    })
  )

  it.effect("a browser that says that a request comes from another site is believed", () =>
    Effect.gen(function* () {
      const { gatewayPort, port } = yield* ports
      const id = yield* place
      const crossSite = [`Host: localhost:${port}`, "Sec-Fetch-Site: cross-site"]
      for (const [to, line] of [
        [port, `POST /orders/${id}/cancel`],
        [gatewayPort, "PUT /behaviour"]
      ] as const) {
        assert.strictEqual((yield* sendRaw(to, [`${line} HTTP/1.1`, ...crossSite])).status, 403)
      }
      // A link on another site may be followed: what it shows is not readable there.
      assert.strictEqual((yield* sendRaw(port, ["GET /docs HTTP/1.1", ...crossSite])).status, 200)
      assert.strictEqual((yield* sendRaw(port, [`GET /orders/${id} HTTP/1.1`, ...crossSite])).status, 200)
      for (const site of ["same-origin", "same-site", "none"]) {
        const head = [`POST /orders/${id}/cancel HTTP/1.1`, `Host: localhost:${port}`, `Sec-Fetch-Site: ${site}`]
        assert.strictEqual((yield* sendRaw(port, head)).status, 200, site)
      }
    })
  )

  it.effect("a body that a form could send is 415 everywhere, also where no body is read", () =>
    Effect.gen(function* () {
      const { gatewayPort, port } = yield* ports
      const id = yield* place
      const forms = ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"]
      for (const [to, line] of [
        [port, `POST /orders/${id}/cancel`],
        [port, `POST /orders/${id}/refund`],
        [port, `POST /orders/${id}/pay`],
        [port, "POST /orders"],
        [port, "POST /reports"],
        [port, "POST /webhooks/gateway"],
        [gatewayPort, "POST /charges"],
        [gatewayPort, "PUT /behaviour"]
      ] as const) {
        const head = [`${line} HTTP/1.1`, "Host: localhost", "Idempotency-Key: a"]
        for (const type of [...forms, "application/jsonp", "application/json, text/plain"]) {
          // With a body, and with none: a form that is empty is still a form.
          for (const body of ["a=b", ""]) {
            const lines = [...head, `Content-Type: ${type}`, `Content-Length: ${body.length}`]
            const answer = yield* sendRaw(to, lines, body)
            assert.deepStrictEqual(
              [answer.status, answer.headers["accept"]],
              [415, "application/json"],
              `${line} ${type} ${answer.body}`
            )
          }
        }
        const bare = yield* sendRaw(to, [...head, "Content-Length: 2"], "{}")
        assert.strictEqual(bare.status, 415, `${line} without a type`)
        const chunked = yield* sendRaw(to, [...head, "Transfer-Encoding: chunked"], "2\r\n{}\r\n0\r\n\r\n")
        assert.strictEqual(chunked.status, 415, `${line} in chunks`)
      }
      const { url } = yield* HttpServer.BoundAddress
      assert.strictEqual((yield* send(`${url}/orders/${id}`)).json.status, "pending")
      // JSON is as welcome as no body where none is read.
      assert.strictEqual((yield* send(`${url}/orders/${id}/cancel`, { body: {} })).status, 200)
      assert.strictEqual((yield* send(`${url}/orders/${id}/cancel`, { method: "POST" })).status, 200)
    })
  )

  it.effect(
    "every answer forbids browsers to guess, frame, embed, keep or tell of it, the parser's own answers too",
    () =>
      Effect.gen(function* () {
        const { gatewayPort, port } = yield* ports
        const host = "Host: localhost"
        for (const [head, status] of [
          [["GET /orders HTTP/1.1", host], 200],
          [["HEAD /orders HTTP/1.1", host], 200],
          [["GET /nothing HTTP/1.1", host], 404],
          [["DELETE /orders HTTP/1.1", host], 405],
          [["OPTIONS /orders HTTP/1.1", host], 405],
          [["GET /orders/1 HTTP/1.1", host], 400],
          [["GET /health/ready HTTP/1.1", host], 200],
          [["GET /metrics HTTP/1.1", host], 200],
          [["GET /openapi.json HTTP/1.1", host], 200],
          [["POST /orders HTTP/1.1", host, "Expect: 100-continue"], 400],
          [["POST /orders HTTP/1.1", host, "Expect: something"], 417],
          [["GET /orders HTTP/1.1", host, "Connection: upgrade", "Upgrade: websocket"], 200],
          [["GET /orders HTTP/1.1", host, "Connection: upgrade", "Upgrade: h2c"], 200],
          [["nonsense"], 400],
          [["GET / HTTP/1.1", host, `X: ${"x".repeat(20_000)}`], 431]
        ] as const) {
          const answer = yield* sendRaw(port, head)
          assert.strictEqual(answer.status, status, head.join(" ").slice(0, 80))
          assertSecurityHeaders(answer.headers, head[0])
        }
        for (const [path, status] of [
          ["/ledger", 200],
          ["/nothing", 404]
        ] as const) {
          const answer = yield* sendRaw(gatewayPort, [`GET ${path} HTTP/1.1`, host])
          assert.strictEqual(answer.status, status)
          assertSecurityHeaders(answer.headers, path)
        }
      })
  )

  it.effect("the documentation is sent compressed, as anybody may ask for it in masses", () =>
    Effect.gen(function* () {
      const { port } = yield* ports
      const { headers } = yield* sendRaw(port, ["GET /docs HTTP/1.1", "Host: localhost"])
      assert.strictEqual(headers["content-encoding"], "gzip")
      assert.isBelow(Number(headers["content-length"]), 1_000_000)
    })
  )

  it.effect("the documentation runs its own script and style, and no other", () =>
    Effect.gen(function* () {
      const { port } = yield* ports
      const page = yield* sendRaw(port, ["GET /docs HTTP/1.1", "Host: localhost"])
      const policy = page.headers["content-security-policy"]!
      assert.match(policy, /default-src 'none';/)
      assert.match(policy, /frame-ancestors 'none'/)
      assert.match(policy, /script-src 'sha256-[\w+/]{43}='/)
      assert.notMatch(policy.replace(/style-src-attr 'unsafe-inline'/, ""), /unsafe|\*|https?:/)
      assert.strictEqual(page.headers["x-content-type-options"], "nosniff")
    })
  )
})
