/** Bodies that are small and dear: in tiny pieces, and in blanks. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { connect } from "node:net"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { sendRaw } from "../support/RawHttp.ts"
import { newOrder, send, service } from "./Service.ts"

/** The answer to an order whose body comes in these pieces. */
const inPieces = Effect.fnUntraced(function* (pieces: ReadonlyArray<string>) {
  const { port } = yield* BoundAddress
  const head = [
    "POST /orders HTTP/1.1",
    "Host: localhost",
    "Content-Type: application/json",
    "Transfer-Encoding: chunked"
  ]
  const chunks = pieces.map((piece) => `${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`)
  return yield* sendRaw(port, head, `${chunks.join("")}0\r\n\r\n`)
})

layer(service, { excludeTestServices: true })("a body", (it) => {
  it.effect("a short one may come byte by byte, and a long one in fair pieces", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* inPieces(JSON.stringify(newOrder).match(/./g)!)).status, 201)
      const long = `${JSON.stringify(newOrder)}${" ".repeat(200_000)}`
      assert.strictEqual((yield* inPieces(long.match(/.{1,128}/g)!)).status, 201)
    })
  )

  it.effect("one that comes in thousands of tiny pieces ends its connection", () =>
    Effect.gen(function* () {
      const { status } = yield* inPieces([JSON.stringify(newOrder), ...Array.from({ length: 20_000 }, () => " ")])
      assert.isNaN(status, "an answer")
    })
  )

  /** How many of these requests were answered, sent at once or one after the other. */
  const answersTo = (requests: ReadonlyArray<string>, isPipelined: boolean) =>
    Effect.flatMap(BoundAddress, ({ port }) =>
      Effect.callback<number>((resume) => {
        const socket = connect(port, "127.0.0.1")
        const waiting = [...requests]
        let answers = 0
        const send = () => socket.write(isPipelined ? waiting.splice(0).join("") : (waiting.shift() ?? ""))
        socket.on("data", (chunk) => {
          answers += chunk.toString("latin1").split("HTTP/1.1 ").length - 1
          if (answers === requests.length) socket.destroy()
          else if (!isPipelined) send()
        })
        socket.on("error", () => {})
        socket.on("close", () => resume(Effect.succeed(answers)))
        send()
        return Effect.sync(() => socket.destroy())
      })
    )

  const chunked = `POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n${"1\r\nx\r\n".repeat(400)}0\r\n\r\n`

  it.effect("many short ones on one connection count together while they wait for each other, and no longer", () =>
    Effect.gen(function* () {
      const requests = Array.from({ length: 6 }, () => chunked)
      assert.strictEqual(yield* answersTo(requests, false), requests.length)
      assert.isBelow(yield* answersTo(requests, true), requests.length)
    })
  )

  it.effect(
    "blanks cost what they weigh, where nothing has to be said",
    () =>
      Effect.gen(function* () {
        const { url } = yield* BoundAddress
        const cancel = (body: string) =>
          send(`${url}/orders/01890a5d-ac96-774b-bcce-b302099a8057/cancel`, {
            method: "POST",
            headers: { "content-type": "application/json" },
            body
          })
        // A pattern that backtracks takes twenty seconds for this, twice the limit of this test.
        const blank = " ".repeat(200_000)
        assert.strictEqual((yield* cancel(`${blank}x`)).status, 400)
        assert.strictEqual((yield* cancel(`{${blank}x`)).status, 400)
        // There is no such order, and its body was fine.
        for (const nothing of [blank, `${blank}{${blank}}${blank}`]) {
          assert.strictEqual((yield* cancel(nothing)).status, 404)
        }
        for (const something of ["{", "}", "{}{}", "[]", "null"]) {
          assert.strictEqual((yield* cancel(something)).status, 400, something)
        }
      }),
    10_000
  )
})
