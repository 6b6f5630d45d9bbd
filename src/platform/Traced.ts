/** Work that belongs to a trace whether or not spans are collected: requests, use cases and calls of other services. */
import { type Context, Effect, Tracer } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import * as Tracing from "./Tracing.ts"

/** The ids of a piece of work whose span nobody collects: it continues the trace of `parent`, or begins one. */
export const uncollected = (parent: Tracer.AnySpan | undefined, drawUuid: () => string): Tracer.ExternalSpan => {
  const hex = drawUuid().replaceAll("-", "")
  return Tracer.externalSpan({
    traceId: parent?.traceId ?? hex,
    // A trace's first span may share digits with it: nobody compares the two.
    spanId: hex.slice(-spanIdDigits),
    sampled: parent?.sampled ?? true
  })
}

/** Of a span's id, in hexadecimal (W3C Trace Context). */
const spanIdDigits = 16

/**
 * `Effect.fn` for use cases and what they call, with its span only where a {@link Tracing.exporter} collects it. Effect's own makes a span and keeps
 * two frames of the stack for each call, whether or not anybody reads them.
 */
export const fn = (name: string): typeof Effect.fnUntraced =>
  ((...definition: Parameters<typeof Effect.fnUntraced>) => {
    const spanned = (Effect.fn(name) as typeof Effect.fnUntraced)(...definition)
    const plain = Effect.fnUntraced(...definition)
    return (...args: Parameters<typeof plain>) =>
      Effect.contextWith(
        (context: Context.Context<never>) =>
          (Tracing.exporterIn(context) === undefined ? plain : spanned)(...args) as Effect.Effect<unknown>
      )
  }) as typeof Effect.fnUntraced

/**
 * `client`, whose requests name the trace of the work that sends them. Effect's own client names a span of its own, and there is none without an
 * exporter.
 */
export const naming = (client: HttpClient.HttpClient, tracer: Tracer.Tracer | undefined): HttpClient.HttpClient =>
  tracer !== undefined
    ? client
    : client.pipe(
        HttpClient.mapRequestEffect((request) =>
          Effect.map(Tracing.current, (span) =>
            span === undefined
              ? request
              : HttpClientRequest.setHeader(request, "traceparent", Tracing.toTraceparent(span))
          )
        ),
        HttpClient.transformResponse(Effect.provideService(HttpClient.TracerDisabledWhen, () => true))
      )
