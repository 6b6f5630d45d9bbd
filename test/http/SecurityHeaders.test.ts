/** The headers of every answer, on a plain server: each way in which a handler may write its head. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { SecuredResponse } from "../../src/http/access/SecurityHeaders.ts"

/** The answer of a server with this handler. */
const answerOf = (handler: (response: Http.ServerResponse) => void) =>
  Effect.gen(function* () {
    const server = yield* Effect.acquireRelease(
      Effect.sync(() => Http.createServer({ ServerResponse: SecuredResponse }, (_, response) => handler(response))),
      (open) => Effect.sync(() => open.close())
    )
    yield* Effect.callback<void>((resume) => void server.listen(0, "127.0.0.1", () => resume(Effect.void)))
    const { port } = server.address() as AddressInfo
    return yield* Effect.promise(() => fetch(`http://127.0.0.1:${port}/`, { headers: { connection: "close" } }))
  })

const own = "max-age=60"
const text = { "content-type": "text/plain" }

/** A way to write the head, with the answer's `cache-control`, and what else it has. */
type Way = readonly [
  name: string,
  handler: (response: Http.ServerResponse) => void,
  cacheControl: string,
  others: { readonly type?: string; readonly reason?: string }
]

const ways: ReadonlyArray<Way> = [
  ["without a head", (response) => response.end(), "no-store", {}],
  ["with a status alone", (response) => response.writeHead(201).end(), "no-store", {}],
  ["with other headers", (response) => response.writeHead(201, text).end(), "no-store", { type: "text/plain" }],
  [
    "with a reason",
    (response) => response.writeHead(201, "Made", text).end(),
    "no-store",
    { type: "text/plain", reason: "Made" }
  ],
  ["with one of these headers", (response) => response.writeHead(201, { "cache-control": own }).end(), own, {}],
  ["with one that was set before", (response) => response.setHeader("Cache-Control", own).end(), own, {}],
  [
    "with one that was set before, and others",
    (response) => response.setHeader("Cache-Control", own).writeHead(201, text).end(),
    own,
    { type: "text/plain" }
  ]
]

for (const [way, handler, cacheControl, others] of ways) {
  it.live(`an answer ${way} has the headers, and its own`, () =>
    Effect.gen(function* () {
      const { headers, statusText } = yield* answerOf(handler)
      assert.strictEqual(headers.get("cache-control"), cacheControl)
      assert.strictEqual(headers.get("x-content-type-options"), "nosniff")
      assert.strictEqual(headers.get("content-type"), others.type ?? null)
      if (others.reason !== undefined) assert.strictEqual(statusText, others.reason)
    })
  )
}
