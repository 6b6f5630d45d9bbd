/**
 * The service's HTTP server: the API, its documentation, metrics and health on one port. A process without the role `http` serves health and
 * metrics alone.
 *
 * The routes are built before the port is bound, so that every request finds its handler. A stop goes the other way: health turns unready, new
 * connections are refused, requests under way end within the grace of {@link HttpSettings}, and the rest is closed.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer, Schema } from "effect"
import { HttpRouter, UrlParams } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import type { SqlClient } from "effect/sql"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import type { CancelOrder } from "../application/CancelOrder.ts"
import type { GatewayWebhook } from "../application/GatewayWebhook.ts"
import type { Orders } from "../application/Orders.ts"
import type { Payments } from "../application/Payments.ts"
import type { PayOrder } from "../application/PayOrder.ts"
import type { PlaceOrder } from "../application/PlaceOrder.ts"
import type { RefundOrder } from "../application/RefundOrder.ts"
import type { Reports } from "../application/Reports.ts"
import type { Timeline } from "../application/Timeline.ts"
import * as Grace from "../platform/Grace.ts"
import type { Fibers } from "../platform/Supervised.ts"
import type { Tasks } from "../tasks/Tasks.ts"
import * as Access from "./access/Access.ts"
import type * as Admin from "./admin/AdminHandlers.ts"
import { Credentials } from "./access/Credentials.ts"
import * as Admission from "./Admission.ts"
import { Api } from "./Api.ts"
import * as Console from "./Console.ts"
import * as Docs from "./Docs.ts"
import * as Draining from "./Draining.ts"
import * as Handlers from "./Handlers.ts"
import { CountedPieces } from "./RequestBytes.ts"
import { Health, type HealthParts, Readiness } from "./Health.ts"
import { HealthApi } from "./HealthApi.ts"
import * as Metrics from "./Metrics.ts"
import * as Observe from "./Observe.ts"
import { answerInvalid } from "./InvalidHttp.ts"
import { Problem, contentType as problemType, toJson } from "./Problems.ts"
import { RateLimits } from "./access/RateLimits.ts"
import * as RequestContext from "./RequestContext.ts"
import { RequestProblems } from "./RequestProblems.ts"
import * as RequestTrace from "./RequestTrace.ts"
import * as SecurityHeaders from "./access/SecurityHeaders.ts"
import * as WriteProbe from "./WriteProbe.ts"

/** Address and grace. */
export const HttpSettings = Context.Reference<{
  /** 127.0.0.1 keeps it on this machine. */
  readonly host: string
  /** 0 picks a free one. */
  readonly port: number
  /** How long requests under way may take to end once the server closes. */
  readonly graceMillis: number
}>("paid-once/http/HttpSettings", { defaultValue: () => ({ host: "127.0.0.1", port: 3000, graceMillis: 10_000 }) })

/** The server's address, once it listens. */
export class BoundAddress extends Context.Service<
  BoundAddress,
  {
    readonly host: string
    readonly port: number
    readonly url: string
    /** The console's address, with the token of {@link Credentials.linkToken}; undefined in a process without a console. */
    readonly consoleUrl?: string
  }
>()("paid-once/http/BoundAddress") {}

/** The server can't listen on its address. The message names the variable to change. */
export class ListenFailed extends Schema.TaggedError<ListenFailed>()("ListenFailed", {
  variable: Schema.Literals(["HOST", "PORT", "GATEWAY_PORT"]),
  host: Schema.String,
  port: Schema.Int,
  reason: Schema.String
}) {
  override get message() {
    return `${this.variable}: can't listen on ${this.host}:${this.port}: ${this.reason}`
  }
}

/** Headers usually arrive in one packet. Ten seconds suffice on a slow line, and end a client that sends them byte by byte. */
const headersTimeoutMillis = 10_000
/** Time for a megabyte on a slow line. */
const requestTimeoutMillis = 30_000
/** Above the 60 seconds of the usual load balancers: the side that opens connections should be the one that closes them. */
const keepAliveTimeoutMillis = 65_000
/** How often Node checks these limits. */
const connectionsCheckMillis = 5_000

/** A Node server with these limits. It answers malformed HTTP with a problem, too. */
export const makeNodeServer = (): Http.Server => {
  const server = Http.createServer({
    headersTimeout: headersTimeoutMillis,
    requestTimeout: requestTimeoutMillis,
    keepAliveTimeout: keepAliveTimeoutMillis,
    connectionsCheckingInterval: connectionsCheckMillis,
    IncomingMessage: CountedPieces,
    ServerResponse: SecurityHeaders.SecuredResponse,
    // SingleHeaders.ts refuses it, with a problem.
    requireHostHeader: false,
    // There is nothing to upgrade to, and Node sets an upgraded connection no limits.
    shouldUpgradeCallback: () => false
  })
  server.on("checkExpectation", ({ headers }, response) => {
    const problem = new Problem({ status: 417, detail: `nobody can meet the expectation ${headers.expect}` })
    response.writeHead(problem.status, { connection: "close", "content-type": problemType }).end(toJson(problem))
  })
  server.on("clientError", answerInvalid)
  return server
}

/**
 * Binds the port, and returns Effect's server over it with its address. `around` bounds the requests in work. `drain` stops accepting, waits for the requests under way, at most
 * `graceMillis`, and closes the rest. The caller adds it as a finalizer once the server serves: it runs before the handlers are released.
 */
export const listen = Effect.fnUntraced(function* (
  settings: { readonly host: string; readonly port: number },
  portVariable: "PORT" | "GATEWAY_PORT"
) {
  const { host, port } = settings
  const node = makeNodeServer()
  const { around, connections } = yield* Admission.make(node, portVariable === "PORT" ? "service" : "gateway")
  const { drain } = Draining.make(node, connections)
  const server = yield* NodeHttpServer.make(() => node, {
    host,
    port,
    // Draining.ts closes connections instead.
    disablePreemptiveShutdown: true
  }).pipe(Effect.mapError(({ cause }) => listenFailed(cause as NodeJS.ErrnoException, host, port, portVariable)))
  // For a server that was never drained: the platform's finalizer runs after this one, and waits for the last connection.
  yield* Effect.addFinalizer(() => Effect.sync(() => node.closeAllConnections()))
  // Accepting can fail later, without a free file handle. Without a listener the error would end the process.
  const context = yield* Effect.context()
  node.on("error", (error) => Effect.runForkWith(context)(Effect.logError("the HTTP server failed to accept", error)))
  const bound = node.address() as AddressInfo
  const name = bound.address === "0.0.0.0" || bound.address === "::" ? "localhost" : bound.address
  return {
    server,
    around,
    drain,
    address: {
      host: bound.address,
      port: bound.port,
      url: `http://${name.includes(":") ? `[${name}]` : name}:${bound.port}`
    }
  }
})

const listenFailed = (
  error: NodeJS.ErrnoException,
  host: string,
  port: number,
  portVariable: "PORT" | "GATEWAY_PORT"
) => {
  switch (error.code) {
    case "EADDRINUSE":
      return new ListenFailed({
        variable: portVariable,
        host,
        port,
        reason: "the port is in use; stop what listens there, or choose another (0 picks a free one)"
      })
    case "EACCES":
      return new ListenFailed({
        variable: portVariable,
        host,
        port,
        reason: "the port needs privileges; choose one above 1023"
      })
    default:
      return new ListenFailed({ variable: "HOST", host, port, reason: error.message })
  }
}

/** Above the longest URL that Node accepts: the schema refuses a long parameter, not the router. */
const maxParamLength = Http.maxHeaderSize

/** Paths are compared as they are written: idempotency keys belong to a path, so a path has one spelling. */
const routerConfig = { maxParamLength, ignoreDuplicateSlashes: false, ignoreTrailingSlash: false, caseSensitive: true }

const around = Layer.mergeAll(Health.layer, RequestProblems.layer, NodeHttpServer.layerHttpServices)

/** Each route asks who may use it. */
const access = Layer.provide(Access.middleware.layer, RateLimits.layer)

const routes = Layer.mergeAll(
  HttpApiBuilder.layer(Api, { openapiPath: Observe.openApiPath }),
  Docs.layer(Api, Observe.docsPath),
  Console.layer,
  Metrics.layer,
  Observe.layer(Api, [
    Observe.openApiPath,
    Observe.docsPath,
    Observe.metricsPath,
    Console.consolePath,
    `${Console.consolePath}/*`
  ])
).pipe(Layer.provide(Handlers.layer), Layer.provide(around), Layer.provide(access), Layer.provide(WriteProbe.layer))

const healthRoutes = Layer.mergeAll(
  HttpApiBuilder.layer(HealthApi),
  Metrics.layer,
  Observe.layer(HealthApi, [Observe.metricsPath])
).pipe(Layer.provide(Handlers.healthLayer), Layer.provide(around), Layer.provide(access))

/** Serves these routes at {@link HttpSettings}. A stop waits for the requests under way until the part's share of the grace is used up. */
const serve = Effect.fnUntraced(function* <R>(
  routes: Layer.Layer<never, never, R>,
  part: Parameters<Effect.Success<typeof Grace.make>>[0]
) {
  const settings = yield* HttpSettings
  const readiness = yield* Readiness
  const grace = yield* Grace.make
  const router = yield* Effect.provideService(HttpRouter.make, HttpRouter.RouterConfig, routerConfig)
  yield* Layer.build(Layer.provide(routes, Layer.succeed(HttpRouter.HttpRouter, router)))
  const { address, around, drain, server } = yield* listen(settings, "PORT")
  const serving = RequestTrace.serve(server, yield* Access.identifying(around(router.asHttpEffect())))
  // Else the span of the console's link would have its token.
  const redacting = Effect.updateService(serving, UrlParams.CurrentRedactedNames, (names) => [...names, "token"])
  yield* RequestContext.starting(redacting)
  // Added last, so that it runs first: from then on each answer is its connection's last one.
  yield* Effect.addFinalizer(() =>
    Effect.andThen(
      readiness.drain,
      Effect.suspend(() => drain(grace(part, settings.graceMillis)))
    )
  )
  return BoundAddress.of(address)
})

/** Serves everything. Built above the other roles, so that they have begun when it starts, and requests end first. */
export const layer: Layer.Layer<
  BoundAddress,
  ListenFailed,
  | Admin.Services
  | CancelOrder
  | Fibers
  | GatewayWebhook
  | HealthParts
  | Orders
  | Payments
  | PayOrder
  | PlaceOrder
  | Readiness
  | RefundOrder
  | Reports
  | SqlClient.SqlClient
  | Tasks
  | Timeline
> = Layer.effect(
  BoundAddress,
  Effect.gen(function* () {
    yield* (yield* Readiness).begin
    const address = yield* serve(routes, "requests")
    const { linkToken } = yield* Credentials
    const query = linkToken === undefined ? "" : `?token=${linkToken}`
    return BoundAddress.of({ ...address, consoleUrl: `${address.url}${Console.consolePath}${query}` })
  })
).pipe(Layer.provide(Credentials.layer))

/**
 * Serves health and metrics, and nothing else. Built below the other roles, so that it answers from before they begin until after they have
 * ended. {@link Readiness.layerWorking} marks their begin and end.
 */
export const layerHealth: Layer.Layer<
  BoundAddress,
  ListenFailed,
  Fibers | HealthParts | Readiness | SqlClient.SqlClient
> = Layer.effect(BoundAddress, serve(healthRoutes, "scrapes")).pipe(Layer.provide(Credentials.layer))
