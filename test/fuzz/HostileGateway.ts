/**
 * Stands between the service and the sandbox gateway, and answers some requests as no gateway should. What it says about money stays true.
 * An answer that can be read is the sandbox's, or it refuses a charge. The sandbox never hears of such a charge. Or the answer tells an
 * amount that nobody asked for. The service must not believe it.
 */
import { Effect, Redacted } from "effect"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { signatureHeader } from "../../src/application/GatewayWebhook.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import type { Dice } from "./Dice.ts"

export interface HostileGateway {
  readonly url: string
  /** Of the next requests, this share is answered badly. 0: all pass. */
  readonly misbehave: (share: number) => Effect.Effect<void>
  /** Where reports are sent of the charges that it refuses. */
  readonly reportTo: (url: string) => Effect.Effect<void>
  /** Keys of charges of which it told another amount, and which the sandbox had not heard of by then. */
  readonly wrongAmounts: ReadonlySet<string>
  /** How many requests it has answered badly. */
  readonly count: () => number
}

const long = "x".repeat(65_536)
const hostileReasons: ReadonlyArray<string> = [
  "",
  "a\u0000b",
  "\ud800",
  "\u0000".repeat(900),
  // Within the bytes that the service reads of an answer. Above them a decline is no outcome, and a person has to look.
  "z".repeat(60_000),
  "\u202e<b>",
  "\r\n\r\n",
  "{}"
]

/** Answers from which no outcome can be read. The request may have been carried out, or not. */
const unreadable: ReadonlyArray<(response: Http.ServerResponse, dice: Dice) => void> = [
  (response, dice) =>
    json(
      response,
      dice.pick([200, 402, 422, 404, 500]),
      dice.pick(["{}", "[]", "null", "7", '"captured"', "", "{", '{"status":7}'])
    ),
  (response, dice) =>
    json(
      response,
      200,
      dice.pick([
        '{"status":["captured"]}',
        '{"status":"CAPTURED"}',
        '{"status":"captured\\u0000"}',
        '{"status":1e400}'
      ])
    ),
  (response) => json(response, 402, '{"status":"captured"}'),
  // Of a charge this contradicts itself. Of a look-up it would be an outcome, and a lie.
  (response) => json(response, 200, response.req.method === "POST" ? '{"status":"declined","reason":"no"}' : "{}"),
  (response) => json(response, 402, '{"status":"declined","reason":{"a":[1e400]}}'),
  (response) => json(response, 200, Buffer.from([0x7b, 0xff, 0xfe, 0x00, 0x7d])),
  (response) => json(response, 200, "[".repeat(100_000)),
  (response, dice) =>
    response
      .writeHead(dice.pick([204, 304, 302, 401, 429, 503, 599]), { location: "/", "retry-after": "999999999" })
      .end(),
  (response) => response.writeHead(200, { "content-type": "text/html", "content-encoding": "gzip" }).end("no gzip"),
  (response) =>
    response
      .writeHead(200, Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`x-${n}`, long.slice(0, 200)])))
      .end("{}"),
  // Truncated, silent, not HTTP.
  (response) => {
    response.writeHead(200, { "content-type": "application/json", "content-length": "100" }).write('{"status":"capt')
    setTimeout(() => response.destroy(), 20)
  },
  (response) => void response.destroy(),
  (response) => {
    response.socket?.end("HTTP/1.1 999 \r\n\r\n\r\n")
  },
  // Byte by byte, and without an end.
  (response) => drip(response, '{"status":"captured"}', 100),
  (response) => {
    response.writeHead(200, { "content-type": "application/json" })
    const more = () => {
      while (!response.destroyed && response.write(long)) {
        // Until the socket is full.
      }
    }
    response.write('{"status":"captured","more":"')
    response.on("drain", more)
    more()
  }
]

const json = (response: Http.ServerResponse, status: number, body: string | Buffer) =>
  void response.writeHead(status, { "content-type": "application/json" }).end(body)

const drip = (response: Http.ServerResponse, text: string, everyMillis: number) => {
  let sent = 0
  const timer = setInterval(() => {
    if (response.destroyed || sent === text.length) {
      clearInterval(timer)
      response.end()
    } else response.write(text[sent++])
  }, everyMillis)
}

/** Listens until the scope ends. `sandbox` is the real gateway's URL. */
export const make = (sandbox: string, secret: string, dice: Dice) =>
  Effect.gen(function* () {
    let share = 0
    let target = ""
    let count = 0
    /** Why charges were refused here, by their keys: a gateway never forgets that it has declined. */
    const refused = new Map<string, string>()
    // As the sandbox: a charge is refused with 402, and a look-up that finds the refusal has found something.
    const declined = (response: Http.ServerResponse, key: string) =>
      json(
        response,
        response.req.method === "POST" ? 402 : 200,
        JSON.stringify({ status: "declined", reason: refused.get(key) })
      )

    /** The sandbox's answer; undefined where there is none. */
    const passOn = async (request: Http.IncomingMessage, body: Buffer, signal: AbortSignal) => {
      const answer = await fetch(`${sandbox}${request.url}`, {
        method: request.method ?? "GET",
        signal,
        headers: Object.fromEntries(
          ["content-type", "idempotency-key"].flatMap((name) =>
            request.headers[name] === undefined ? [] : [[name, String(request.headers[name])]]
          )
        ),
        ...(body.length === 0 ? {} : { body: body.toString() })
      })
      return { status: answer.status, type: answer.headers.get("content-type") ?? "", text: await answer.text() }
    }

    const refuse = (response: Http.ServerResponse, key: string) => {
      const reason = dice.pick(hostileReasons)
      refused.set(key, reason)
      const report = JSON.stringify({ id: key, type: "charge.declined", key, reason })
      const signature = SignedMessage.sign(Redacted.make(secret), Math.floor(Date.now() / 1000), report)
      // A report that does not arrive is not missed: the answer says the same.
      if (target !== "" && dice.chance(0.5))
        fetch(target, {
          method: "POST",
          body: report,
          headers: { "content-type": "application/json", [signatureHeader]: signature }
        }).then(
          (answer) => answer.text(),
          () => ""
        )
      declined(response, key)
    }

    const wrongAmounts = new Set<string>()
    const tellOtherAmount = (response: Http.ServerResponse, key: string, asked: string) => {
      const { amountMinor, currency } = JSON.parse(asked) as { readonly amountMinor: number; readonly currency: string }
      const told = dice.pick([
        `"amountMinor":${amountMinor + 1}`,
        `"amountMinor":${-amountMinor}`,
        `"amountMinor":1e400,"currency":"${currency}"`,
        `"amountMinor":"${amountMinor}"`,
        `"amountMinor":${amountMinor},"currency":"XXX"`
      ])
      wrongAmounts.add(key)
      json(response, 200, `{"status":"captured",${told}}`)
    }

    const handle = async (request: Http.IncomingMessage, response: Http.ServerResponse) => {
      const chunks: Array<Buffer> = []
      for await (const chunk of request) chunks.push(chunk as Buffer)
      const path = request.url ?? ""
      const key = String(request.headers["idempotency-key"] ?? decodeURIComponent(path.split("/").at(-1)!))
      const isCharge = path.startsWith("/charges")
      if (isCharge && refused.has(key)) return declined(response, key)
      const isBad = dice.chance(share)
      if (isBad) count += 1
      // Only a key that the sandbox has not seen may be refused.
      if (isBad && path === "/charges" && dice.chance(0.3) && !seen.has(key)) return refuse(response, key)
      if (isBad && path === "/charges" && dice.chance(0.3) && !seen.has(key)) {
        seen.add(key)
        return tellOtherAmount(response, key, Buffer.concat(chunks).toString())
      }
      seen.add(key)
      const gone = new AbortController()
      response.on("close", () => gone.abort())
      if (isBad && dice.chance(0.5)) return dice.pick(unreadable)(response, dice)
      const { status, text, type } = await passOn(request, Buffer.concat(chunks), gone.signal)
      if (isBad) return dice.pick(unreadable)(response, dice)
      response.writeHead(status, { "content-type": type }).end(text)
    }
    const seen = new Set<string>()

    const server = yield* Effect.acquireRelease(
      Effect.promise(
        () =>
          new Promise<Http.Server>((resolve) => {
            const listening = Http.createServer((request, response) => {
              // The service has hung up, or the sandbox is silent: there is nobody to tell.
              handle(request, response).catch(() => response.destroy())
            })
            listening.listen(0, "127.0.0.1", () => resolve(listening))
          })
      ),
      (open) =>
        Effect.sync(() => {
          open.closeAllConnections()
          open.close()
        })
    )
    const gateway: HostileGateway = {
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      misbehave: (next) => Effect.sync(() => void (share = next)),
      reportTo: (url) => Effect.sync(() => void (target = url)),
      wrongAmounts,
      count: () => count
    }
    return gateway
  })
