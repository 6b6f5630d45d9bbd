/** The parts of the fuzzer that tell a person what it has found. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawn } from "node:child_process"
import { createHmac } from "node:crypto"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { curl } from "./Curl.ts"
import { bytesOf, type FuzzRequest } from "./FuzzRequest.ts"
import { shrink } from "./Shrink.ts"

const request: FuzzRequest = {
  method: "POST",
  endpoint: "/orders",
  target: "/orders?a=1&b=2",
  headers: [
    ["content-type", "application/json"],
    ["x-one", "1"],
    ["x-two", "abcdefgh"]
  ],
  body: {
    _tag: "Json",
    value: { customerId: "it's", lines: [{ sku: "a" }, { sku: "\ud800" }, { sku: "b" }], more: { x: [1, 2, 3] } }
  },
  isSigned: false
}

it.effect("a request is shrunk to what its failure needs, and to nothing more", () =>
  Effect.gen(function* () {
    const fails = (candidate: FuzzRequest) =>
      Effect.succeed(
        bytesOf(candidate.body).includes("\\ud800") && candidate.headers.some(([name]) => name === "x-two")
      )
    const smallest = yield* shrink(request, fails, 10_000)
    assert.deepStrictEqual(smallest, {
      ...request,
      target: "/",
      headers: [["x-two", ""]],
      body: { _tag: "Json", value: { lines: [{ sku: "\ud800" }] } }
    })
  })
)

describe("the printed command sends the same request", () => {
  const secret = "a-secret-of-two-companies"
  const bodies: ReadonlyArray<readonly [string, FuzzRequest]> = [
    ["with JSON", request],
    ["with bytes that are no text", { ...request, body: { _tag: "Raw", bytes: Buffer.from([0, 255, 39, 10, 36]) } }],
    [
      "with bytes in a header",
      {
        ...request,
        headers: [
          ["x-two", "\u00c3\u00a9'\\$"],
          ["x-none", ""]
        ]
      }
    ],
    ["without a body", { ...request, method: "GET", body: undefined }],
    ["with a signature", { ...request, isSigned: true }]
  ]
  for (const [name, one] of bodies) {
    it(name, async () => {
      const heard: Array<{ readonly request: Http.IncomingMessage; readonly body: Buffer }> = []
      const server = Http.createServer((incoming, response) => {
        const chunks: Array<Buffer> = []
        incoming.on("data", (chunk: Buffer) => chunks.push(chunk))
        incoming.on("end", () => {
          heard.push({ request: incoming, body: Buffer.concat(chunks) })
          response.end()
        })
      })
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
      const command = curl(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, one, secret)
      const child = spawn("bash", ["-c", command], { stdio: "ignore" })
      await new Promise((resolve) => child.on("close", resolve))
      server.close()
      const [{ body, request: sent }] = heard as [(typeof heard)[0]]
      assert.strictEqual(sent.method, one.method)
      assert.strictEqual(sent.url, one.target)
      assert.deepStrictEqual(body, bytesOf(one.body))
      for (const [header, value] of one.headers) assert.strictEqual(sent.headers[header], value)
      if (one.isSigned) {
        const [, at, signature] = /^t=(\d+),v1=(.*)$/.exec(String(sent.headers["gateway-signature"]))!
        assert.strictEqual(signature, createHmac("sha256", secret).update(`${at}.${body.toString()}`).digest("hex"))
      }
    })
  }
})
