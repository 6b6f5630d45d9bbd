/**
 * The middleware around every request: the answer where no handler gave one, the metrics, and the log line.
 */
import { Cause, Context, Effect, Exit, LogLevel, References } from "effect"
import { HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import * as DatabaseOutage from "../platform/DatabaseOutage.ts"
import * as Tracing from "../platform/Tracing.ts"
import * as Provenance from "./access/Provenance.ts"
import { Readiness } from "./Health.ts"
import { live, livePath } from "./HealthApi.ts"
import { durations, requests } from "./Metrics.ts"
import { badRequest, Problem, toResponse } from "./Problems.ts"
import { WriteProbe } from "./WriteProbe.ts"

/** The routes outside of the API; all are GET. */
export const openApiPath = "/openapi.json"
export const docsPath = "/docs"
export const metricsPath = "/metrics"

interface KnownRoute {
  readonly method: string
  readonly segments: ReadonlyArray<string>
}

/** The part of an `HttpApi` that is read here: an endpoint's own type has its method and path as literals. */
interface RoutedApi {
  readonly groups: Readonly<
    Record<string, { readonly endpoints: Readonly<Record<string, { readonly method: string; readonly path: string }>> }>
  >
}

const routesOf = (api: RoutedApi, otherPaths: ReadonlyArray<string>): ReadonlyArray<KnownRoute> =>
  [
    ...Object.values(api.groups).flatMap((group) =>
      Object.values(group.endpoints).map(({ method, path }) => ({ method, path }))
    ),
    ...otherPaths.map((path) => ({ method: "GET", path }))
  ].map(({ method, path }) => ({ method, segments: path.split("/") }))

/** The problem of a request without a route: a path that can't be decoded, a known path with another method, or an unknown path. */
const unrouted = (request: HttpServerRequest.HttpServerRequest, knownRoutes: ReadonlyArray<KnownRoute>): Problem => {
  const path = request.url.split(/[?#]/, 1)[0]!
  const segments = path.split("/")
  const matching = knownRoutes.filter(
    (route) =>
      (route.segments.length === segments.length ||
        (route.segments.at(-1) === "*" && route.segments.length < segments.length)) &&
      route.segments.every(
        (segment, index) => segment === "*" || segment.startsWith(":") || segment === segments[index]
      )
  )
  const broken = segments.findIndex((segment) => !isDecodable(segment))
  if (broken >= 0) {
    const name = matching[0]?.segments[broken]?.slice(1)
    return badRequest([
      {
        in: "path",
        pointer: name === undefined ? "" : `/${name}`,
        message: "must be percent-encoded UTF-8"
      }
    ])
  }
  if (matching.length === 0) return nowhere()
  const allowed = new Set(matching.flatMap(({ method }) => (method === "GET" ? ["GET", "HEAD"] : [method])))
  const allow = [...allowed].toSorted().join(", ")
  return new Problem({
    status: 405,
    detail: `${request.method} is not allowed here, only ${allow}`,
    headers: { allow }
  })
}

/** RFC 3986, section 6.2.2.2: an escape of a character that needs none. And the router reads a path up to a semicolon only. */
const otherSpelling = /;|%(?:2[de]|3\d|4[1-9a-f]|5[\daf]|6[1-9a-f]|7[\dae])/i

/** The 404 of a path that nothing is at. */
export const nowhere = () => new Problem({ status: 404, detail: "there is nothing at this path" })

/** A path has one spelling, so that a proxy's rules for it hold, and idempotency keys belong to it. */
const misspelling = ({ url }: HttpServerRequest.HttpServerRequest): Problem | undefined =>
  otherSpelling.test(url.split(/[?#]/, 1)[0]!) ? nowhere() : undefined

const isDecodable = (segment: string): boolean => {
  try {
    decodeURIComponent(segment)
    return true
  } catch {
    return false
  }
}

/** The pool reconnects, and the probe finds free space, about a second after the database is back. */
const databaseRetrySeconds = 2

/** The problem of a request that its handler did not answer. It gives no internals: those are in the log, under the trace id. */
const toProblem = (
  cause: Cause.Cause<unknown>,
  request: HttpServerRequest.HttpServerRequest,
  knownRoutes: ReadonlyArray<KnownRoute>,
  traceId: string | undefined
): Problem => {
  const squashed = Cause.squash(cause)
  if (HttpServerError.isHttpServerError(squashed) && squashed.reason._tag === "RouteNotFound") {
    return unrouted(request, knownRoutes)
  }
  const members = traceId === undefined ? {} : { traceId }
  const outage = DatabaseOutage.inCause(cause)
  return outage !== undefined
    ? new Problem({
        status: 503,
        detail:
          outage.reason._tag === "ConnectionError"
            ? "the database can't be reached at the moment"
            : "the database can't do this at the moment",
        headers: { "retry-after": String(databaseRetrySeconds) },
        members
      })
    : new Problem({ status: 500, detail: "something went wrong on our side; it has been logged", members })
}

/** In its usual spelling. In any other, the router finds it. */
const isLiveness = ({ method, url }: HttpServerRequest.HttpServerRequest): boolean =>
  method === "GET" && url === livePath

/** Wraps every route of the router, and requests without a route. `otherPaths` are the routes beside the API's. */
export const layer = (api: RoutedApi, otherPaths: ReadonlyArray<string>) =>
  HttpRouter.middleware(
    Effect.gen(function* () {
      const readiness = yield* Readiness
      const probe = yield* WriteProbe
      const provenance = yield* Provenance.make
      const refusalOf = (request: HttpServerRequest.HttpServerRequest) =>
        provenance(Provenance.messageOf(request)) ?? misspelling(request)
      const knownRoutes = routesOf(api, otherPaths)

      /** The answer of a request that has ended, and its metrics and log line. Plain code, except where there is something to tell. */
      const observed = <E>(
        exit: Exit.Exit<HttpServerResponse.HttpServerResponse, E>,
        request: HttpServerRequest.HttpServerRequest,
        startedMillis: number,
        context: Context.Context<never>
      ) => {
        const span = Tracing.spanOf(context)
        // A client that hung up gets no answer; the server ends such a request itself.
        const aborted = Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)
        let response = Exit.isSuccess(exit)
          ? exit.value
          : toResponse(toProblem(exit.cause, request, knownRoutes, span?.traceId))
        // The trace id, for a client's questions about this request.
        if (span !== undefined)
          response = HttpServerResponse.setHeader(response, "traceparent", Tracing.toTraceparent(span))
        if (readiness.phaseUnsafe() === "draining")
          response = HttpServerResponse.setHeader(response, "connection", "close")

        const seconds = (performance.now() - startedMillis) / 1000
        // Unknown paths share one label: each of them would otherwise be a time series.
        const route: string =
          Context.getOrUndefined(context as Context.Context<HttpRouter.RouteContext>, HttpRouter.RouteContext)?.route
            .path ?? (isLiveness(request) ? livePath : "unmatched")
        const status = aborted ? "aborted" : String(response.status)
        const { method } = request
        requests(method, route, status).updateUnsafe(1, context)
        durations(method, route).updateUnsafe(seconds, context)
        const answer = aborted ? Effect.failCause(exit.cause) : Effect.succeed(response)
        // Of an outage the probe tells, in a line for all of its requests.
        const isOutage = Exit.isFailure(exit) && DatabaseOutage.inCause(exit.cause) !== undefined
        const failed = Exit.isFailure(exit) && !aborted && !isOutage && response.status >= 500
        const isTold = failed || LogLevel.isLessThanOrEqualTo(Context.get(context, References.MinimumLogLevel), "Debug")
        if (!isOutage && !isTold) return answer
        return (failed ? Effect.logError("request failed", exit.cause) : Effect.logDebug("request")).pipe(
          Effect.annotateLogs({
            "http.method": method,
            "http.route": route,
            "http.status": status,
            "http.duration_millis": Math.round(seconds * 1000)
          }),
          Effect.andThen(isOutage ? probe.doubt : Effect.void),
          Effect.andThen(answer)
        )
      }

      return (handler) =>
        Effect.contextWith((context: Context.Context<HttpServerRequest.HttpServerRequest>) => {
          const request = Context.get(context, HttpServerRequest.HttpServerRequest)
          const startedMillis = performance.now()
          const refusal = refusalOf(request)
          const ended = <E>(exit: Exit.Exit<HttpServerResponse.HttpServerResponse, E>) =>
            // With the route, which the router has added.
            Effect.contextWith((context: Context.Context<never>) => observed(exit, request, startedMillis, context))
          // Liveness waits for nothing, and asks neither the router nor the API.
          const answer = isLiveness(request) ? live : handler
          return Effect.matchCauseEffect(refusal === undefined ? answer : Effect.succeed(toResponse(refusal)), {
            onSuccess: (response) => ended(Exit.succeed(response)),
            onFailure: (cause) => ended(Exit.failCause(cause))
          })
        })
    }),
    { global: true }
  )
