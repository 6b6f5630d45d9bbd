/** The smallest server of Effect's router: what Effect itself costs a request that does nothing. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { answer } from "../outside/Child.ts"

const node = Http.createServer()
const live = HttpRouter.add("GET", "/health/live", HttpServerResponse.jsonUnsafe({ status: "live" }))
const server = HttpRouter.serve(live, { disableLogger: true, disableListenLog: true }).pipe(
  Layer.provide(NodeHttpServer.layer(() => node, { port: 0, host: "127.0.0.1" }))
)

answer({
  listen: async () => {
    Effect.runFork(Layer.launch(server))
    await new Promise((resolve) => node.once("listening", resolve))
    return `http://127.0.0.1:${(node.address() as AddressInfo).port}`
  }
})
