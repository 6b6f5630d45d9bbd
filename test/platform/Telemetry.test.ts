/** A collector is another server: it may answer with anything, and must not harm the service. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Layer } from "effect"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import * as Telemetry from "../../src/platform/Telemetry.ts"
import * as Collector from "../support/Collector.ts"

/** Far above what the sockets of one connection hold. A collector that could send this much was not cut. */
const tooMuch = 64 * 1_048_576

it.live("an answer of the collector that never ends is cut at a limit, and its connection closed", () =>
  Effect.gen(function* () {
    const closed = yield* Deferred.make<number>()
    let sent = 0
    const chunk = Buffer.alloc(65_536, "x")
    const server = yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>>((resume) => {
        const made = createServer((request, response) => {
          request.resume()
          response.on("close", () => Deferred.doneUnsafe(closed, Effect.succeed(sent)))
          const more = () => {
            while (!response.destroyed && sent < tooMuch) {
              sent += chunk.length
              if (!response.write(chunk)) return void response.once("drain", more)
            }
            response.destroy()
          }
          more()
        }).listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
      }),
      (made) => Effect.sync(() => made.close().closeAllConnections())
    )
    const collector = Telemetry.layerOtlp({
      endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      headers: {},
      serviceName: "test",
      instance: "1@here"
    }).pipe(Layer.provide(NodeHttpClient.layerUndici))
    // The end of the layer sends what is left.
    yield* Effect.provide(Effect.withSpan(Effect.void, "a span"), collector)
    assert.isBelow(yield* Deferred.await(closed), tooMuch)
  }).pipe(Effect.scoped)
)

it.live("a span says which process made it, by the name that operators know", () =>
  Effect.gen(function* () {
    const { spans, url } = yield* Collector.make()
    const collector = Telemetry.layerOtlp({ endpoint: url, headers: {}, serviceName: "shop", instance: "1@here" })
    yield* Effect.provide(Effect.withSpan(Effect.void, "a span"), Layer.provide(collector, NodeHttpClient.layerUndici))
    assert.deepStrictEqual(
      spans().map(({ instance, service }) => [service, instance]),
      [["shop", "1@here"]]
    )
  }).pipe(Effect.scoped)
)
