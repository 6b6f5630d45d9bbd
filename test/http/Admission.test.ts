/** The limit on requests in work, on a server whose handlers wait for the test. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Ref } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { OpenApi } from "effect/http-api"
import { connect, type Socket } from "node:net"
import { AdmissionSettings, reservedRequests } from "../../src/http/Admission.ts"
import { Api } from "../../src/http/Api.ts"
import * as Body from "../../src/http/Body.ts"
import { maxUnanswered } from "../../src/http/Connections.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import { toResponse } from "../../src/http/Problems.ts"
import * as Turn from "../../src/platform/Turn.ts"
import * as ApiDocument from "../support/ApiDocument.ts"
import { eventually } from "../support/Counters.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** A request to a server that is not the service's API. */
const send = (url: string, method = "GET") =>
  Effect.promise(async () => {
    const response = await fetch(url, { method })
    return { status: response.status, headers: response.headers, text: await response.text() }
  })

/** More than the kernel keeps for a client that does not read. */
const large = new Uint8Array(32_000_000)

/** A server with `places`. A request to /wait, /aside or for health with `?wait` is answered once the test says so; `begun` counts them. */
const serve = Effect.gen(function* () {
  const begun = yield* Ref.make(0)
  const release = yield* Deferred.make<void>()
  const ok = HttpServerResponse.text("ok")
  const waiting = Effect.andThen(
    Ref.update(begun, (count) => count + 1),
    Deferred.await(release)
  )
  const app = Effect.gen(function* () {
    const { url } = yield* HttpServerRequest.HttpServerRequest
    if (url === "/wait" || url.endsWith("?wait")) yield* waiting
    if (url === "/aside") yield* Turn.aside(waiting)
    if (url === "/large") {
      yield* Ref.update(begun, (count) => count + 1)
      return HttpServerResponse.uint8Array(large)
    }
    if (url === "/body") return yield* Effect.match(Body.text, { onFailure: toResponse, onSuccess: () => ok })
    return ok
  })
  const { address, around, drain, server } = yield* HttpServer.listen({ host: "127.0.0.1", port: 0 }, "PORT")
  yield* server.serve(around(app))
  yield* Effect.addFinalizer(() => Effect.andThen(Deferred.succeed(release, undefined), drain(0)))
  return {
    ...address,
    release: Deferred.succeed(release, undefined),
    untilBegun: (count: number) =>
      eventually(
        `${count} requests to begin`,
        Effect.map(Ref.get(begun), (now) => now >= count)
      )
  }
})

const withPlaces = (maxRequests: number) =>
  Effect.provide(
    Layer.merge(Layer.succeed(AdmissionSettings, { maxRequests, answerTimeoutMillis: 600_000 }), TestProcess.quiet)
  )

/** A connection that sends `text` and does not read. */
const silent = (port: number, text: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const socket = connect(port, "127.0.0.1")
      socket.on("error", () => {})
      socket.pause()
      socket.write(text)
      return socket
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

/** What it receives until its end. */
const received = Effect.fnUntraced(function* (socket: Socket) {
  let text = ""
  socket.on("data", (chunk) => (text += chunk.toString("latin1")))
  socket.resume()
  yield* eventually(
    "the connection to be closed",
    Effect.sync(() => socket.closed)
  )
  return text
})

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`

/** Sends until the request is not refused, as a client does that heeds Retry-After. */
const insist = (url: string) =>
  eventually(
    "a place",
    Effect.map(send(url), ({ status }) => status === 200),
    // Below the time that a request may take to arrive: after that, slow clients would leave by themselves.
    20
  )

it.live("above the limit a request is refused at once, before its body, while health and metrics answer", () =>
  Effect.gen(function* () {
    const { port, release, untilBegun, url } = yield* serve
    const both = yield* Effect.forkChild(Effect.all([send(`${url}/wait`), send(`${url}/wait`)], { concurrency: 2 }))
    yield* untilBegun(2)
    const refused = yield* send(`${url}/`)
    assert.deepStrictEqual(
      [refused.status, refused.headers.get("retry-after"), refused.headers.get("content-type")],
      [503, "1", "application/problem+json"]
    )
    // The body is announced and never sent.
    const post = yield* silent(port, "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
    assert.match(yield* received(post), /^HTTP\/1\.1 503 /)
    for (const path of ["/health/live", "/health/ready", "/metrics"]) {
      assert.strictEqual((yield* send(`${url}${path}`)).status, 200, path)
    }
    yield* release
    assert.deepStrictEqual(
      (yield* Fiber.join(both)).map(({ status }) => status),
      [200, 200]
    )
    assert.strictEqual((yield* send(`${url}/`)).status, 200)
  }).pipe(Effect.scoped, withPlaces(2))
)

it.live("a refusal is as the document says, for every endpoint", () =>
  Effect.gen(function* () {
    const { endpoints, problemsOf } = ApiDocument.make(OpenApi.fromApi(Api) as unknown as ApiDocument.OpenApiDocument)
    const { untilBegun, url } = yield* serve
    const watching = Array.from({ length: reservedRequests }, () => ["/health/ready?wait", "/metrics?wait"])
    const asking = ["/wait", ...watching.flat()]
    yield* Effect.forEach(asking, (path) => Effect.forkChild(send(`${url}${path}`)))
    yield* untilBegun(asking.length)
    for (const { method, path } of endpoints) {
      // It needs no place.
      if (path === "/health/live") continue
      const { headers, status, text } = yield* send(`${url}${path}`, method)
      const answer = { method, target: path, status, header: (name: string) => headers.get(name) ?? undefined, text }
      assert.strictEqual([status, ...problemsOf(answer)].join("\n"), "503")
    }
  }).pipe(Effect.scoped, withPlaces(1))
)

it.live("only the paths of health and metrics have the places of those who watch", () =>
  Effect.gen(function* () {
    const { untilBegun, url } = yield* serve
    yield* Effect.forkChild(send(`${url}/wait`))
    yield* untilBegun(1)
    const statusOf = (path: string) => Effect.map(send(`${url}${path}`), ({ status }) => status)
    for (const path of ["/health/live", "/health/ready?by=probe", "/metrics", "/metrics?by=scraper"]) {
      assert.strictEqual(yield* statusOf(path), 200, path)
    }
    for (const path of ["/health/", "/health/x", "/health/live/", "/health/live/x", "/health/lives", "/metrics/"]) {
      assert.strictEqual(yield* statusOf(path), 503, path)
    }
  }).pipe(Effect.scoped, withPlaces(1))
)

it.live("liveness needs no place, and metrics have their own, while askers of readiness have taken all of theirs", () =>
  Effect.gen(function* () {
    const { port, untilBegun, url } = yield* serve
    yield* Effect.forkChild(send(`${url}/wait`))
    yield* Effect.replicateEffect(silent(port, get("/health/ready?wait")), reservedRequests)
    yield* untilBegun(reservedRequests + 1)
    assert.strictEqual((yield* send(`${url}/health/ready`)).status, 503)
    for (const path of ["/metrics", "/health/live", "/health/live?by=probe"]) {
      assert.strictEqual((yield* send(`${url}${path}`)).status, 200, path)
    }
    assert.strictEqual((yield* send(`${url}/health/live/x`)).status, 503)
    const twice = yield* silent(port, "GET /health/live HTTP/1.1\r\nHost: x\r\nHost: y\r\nConnection: close\r\n\r\n")
    assert.match(yield* received(twice), /^HTTP\/1\.1 400 /)
  }).pipe(Effect.scoped, withPlaces(1))
)

it.live("clients that don't read their answers keep nobody out", () =>
  Effect.gen(function* () {
    const { port, untilBegun, url } = yield* serve
    yield* Effect.replicateEffect(silent(port, get("/large")), 2)
    yield* untilBegun(2)
    yield* insist(`${url}/`)
  }).pipe(Effect.scoped, withPlaces(2))
)

it.live("clients that send their bodies slowly keep nobody out, however many they are", () =>
  Effect.gen(function* () {
    const { port, url } = yield* serve
    const head = "POST /body HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    yield* Effect.replicateEffect(silent(port, head), 50)
    yield* insist(`${url}/`)
  }).pipe(Effect.scoped, withPlaces(2))
)

it.live("a client that leaves frees its places, also those of requests that wait behind its first one", () =>
  Effect.gen(function* () {
    const { port, release, untilBegun, url } = yield* serve
    const socket = yield* silent(port, get("/aside") + get("/large").repeat(3))
    yield* untilBegun(4)
    assert.strictEqual((yield* send(`${url}/`)).status, 503)
    socket.destroy()
    yield* release
    yield* insist(`${url}/`)
    // All of them: four requests have places again, side by side.
    yield* Effect.replicateEffect(silent(port, get("/large")), 4)
    yield* untilBegun(8)
  }).pipe(Effect.scoped, withPlaces(4))
)

it.live("a connection with too many unanswered requests is closed, and nothing of it stays", () =>
  Effect.gen(function* () {
    const { port, release, url } = yield* serve
    const socket = yield* silent(port, get("/aside").repeat(maxUnanswered + 1))
    assert.strictEqual(yield* received(socket), "")
    yield* release
    yield* insist(`${url}/`)
  }).pipe(Effect.scoped, withPlaces(maxUnanswered))
)

it.live("requests that wait for somebody else leave their turns to others", () =>
  Effect.gen(function* () {
    const { release, untilBegun, url } = yield* serve
    const waiting = yield* Effect.forkChild(
      Effect.all(
        Array.from({ length: 30 }, () => send(`${url}/aside`)),
        { concurrency: "unbounded" }
      )
    )
    yield* untilBegun(30)
    assert.strictEqual((yield* send(`${url}/`)).status, 200)
    yield* release
    for (const { status } of yield* Fiber.join(waiting)) assert.strictEqual(status, 200)
  }).pipe(Effect.scoped, withPlaces(100))
)

it.live("health answers while every turn is taken", () =>
  Effect.gen(function* () {
    const { release, untilBegun, url } = yield* serve
    const waiting = yield* Effect.forkChild(
      Effect.all(
        Array.from({ length: 30 }, () => send(`${url}/wait`)),
        { concurrency: "unbounded" }
      )
    )
    yield* untilBegun(8)
    for (const path of ["/health/live", "/health/ready", "/metrics"]) {
      const health = yield* Effect.forkChild(send(`${url}${path}`))
      yield* eventually(
        `the answer of ${path}`,
        Effect.sync(() => health.pollUnsafe() !== undefined)
      )
      assert.strictEqual((yield* Fiber.join(health)).status, 200)
    }
    yield* release
    for (const { status } of yield* Fiber.join(waiting)) assert.strictEqual(status, 200)
  }).pipe(Effect.scoped, withPlaces(100))
)

it.live("a request has one Host and one of each header that is read, and is refused with a problem otherwise", () =>
  Effect.gen(function* () {
    const { port } = yield* serve
    const ask = (lines: string) =>
      Effect.flatMap(silent(port, `GET / HTTP/1.1\r\n${lines}Connection: close\r\n\r\n`), received)
    for (const [lines, pointer] of [
      ["", "/host"],
      ["Host: x\r\nHost: y\r\n", "/host"],
      ["Host: x\r\nhost: x\r\n", "/host"],
      ["Host: x\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n", "/idempotency-key"],
      ["Host: x\r\nContent-Type: text/plain\r\nContent-Type: application/json\r\n", "/content-type"]
    ] as const) {
      const answer = yield* ask(lines)
      assert.match(answer, /^HTTP\/1\.1 400 [\s\S]*problem\+json/, lines)
      assert.include(answer, `"pointer":"${pointer}"`)
    }
    assert.match(yield* ask("Host: x\r\nAccept: a\r\nAccept: b\r\n"), /^HTTP\/1\.1 200 /)
  }).pipe(Effect.scoped, withPlaces(10))
)
