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

for (const [way, handler, expected] of [
  ["without a head", (response) => response.end(), "no-store"],
  ["with a status alone", (response) => response.writeHead(201).end(), "no-store"],
  ["with other headers", (response) => response.writeHead(201, { "content-type": "text/plain" }).end(), "no-store"],
  ["with a reason", (response) => response.writeHead(201, "Made", { "content-type": "text/plain" }).end(), "no-store"],
  ["with one of these headers", (response) => response.writeHead(201, { "cache-control": own }).end(), own],
  ["with one that was set before", (response) => response.setHeader("Cache-Control", own).end(), own],
  [
    "with one that was set before, and others",
    (response) => response.setHeader("Cache-Control", own).writeHead(201, { "content-type": "text/plain" }).end(),
    own
  ]
] satisfies ReadonlyArray<readonly [string, (response: Http.ServerResponse) => void, string]>) {
  it.live(`an answer ${way} has the headers, and its own`, () =>
    Effect.gen(function* () {
      const { headers } = yield* answerOf(handler)
      assert.strictEqual(headers.get("cache-control"), expected)
      assert.strictEqual(headers.get("x-content-type-options"), "nosniff")
      if (way.endsWith("others") || way.includes("other headers"))
        assert.strictEqual(headers.get("content-type"), "text/plain")
    })
  )
}
