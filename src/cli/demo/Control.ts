/**
 * The control of a demo that stays: an HTTP server of the demo's own process, which the page Break it asks. The service has no part in it, and no
 * route under /admin ends or freezes a process.
 *
 * It listens on loopback. A request must name this very host and port, and have the token that the demo has drawn. It comes from a page of the
 * demo's service, or from no page at all. So another site's page and another program's guess reach nothing.
 */
import { Effect, FiberSet, Semaphore } from "effect"
import { randomBytes } from "node:crypto"
import type * as Http from "node:http"
import type { AddressInfo } from "node:net"
import * as ApiKeys from "../../http/access/ApiKeys.ts"
import { hasBody } from "../../http/Body.ts"
import { makeNodeServer } from "../../http/HttpServer.ts"
import { Problem, toJson } from "../../http/Problems.ts"

const host = "127.0.0.1"

/** As hard to guess as AES-256. */
const tokenBytes = 32

/** A browser opens six to a server. */
const maxConnections = 20

/** What the control shows and does. */
export interface Controlled {
  /** The origin of the service's pages; undefined before it runs. */
  readonly origin: () => string | undefined
  /** The answer of `GET /state`. */
  readonly state: () => unknown
  /** Does `POST /processes/{name}/{action}`, `POST /broker/{action}` and `POST /drills/{name}`; one at a time. */
  readonly act: (path: ReadonlyArray<string>) => Effect.Effect<void, Problem>
}

/** Listens until the scope closes. The url has the port; the token is good for as long. */
export const make = Effect.fnUntraced(function* ({ act, origin, state }: Controlled) {
  const token = randomBytes(tokenBytes).toString("base64url")
  const keys = [ApiKeys.ofAdmin(token)]
  const server = makeNodeServer()
  server.maxConnections = maxConnections
  const run = yield* FiberSet.makeRuntime<never, void, never>()
  const turns = yield* Semaphore.make(1)

  const refusal = ({ headers, method }: Http.IncomingMessage): Problem | undefined => {
    const refuse = (status: number, detail: string) => new Problem({ status, detail })
    if (headers.host !== authority()) return refuse(421, `this is the control of a demo at ${authority()}`)
    if (headers.origin !== undefined && headers.origin !== origin())
      return refuse(403, "the Origin is not the demo's service")
    // The browser asks first, without the token.
    if (method === "OPTIONS") return undefined
    if (ApiKeys.ownerOf(keys, ApiKeys.bearerOf(headers.authorization) ?? "") === undefined)
      return refuse(401, "this needs the token of the link that the demo has printed: Authorization: Bearer TOKEN")
    return hasBody(headers) ? refuse(413, "no request has a body here") : undefined
  }

  const handle = ({ method, url = "" }: Http.IncomingMessage): Effect.Effect<unknown, Problem> => {
    if (method === "OPTIONS") return Effect.undefined
    const path = url.slice(1).split("/")
    if (method === "GET" && url === "/state") return Effect.sync(state)
    if (method !== "POST")
      return Effect.fail(new Problem({ status: 404, detail: "there are GET /state, and POST of actions" }))
    return turns.withPermit(Effect.map(act(path), state))
  }

  server.on("request", (request, response) => {
    const allowed = request.headers.origin
    const send = (status: number, body: string, headers: Readonly<Record<string, string>> = {}) =>
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(body)
    const refused = refusal(request)
    if (refused === undefined && allowed !== undefined) {
      response.setHeader("access-control-allow-origin", allowed)
      response.setHeader("access-control-allow-headers", "authorization")
      response.setHeader("vary", "origin")
    }
    run(
      (refused === undefined ? handle(request) : Effect.fail(refused)).pipe(
        Effect.match({
          onSuccess: (body) =>
            void send(body === undefined ? 204 : 200, body === undefined ? "" : JSON.stringify(body)),
          onFailure: (problem) => void send(problem.status, toJson(problem))
        })
      )
    )
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => void server.listen(0, host, () => resume(Effect.void))),
    () => Effect.sync(() => (server.closeAllConnections(), void server.close()))
  )
  const { port } = server.address() as AddressInfo
  const authority = () => `${host}:${port}`
  return { url: `http://${authority()}`, port, token }
})
