/** What a request to the webhook costs before it is known to be the gateway's. */
import { assert, layer } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { connect } from "node:net"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { maxReportBytes } from "../../src/http/PaymentsApi.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import { eventually } from "../support/Counters.ts"
import { send, service, webhookSecret } from "./Service.ts"

const nowSeconds = () => Math.floor(Date.now() / 1000)
const hook = Effect.map(BoundAddress, ({ url }) => `${url}/webhooks/gateway`)
const signed = (body: string, secret = webhookSecret, at = nowSeconds()) => ({
  body,
  headers: { "gateway-signature": SignedMessage.sign(secret, at, body) }
})

/** The answer to a request whose body is announced and never sent. */
const withoutBody = Effect.fnUntraced(function* (bytes: number, signature: string | undefined) {
  const { port } = yield* BoundAddress
  const socket = yield* Effect.acquireRelease(
    Effect.sync(() => connect(port, "127.0.0.1")),
    (socket) => Effect.sync(() => socket.destroy())
  )
  let answer = ""
  socket.on("error", () => {})
  socket.on("data", (chunk) => (answer += chunk.toString("latin1")))
  socket.write(
    `POST /webhooks/gateway HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\n` +
      `${signature === undefined ? "" : `Gateway-Signature: ${signature}\r\n`}\r\n`
  )
  yield* eventually(
    "an answer",
    Effect.sync(() => answer !== "")
  )
  return answer
})

layer(service, { excludeTestServices: true })("the webhook", (it) => {
  it.effect("a signature that is missing, malformed or old is refused before a byte of the body is read", () =>
    Effect.gen(function* () {
      const hex = "0".repeat(64)
      const now = nowSeconds()
      for (const signature of [
        undefined,
        "x",
        `t=${now}`,
        `t=${now}${`,v1=${hex}`.repeat(6)}`,
        `t=${now - 400},v1=${hex}`,
        `t=${now + 400},v1=${hex}`
      ]) {
        assert.match(yield* withoutBody(1_000, signature), /^HTTP\/1\.1 401 /, signature)
      }
    })
  )

  it.effect("a report beyond its limit is refused, whether its length is announced or counted", () =>
    Effect.gen(function* () {
      const of = (bytes: number) => signed(`{"type":"x"}`.padEnd(bytes))
      const { url } = yield* BoundAddress
      const ask = ({ body, headers }: ReturnType<typeof of>) =>
        // A stream is sent in chunks, and its length is not announced.
        Effect.promise(() =>
          fetch(`${url}/webhooks/gateway`, {
            method: "POST",
            body: new Blob([body]).stream(),
            duplex: "half",
            headers: { ...headers, "content-type": "application/json" }
          }).then(({ status }) => status)
        )
      assert.strictEqual((yield* send(yield* hook, of(maxReportBytes))).status, 200)
      assert.strictEqual(yield* ask(of(maxReportBytes)), 200)
      assert.strictEqual(yield* ask(of(maxReportBytes + 1)), 413)
      const signature = `t=${nowSeconds()},v1=${"0".repeat(64)}`
      assert.match(yield* withoutBody(maxReportBytes + 1, signature), /^HTTP\/1\.1 413 [\s\S]*at most 1048576 bytes/)
    })
  )

  it.effect("a body is hashed before it is read as JSON, so a stranger's is not", () =>
    Effect.gen(function* () {
      const stranger = Redacted.make("a-secret-of-somebody-else")
      for (const body of ["[".repeat(1_000), `[${"0,".repeat(10_000)}0]`, "{", "7"]) {
        assert.strictEqual((yield* send(yield* hook, signed(body, stranger))).status, 401)
        assert.strictEqual((yield* send(yield* hook, signed(body))).status, 400)
      }
    })
  )
})
