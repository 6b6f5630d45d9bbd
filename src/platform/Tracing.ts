/**
 * Which trace a piece of work belongs to.
 *
 * What comes in over HTTP or from a topic goes on in the trace that it names. Ids are kept whether or not anybody collects spans, for they
 * join log lines and events; spans of single events are made only where somebody does ({@link exporter}).
 */
import { Context, Effect, Tracer } from "effect"
import { Headers, HttpTraceContext } from "effect/http"

/** The tracer that somebody installed. Without one Effect keeps spans in memory for nobody. */
export const exporter: Effect.Effect<Tracer.Tracer | undefined> = Effect.map(Effect.context<never>(), (context) =>
  context.mapUnsafe.has(Tracer.Tracer.key) ? Context.get(context, Tracer.Tracer) : undefined
)

/** The span that a context stands in: that of a background loop, which is kept from tracers, does not count. */
export const spanOf = (context: Context.Context<never>): Tracer.AnySpan | undefined => {
  let span = context.mapUnsafe.get(Tracer.ParentSpan.key) as Tracer.AnySpan | undefined
  while (span !== undefined && Context.get(span.annotations, Tracer.DisablePropagation)) {
    span = span._tag === "Span" && span.parent._tag === "Some" ? span.parent.value : undefined
  }
  return span
}

/** The span that is to be named as the cause of what is done now; undefined for work that nobody asked for. */
export const current: Effect.Effect<Tracer.AnySpan | undefined> = Effect.map(Effect.context<never>(), spanOf)

/** The span that a `traceparent` header names (W3C Trace Context, version 00). */
export const fromTraceparent = (traceparent: string | undefined): Tracer.ExternalSpan | undefined => {
  if (traceparent === undefined) return undefined
  const found = HttpTraceContext.w3c(Headers.fromRecordUnsafe({ traceparent }))
  return found._tag === "Some" ? found.value : undefined
}

/** The header that names a span. */
export const toTraceparent = ({ sampled, spanId, traceId }: Tracer.AnySpan): string =>
  `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`

/**
 * `effect` as a part of the trace that `parent` belongs to: in a span of its own where spans are collected, and otherwise at no more cost
 * than that what it writes down names the parent. For work that a background loop does for somebody.
 */
export const within =
  (
    name: string,
    options: {
      readonly kind: Tracer.SpanKind
      readonly parent: Tracer.AnySpan | undefined
      readonly attributes: () => Readonly<Record<string, unknown>>
    }
  ) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(exporter, (tracer) => {
      const { kind, parent } = options
      if (tracer === undefined) {
        return parent === undefined ? effect : Effect.provideService(effect, Tracer.ParentSpan, parent)
      }
      return effect.pipe(
        // A stack for each event would cost more than the event.
        Effect.withSpan(
          name,
          { kind, attributes: options.attributes(), ...(parent === undefined ? { root: true } : { parent }) },
          { captureStackTrace: false }
        ),
        Effect.withTracerEnabled(true)
      ) as Effect.Effect<A, E, R>
    })
