/**
 * The trace of each request: it continues the one that its headers name, or begins one. Log lines, events and the answer name it.
 *
 * Spans are made where an exporter collects them. Elsewhere a request has the ids alone.
 */
import { Context, Effect, Option, Tracer } from "effect"
import { HttpServerRequest, HttpTraceContext, type HttpServer } from "effect/http"
import { RandomUuid } from "../platform/RandomUuid.ts"
import * as Traced from "../platform/Traced.ts"
import * as Tracing from "../platform/Tracing.ts"

/** Serves `app`, whose requests have a trace. */
export const serve = Effect.fnUntraced(function* <E, R>(
  server: HttpServer.HttpServer["Service"],
  app: Parameters<typeof server.serve<E, R>>[0]
) {
  const drawUuid = yield* RandomUuid
  // Effect opens a span for every request only where there is a middleware, even an empty one.
  if ((yield* Tracing.exporter) !== undefined) return yield* server.serve(app, (handled) => handled)
  const named = Effect.updateContext(app, (context: Context.Context<R>) => {
    const { headers } = Context.getUnsafe(
      context as Context.Context<HttpServerRequest.HttpServerRequest>,
      HttpServerRequest.HttpServerRequest
    )
    const parent = Option.getOrUndefined(HttpTraceContext.fromHeaders(headers))
    return Context.add(context, Tracer.ParentSpan, Traced.uncollected(parent, drawUuid)) as Context.Context<R>
  })
  return yield* Effect.withTracerEnabled(server.serve(named), false)
})
