/** A gateway that answers with anything but an outcome. Whatever it sends is an unknown outcome, costs little, and is never guessed. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Layer, Option, Redacted } from "effect"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { gzipSync } from "node:zlib"
import { Gateway, GatewaySettings, OutcomeUnknown } from "../../src/application/Gateway.ts"
import { PaymentId } from "../../src/domain/Ids.ts"
import { AmountMinor, Currency } from "../../src/domain/Money.ts"
import { PaymentMethod } from "../../src/domain/Payment.ts"

const paymentId = PaymentId.make("01890a5d-b1f4-7a53-9f5e-0d6f8f0c2b11")
const amount = { amountMinor: AmountMinor.make(2_500), currency: Currency.make("EUR") }

type Behaviour = (request: IncomingMessage, response: ServerResponse) => void

/** A server with this behaviour, and a client of it. */
const against = <A, E>(
  behave: Behaviour,
  body: (url: string) => Effect.Effect<A, E, Gateway>,
  options: { readonly timeoutMillis?: number; readonly authorization?: Redacted.Redacted } = {}
) =>
  Effect.gen(function* () {
    const server = yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>>((resume) => {
        const made = createServer(behave).listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
      }),
      (made) =>
        Effect.callback<void>((resume) => {
          made.close(() => resume(Effect.void))
          made.closeAllConnections()
        })
    )
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const settings = { url, timeoutMillis: 60_000, keyRetentionMillis: 86_400_000, ...options }
    return yield* Effect.provide(
      body(url),
      Gateway.layerHttp.pipe(
        Layer.provide(Layer.succeed(GatewaySettings, settings)),
        Layer.provide(NodeHttpClient.layerUndici)
      )
    )
  }).pipe(Effect.scoped)

const charge = Gateway.use((gateway) =>
  gateway.charge({ paymentId, amount, paymentMethod: PaymentMethod.make("pm_ok") })
)
const calls = {
  charge,
  refund: Gateway.use((gateway) => gateway.refund({ paymentId, amount })),
  "charge look-up": Gateway.use((gateway) => gateway.lookUpCharge(paymentId)),
  "refund look-up": Gateway.use((gateway) => gateway.lookUpRefund(paymentId))
}

/** An answer of this text. */
const text =
  (body: string | Uint8Array, status = 200, headers: Readonly<Record<string, string>> = {}): Behaviour =>
  (_, response) =>
    void response.writeHead(status, headers).end(body)

const reasonOf = <A>(call: Effect.Effect<A, OutcomeUnknown, Gateway>) =>
  Effect.map(Effect.flip(call), ({ reason }) => {
    assert.isAtMost(reason.length, 600)
    // oxlint-disable-next-line no-control-regex -- these are what must not be there
    assert.notMatch(reason, /[\u0000-\u001f\ud800-\udfff]/)
    return reason
  })

/** Far above what the sockets of one connection hold. A gateway that could send this much was not cut. */
const tooMuch = 64 * 1_048_576

for (const status of [200, 500]) {
  it.live(`an answer that never ends is cut at a limit, and its connection closed: ${status}`, () =>
    Effect.gen(function* () {
      const closed = yield* Deferred.make<number>()
      let sent = 0
      const chunk = Buffer.alloc(65_536, `{"status":"captured",`)
      const behave: Behaviour = (_, response) => {
        response.writeHead(status)
        response.on("close", () => Deferred.doneUnsafe(closed, Effect.succeed(sent)))
        const more = () => {
          while (!response.destroyed && sent < tooMuch) {
            sent += chunk.length
            if (!response.write(chunk)) return void response.once("drain", more)
          }
          response.destroy()
        }
        more()
      }
      const reason = yield* against(behave, () => Effect.tap(reasonOf(charge), () => Deferred.await(closed)))
      assert.isBelow(yield* Deferred.await(closed), tooMuch)
      assert.strictEqual(reason, status === 200 ? "its answer is longer than 65536 bytes" : "it answered 500")
    })
  )
}

it.live("an answer that begins and then stays silent ends with the timeout, and its connection is closed", () =>
  Effect.gen(function* () {
    const closed = yield* Deferred.make<void>()
    const behave: Behaviour = (_, response) => {
      response.on("close", () => Deferred.doneUnsafe(closed, Effect.void))
      response.writeHead(200).write(`{"status":`)
    }
    yield* against(behave, () => Effect.andThen(reasonOf(charge), Deferred.await(closed)), { timeoutMillis: 200 })
  })
)

it.live("a redirect is not followed: neither the charge nor the credentials go to another server", () =>
  Effect.gen(function* () {
    const asked: Array<string> = []
    const behave: Behaviour = (request, response) => {
      asked.push(`${request.method} ${request.url} ${request.headers.authorization}`)
      response.writeHead(307, { location: "/elsewhere" }).end()
    }
    const authorization = Redacted.make("Basic YWRhOmh1bnRlcjI=")
    const reasons = yield* against(behave, () => Effect.all([reasonOf(charge), reasonOf(calls["charge look-up"])]), {
      authorization
    })
    assert.deepStrictEqual(reasons, ["it answered 307", "it answered 307"])
    assert.deepStrictEqual(asked, [
      "POST /charges Basic YWRhOmh1bnRlcjI=",
      `GET /charges/${paymentId} Basic YWRhOmh1bnRlcjI=`
    ])
  })
)

const bomb = gzipSync(Buffer.from(`{"status":"captured","padding":"${"0".repeat(10_000_000)}"}`))
const deep = `{"status":"declined","reason":${"[".repeat(30_000)}${"]".repeat(30_000)}}`
const noOutcomes: ReadonlyArray<readonly [string, Behaviour]> = [
  ["an empty body", text("")],
  ["a page", text("<html>captured</html>", 200, { "content-type": "text/html" })],
  ["half of a JSON", text(`{"status":"captured"`)],
  ["a compressed answer, which was not asked for", text(bomb, 200, { "content-encoding": "gzip" })],
  ["a status that nobody knows", text(`{"status":"perhaps\\u0000\\ud800${"x".repeat(20_000)}"}`)],
  ["a reason that is ten thousand objects deep", text(deep)],
  ["a list", text(`[{"status":"captured"}]`)],
  ["a prototype for a body", text(`{"__proto__":{"status":"captured","detail":"x","key":"x"}}`)],
  ["headers without end", text("{}", 200, { padding: "x".repeat(200_000) })],
  ["an answer that is not HTTP", (_, response) => void response.socket?.end("captured\r\n\r\n")]
]

for (const [name, behave] of noOutcomes) {
  it.live(`${name} is an unknown outcome, of a charge, a refund and of their look-ups`, () =>
    against(behave, () =>
      Effect.forEach(
        Object.values(calls),
        (call: Effect.Effect<unknown, OutcomeUnknown, Gateway>) => reasonOf<unknown>(call),
        { discard: true }
      )
    )
  )
}

it.live("an answer about another refund is no answer", () =>
  against(text(`{"key":"01890a5d-b1f4-7a53-9f5e-0d6f8f0c2b12-refund"}`), () => reasonOf(calls["refund look-up"]))
)

it.live("an amount is handed on as the gateway names it, whatever that is, for it to be compared", () =>
  Effect.gen(function* () {
    for (const [named, read] of [
      [`"amountMinor":2500,"currency":"EUR"`, { amountMinor: 2_500, currency: "EUR" }],
      [`"amountMinor":"2500"`, { amountMinor: "2500" }],
      [`"amountMinor":1e400,"currency":null`, { amountMinor: Infinity, currency: null }],
      [`"currency":{"a":1}`, { currency: { a: 1 } }]
    ] as const) {
      const outcome = yield* against(text(`{"status":"captured",${named}}`), () => charge)
      assert.deepStrictEqual(outcome, { _tag: "Captured", ...read } as never)
    }
  })
)

it.live("a reason for a decline or a refusal is made presentable before it goes anywhere", () =>
  Effect.gen(function* () {
    const hostile = `no\\u0000 money\\ud800\\r\\n\\u001b[31m ${"x".repeat(50_000)}`
    const declined = yield* against(text(`{"status":"declined","reason":"${hostile}"}`, 402), () => charge)
    const found = yield* against(text(`{"status":"declined","reason":"${hostile}"}`), () => calls["charge look-up"])
    const refused = yield* against(text(`{"detail":"${hostile}"}`, 422), () => calls.refund)
    for (const outcome of [declined, Option.getOrThrow(found), refused]) {
      const reason = "reason" in outcome ? outcome.reason : ""
      assert.strictEqual(reason.length, 500)
      assert.isTrue(reason.startsWith("no� money����[31m xxx") && reason.endsWith("x…"), reason)
    }
  })
)

it.live("answers one after the other share their connections", () =>
  Effect.gen(function* () {
    const sockets = new Set<unknown>()
    const behave: Behaviour = (request, response) => {
      sockets.add(request.socket)
      response.end(`{"status":"captured"}`)
    }
    yield* against(behave, () => Effect.forEach(Array.from({ length: 10 }), () => charge))
    // undici may open a second one before the first is free.
    assert.isAtMost(sockets.size, 2)
  })
)
