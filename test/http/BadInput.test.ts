/** Requests that must be refused: with every wrong field named at once, and without a change in the database. */
import { assert, it, layer } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { connect } from "node:net"
import { maxBodyBytes } from "../../src/http/Body.ts"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { fieldErrors, maxListedErrors } from "../../src/http/Problems.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import { type Answer, newOrder, send, service, webhookSecret } from "./Service.ts"

const line = newOrder.lines[0]!
const withLine = (change: object) => ({ ...newOrder, lines: [{ ...line, ...change }] })
const text = (value: unknown, raw: Record<string, string> = {}) =>
  Object.entries(raw).reduce(
    (json, [marker, replacement]) => json.replace(`"${marker}"`, replacement),
    JSON.stringify(value)
  )
const deep = "[".repeat(100_000) + "]".repeat(100_000)
const bytes = (...parts: ReadonlyArray<string | number>) =>
  Buffer.concat(parts.map((part) => (typeof part === "number" ? Buffer.from([part]) : Buffer.from(part))))

/** Bodies of POST /orders, and the pointers of the errors they must get. */
const bodies: ReadonlyArray<readonly [name: string, body: unknown, pointers: ReadonlyArray<string>]> = [
  ["an unknown field", { ...newOrder, discount: 5 }, ["/discount"]],
  ["a nested unknown field", withLine({ discount: 5 }), ["/lines/0/discount"]],
  ["an unknown field whose name needs escaping", { ...newOrder, "a/b~c": 1 }, ["/a~1b~0c"]],
  ["no amount", withLine({ unitAmountMinor: 0 }), ["/lines/0/unitAmountMinor"]],
  ["a negative amount", withLine({ unitAmountMinor: -1 }), ["/lines/0/unitAmountMinor"]],
  ["a fraction", withLine({ unitAmountMinor: 0.5 }), ["/lines/0/unitAmountMinor"]],
  ["1e400", text(withLine({ unitAmountMinor: "$" }), { $: "1e400" }), ["/lines/0/unitAmountMinor"]],
  ["1e21", text(withLine({ unitAmountMinor: "$" }), { $: "1e21" }), ["/lines/0/unitAmountMinor"]],
  ["2^53", withLine({ unitAmountMinor: 2 ** 53 }), ["/lines/0/unitAmountMinor"]],
  ["one above the largest amount", withLine({ unitAmountMinor: 100_000_000_001 }), ["/lines/0/unitAmountMinor"]],
  ["no quantity", withLine({ quantity: 0 }), ["/lines/0/quantity"]],
  ["a quantity above a million", withLine({ quantity: 1_000_001 }), ["/lines/0/quantity"]],
  ["a string for a number", withLine({ quantity: "1" }), ["/lines/0/quantity"]],
  ["null for a number", withLine({ quantity: null }), ["/lines/0/quantity"]],
  ["a number for a string", withLine({ sku: 7 }), ["/lines/0/sku"]],
  ["an empty sku", withLine({ sku: "" }), ["/lines/0/sku"]],
  ["a sku of 101 characters", withLine({ sku: "x".repeat(101) }), ["/lines/0/sku"]],
  ["null for the lines", { ...newOrder, lines: null }, ["/lines"]],
  ["no lines", { ...newOrder, lines: [] }, ["/lines"]],
  ["a null line", { ...newOrder, lines: [null] }, ["/lines/0"]],
  ["1,001 lines", { ...newOrder, lines: Array.from({ length: 1_001 }, () => line) }, ["/lines"]],
  ["a megabyte of empty lines", `{"lines":[${"{},".repeat(340_000)}{}]}`, [""]],
  ["100,000 fields", Object.fromEntries(Array.from({ length: 100_000 }, (_, index) => [index.toString(36), 0])), [""]],
  ["a field whose name has a megabyte", { ...newOrder, ["\u0001".repeat(170_000)]: 1 }, [`/${"\u0001".repeat(499)}…`]],
  ["a total above 2^53 - 1", withLine({ quantity: 1_000_000, unitAmountMinor: 100_000_000_000 }), ["/lines"]],
  ["an unknown currency", { ...newOrder, currency: "XBT" }, ["/currency"]],
  ["a currency in small letters", { ...newOrder, currency: "eur" }, ["/currency"]],
  ["a customer of 201 characters", { ...newOrder, customerId: "x".repeat(201) }, ["/customerId"]],
  ["NUL", { ...newOrder, customerId: "a\u0000b" }, ["/customerId"]],
  ["NUL as an escape", text({ ...newOrder, customerId: "$" }, { $: '"\\u0000"' }), ["/customerId"]],
  ["a lone surrogate as an escape", text({ ...newOrder, customerId: "$" }, { $: '"\\ud800"' }), ["/customerId"]],
  [
    "a field that lacks and two that are wrong",
    { currency: "E", lines: [{ sku: "a", quantity: 1 }] },
    ["/customerId", "/currency", "/lines/0/unitAmountMinor"]
  ],
  ["a __proto__ key", `{"__proto__":{"customerId":"x"},${JSON.stringify(newOrder).slice(1)}`, ["/__proto__"]],
  ["a constructor key", { ...newOrder, constructor: {} }, ["/constructor"]],
  ["an array", [newOrder], [""]],
  ["null", "null", [""]],
  ["a string", '"order"', [""]],
  ["an empty body", "", [""]],
  ["only spaces", "  ", [""]],
  ["broken JSON", '{"customerId": ', [""]],
  ["two values", "{} {}", [""]],
  ["NaN", "NaN", [""]],
  ["100,000 brackets", deep, [""]],
  ["100,000 brackets that are never closed", "[".repeat(100_000), [""]],
  ["100,000 brackets in a field", `{"customerId":${deep},"currency":"EUR","lines":${deep}}`, [""]],
  ["100,000 brackets in an unknown field", `{"x":${deep},${JSON.stringify(newOrder).slice(1)}`, [""]],
  ["30 brackets in a field", { ...newOrder, customerId: JSON.parse("[".repeat(30) + "]".repeat(30)) }, ["/customerId"]],
  ["bytes that are no UTF-8", bytes('{"customerId":"', 0xff, 0xfe, '"}'), [""]],
  ["a surrogate in raw bytes", bytes('{"customerId":"', 0xed, 0xa0, 0x80, '"}'), [""]],
  ["a byte order mark", bytes(0xef, 0xbb, 0xbf, JSON.stringify(newOrder)), [""]],
  ["UTF-16", Buffer.from(JSON.stringify(newOrder), "utf16le"), [""]],
  ["a raw NUL byte", bytes('{"customerId":"a', 0, '"}'), [""]]
]

const assertProblem = (answer: Answer, status: number, name: string) => {
  assert.strictEqual(answer.status, status, `${name}: ${answer.text.slice(0, 300)}`)
  assert.strictEqual(answer.headers.get("content-type"), "application/problem+json", name)
  assert.strictEqual(answer.json.status, status, name)
  for (const field of ["type", "title", "detail"]) assert.isString(answer.json[field], name)
}

const places = (answer: Answer): ReadonlyArray<string> =>
  (answer.json.errors as ReadonlyArray<{ in: string; pointer: string }>).map((error) => `${error.in} ${error.pointer}`)

const countRows = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<Record<string, bigint>>`
    SELECT (SELECT count(*) FROM orders) AS orders, (SELECT count(*) FROM outbox_events) AS events,
           (SELECT count(*) FROM idempotency_keys) AS keys, (SELECT count(*) FROM payments) AS payments`
  return row
})

/** Asserts that `effect` changes no table of ours. */
const changesNothing = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = yield* countRows
    yield* effect
    assert.deepStrictEqual(yield* countRows, before)
  })

/** Sends bytes to the server and returns its answer, until the server closes or sends nothing more. */
const speak = (port: number, ...parts: ReadonlyArray<string | Buffer>) =>
  Effect.promise(
    () =>
      new Promise<string>((resolve) => {
        const socket = connect(port, "127.0.0.1")
        let received = ""
        const done = () => {
          socket.destroy()
          resolve(received)
        }
        socket.on("data", (chunk) => {
          received += chunk.toString("latin1")
          socket.setTimeout(2_000)
        })
        socket.on("error", done)
        socket.on("close", done)
        // It waits for the first byte without a short limit; after that a pause ends the answer.
        socket.setTimeout(60_000, done)
        socket.on("connect", () => {
          for (const part of parts) socket.write(part)
        })
      })
  )

const uuidV7 = "01890a5d-ac96-774b-bcce-b302099a8057"
const uuidV4 = "7f1d2a56-3c8e-4b7a-9f00-1c2d3e4f5a6b"

it("only the errors that a problem lists have pointers, which cost more than all the rest", () => {
  const body = Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`/${index}`, 0]))
  const options = { errors: "all", onExcessProperty: "error" } as const
  const decoded = Schema.decodeUnknownResult(Schema.Struct({ a: Schema.optionalKey(Schema.String) }), options)(body)
  const errors = fieldErrors("body", Result.getOrThrow(Result.flip(decoded)).issue)
  assert.deepStrictEqual(
    errors.map(({ pointer }) => pointer),
    Array.from({ length: 300 }, (_, index) => (index < maxListedErrors ? `/~1${index}` : ""))
  )
})

layer(service, { excludeTestServices: true })("bad input", (it) => {
  it.effect("every bad body is 400, names all errors, and changes nothing", () =>
    changesNothing(
      Effect.gen(function* () {
        const { url } = yield* BoundAddress
        for (const [name, body, pointers] of bodies) {
          const answer = yield* send(`${url}/orders`, { method: "POST", body, headers: { "idempotency-key": name } })
          assertProblem(answer, 400, name)
          const got = places(answer)
          assert.strictEqual(got.length, pointers.length, `${name}: ${answer.text.slice(0, 500)}`)
          for (const pointer of pointers) assert.include(got, `body ${pointer}`, name)
          for (const { message } of answer.json.errors) assert.notMatch(message, /^Expected|undefined|filter/, name)
          assert.isBelow(answer.text.length, 10_000, name)
        }
      })
    )
  )

  it.effect("a problem lists a hundred errors, and says how many there are", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const lines = Array.from({ length: 1_000 }, () => ({ a: 0, b: 0, c: 0, d: 0, e: 0 }))
      const answer = yield* send(`${url}/orders`, { body: { ...newOrder, lines } })
      assertProblem(answer, 400, "lines")
      assert.strictEqual(answer.json.errors.length, 100)
      assert.strictEqual(answer.json.detail, "the request is not valid: 8000 fields are wrong, of which 100 are listed")
      const query = Array.from({ length: 1_500 }, (_, index) => `q${index}=`).join("&")
      const many = yield* send(`${url}/orders?${query}`)
      assertProblem(many, 400, "query")
      assert.strictEqual(many.json.errors.length, 100)
      assert.match(many.json.detail, /1500 fields are wrong/)
    })
  )

  it.effect("a webhook's body and the gateway's have the same bounds", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const { url: gateway } = yield* GatewayServer
      for (const [body, message] of [
        ["[".repeat(1_000), /must be nested at most 32 deep/],
        [`[${"0,".repeat(10_000)}0]`, /must have at most 10000 values/]
      ] as const) {
        const signature = SignedMessage.sign(webhookSecret, Math.floor(Date.now() / 1000), body)
        const headers = { "idempotency-key": "bounds", "gateway-signature": signature }
        for (const path of [`${url}/webhooks/gateway`, `${gateway}/charges`, `${gateway}/refunds`]) {
          const answer = yield* send(path, { body, headers })
          assertProblem(answer, 400, path)
          assert.match(answer.json.detail, message, path)
        }
      }
    })
  )

  it.effect("a field named twice is not broken JSON: the last one counts", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const answer = yield* send(`${url}/orders`, {
        body: `{"currency":"nonsense",${JSON.stringify(newOrder).slice(1)}`
      })
      assert.strictEqual(answer.status, 201)
    })
  )

  it.effect("a payment request names the errors of path, header and body at once", () =>
    changesNothing(
      Effect.gen(function* () {
        const { url } = yield* BoundAddress
        const all = yield* send(`${url}/orders/${uuidV4}/pay`, { body: { method: "pm_ok" } })
        assertProblem(all, 400, "all")
        assert.sameMembers(
          [...places(all)],
          ["path /id", "header /idempotency-key", "body /method", "body /paymentMethod"]
        )
        for (const body of [{ paymentMethod: "" }, { paymentMethod: 1 }, { paymentMethod: "\ud800" }, {}]) {
          const answer = yield* send(`${url}/orders/${uuidV7}/pay`, { body, headers: { "idempotency-key": "k" } })
          assertProblem(answer, 400, JSON.stringify(body))
          assert.deepStrictEqual(places(answer), ["body /paymentMethod"])
        }
      })
    )
  )

  it.effect("an Idempotency-Key has 1 to 255 characters and no control characters", () =>
    changesNothing(
      Effect.gen(function* () {
        const { port, url } = yield* BoundAddress
        for (const key of ["", "x".repeat(256), "a\tb", "\u0080"]) {
          const answer = yield* send(`${url}/orders`, { body: newOrder, headers: { "idempotency-key": key } })
          assertProblem(answer, 400, JSON.stringify(key))
          assert.deepStrictEqual(places(answer), ["header /idempotency-key"])
        }
        const body = JSON.stringify(newOrder)
        for (const key of ["a\u0000b", "a\u0001b"]) {
          const raw = yield* speak(
            port,
            `POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: ${key}\r\n` +
              `Content-Length: ${body.length}\r\n\r\n${body}`
          )
          assert.match(raw, /^HTTP\/1\.1 400 [\s\S]*application\/problem\+json/)
        }
      })
    )
  )

  it.effect("HEAD that is not valid HTTP gets the headers of the problem, and no body", () =>
    Effect.gen(function* () {
      const { port } = yield* BoundAddress
      const rest = "/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:\r\n\r\n"
      const [headers, body] = (yield* speak(port, `HEAD ${rest}`)).split("\r\n\r\n")
      assert.match(headers ?? "", /^HTTP\/1\.1 400 [\s\S]*application\/problem\+json/)
      assert.strictEqual(body, "")
      // The same request with a body in its answer: it is the method that leaves it out.
      assert.match(yield* speak(port, `GET ${rest}`), /\r\n\r\n\{/)
    })
  )

  it.effect("malformed ids are 400 in the path, wherever they stand", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      for (const id of [
        "1",
        uuidV4,
        `${uuidV7}0`,
        "%00",
        "%ff",
        "%zz",
        "x".repeat(5_000),
        "%E2%82%AC",
        "'%20OR%201=1"
      ]) {
        for (const path of [`/orders/${id}`, `/orders/${id}/timeline`, `/payments/${id}`]) {
          const answer = yield* send(`${url}${path}`)
          assertProblem(answer, 400, path)
          assert.deepStrictEqual(places(answer), ["path /id"], path)
        }
      }
    })
  )

  it.effect("the list refuses unknown parameters, all at once", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const answer = yield* send(`${url}/orders?limit=101&status=lost&cursor=${uuidV4}&page=2`)
      assertProblem(answer, 400, "list")
      assert.sameMembers([...places(answer)], ["query /limit", "query /status", "query /cursor", "query /page"])
      for (const query of [
        "limit=0",
        "limit=",
        "limit=1.5",
        "limit=0x10",
        "limit=1e1",
        "limit=%2010",
        "limit=010",
        "limit=+5",
        "limit=10.",
        "limit=x",
        "limit=-1",
        "limit=1&limit=2",
        "status=",
        "status=%ff",
        "cursor="
      ]) {
        const one = yield* send(`${url}/orders?${query}`)
        assertProblem(one, 400, query)
        assert.deepStrictEqual(places(one), [`query /${query.split("=")[0]}`], query)
      }
    })
  )

  it.effect("unknown paths are 404, known paths with another method 405 with the allowed ones", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      for (const path of ["/", "/nothing", "//orders", "/orders/a/b/c", "/ORDERS", "/%ff"]) {
        const answer = yield* send(`${url}${path}`)
        assertProblem(answer, path === "/%ff" ? 400 : 404, path)
      }
      // The router ends a path at a semicolon, and reads an escaped letter as the letter.
      for (const other of [
        "/orders;x",
        "/%6frders",
        "/%4Frders",
        "/orders%2d",
        "/metrics;x",
        "/health%2Flive;x",
        "/health/live;"
      ]) {
        assertProblem(yield* send(`${url}${other}`), 404, other)
      }
      const cut = `/orders/${uuidV7};a/pay`
      assertProblem(yield* send(`${url}${cut}`, { method: "POST" }), 404, cut)
      const allowed = async (method: string, path: string) =>
        (await fetch(`${url}${path}`, { method })).headers.get("allow")
      for (const [method, path, allow] of [
        ["DELETE", "/orders", "GET, HEAD, POST"],
        ["PUT", `/orders/${uuidV7}`, "GET, HEAD"],
        ["GET", `/orders/${uuidV7}/pay`, "POST"],
        ["POST", "/metrics", "GET, HEAD"]
      ] as const) {
        assertProblem(yield* send(`${url}${path}`, { method }), 405, path)
        assert.strictEqual(yield* Effect.promise(() => allowed(method, path)), allow)
      }
    })
  )

  it.effect("a body that is not declared as JSON is 415, and the answer names the accepted type", () =>
    changesNothing(
      Effect.gen(function* () {
        const { port, url } = yield* BoundAddress
        const json = JSON.stringify(newOrder)
        for (const type of [
          "text/plain",
          "application/x-www-form-urlencoded",
          "application/xml",
          "application/json; charset=latin1"
        ]) {
          const answer = yield* send(`${url}/orders`, { body: json, headers: { "content-type": type } })
          assertProblem(answer, 415, type)
          assert.strictEqual(answer.headers.get("accept"), "application/json")
        }
        const raw = yield* speak(
          port,
          `POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${json.length}\r\nConnection: close\r\n\r\n${json}`
        )
        assert.match(raw, /^HTTP\/1\.1 415 /)
        assertProblem(
          yield* send(`${url}/orders`, { body: json, headers: { "content-encoding": "gzip" } }),
          415,
          "gzip"
        )
      })
    )
  )

  it.effect("a body above the limit is 413, announced or not, and the server goes on", () =>
    changesNothing(
      Effect.gen(function* () {
        const { port, url } = yield* BoundAddress
        assertProblem(yield* send(`${url}/orders`, { body: " ".repeat(maxBodyBytes + 1) }), 413, "announced")
        assertProblem(yield* send(`${url}/orders`, { body: " ".repeat(20 * maxBodyBytes) }), 413, "twenty times")
        // A body just below the limit is read, and refused for its content.
        assertProblem(yield* send(`${url}/orders`, { body: " ".repeat(maxBodyBytes) }), 400, "at the limit")
        const head = "POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        const chunk = `10000\r\n${" ".repeat(65_536)}\r\n`
        const chunked = yield* speak(
          port,
          `${head}Transfer-Encoding: chunked\r\n\r\n`,
          ...Array.from({ length: 17 }, () => chunk)
        )
        assert.match(chunked, /^HTTP\/1\.1 413 [\s\S]*application\/problem\+json/)
        // A body that has arrived as a whole when it is read, at a path with a lower limit.
        const atOnce = yield* speak(
          port,
          `${head.replace("/orders", "/admin/session")}Transfer-Encoding: chunked\r\n\r\n2328\r\n${" ".repeat(0x2328)}\r\n0\r\n\r\n`
        )
        assert.match(atOnce, /^HTTP\/1\.1 413 /)
        // The body is announced and never sent: the answer does not wait for it.
        const silent = yield* speak(port, `${head}Content-Length: ${maxBodyBytes + 1}\r\n\r\n`)
        assert.match(silent, /^HTTP\/1\.1 413 /)
        const expecting = yield* speak(
          port,
          `${head}Content-Length: ${maxBodyBytes + 1}\r\nExpect: 100-continue\r\n\r\n`
        )
        assert.match(expecting, /^HTTP\/1\.1 413 /)
        assert.strictEqual((yield* send(`${url}/health/live`)).status, 200)
      })
    )
  )

  it.effect("malformed HTTP is answered with a problem, too, and so are two Host headers and none", () =>
    Effect.gen(function* () {
      const { port } = yield* BoundAddress
      const { url: gateway } = yield* GatewayServer
      for (const of of [port, Number(new URL(gateway).port)]) {
        for (const hosts of ["", "Host: x\r\nHost: x\r\n"]) {
          const answer = yield* speak(of, `GET /orders HTTP/1.1\r\n${hosts}\r\n`)
          assert.match(answer, /^HTTP\/1\.1 400 [\s\S]*problem\+json[\s\S]*"pointer":"\/host"/)
        }
      }
      assert.match(yield* speak(port, "nonsense\r\n\r\n"), /^HTTP\/1\.1 400 [\s\S]*problem\+json/)
      assert.match(
        yield* speak(port, `GET / HTTP/1.1\r\nHost: localhost\r\nX: ${"x".repeat(20_000)}\r\n\r\n`),
        /^HTTP\/1\.1 431 [\s\S]*problem\+json/
      )
    })
  )
})
