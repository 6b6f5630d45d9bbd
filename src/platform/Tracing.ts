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
  // Not the default one, which a reference has where nobody put another.
  Context.getOrUndefined(context as Context.Context<Tracer.Tracer>, Tracer.Tracer)
)

/** The span that a context stands in: that of a background loop, which is kept from tracers, does not count. */
export const spanOf = (context: Context.Context<never>): Tracer.AnySpan | undefined => {
  let span = Context.getOrUndefined(context as Context.Context<Tracer.ParentSpan>, Tracer.ParentSpan)
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

/** A span that is to be made for somebody's work. */
export interface SpanOptions {
  readonly kind: Tracer.SpanKind
  readonly parent: Tracer.AnySpan | undefined
  /** Asked for only where spans are collected. */
  readonly attributes: () => Readonly<Record<string, unknown>>
}

const effectOptions = ({ attributes, kind, parent }: SpanOptions): Tracer.SpanOptionsNoTrace => ({
  kind,
  attributes: attributes(),
  ...(parent === undefined ? { root: true } : { parent })
})

/**
 * `effect` as a part of the trace that `parent` belongs to: in a span of its own where spans are collected, and otherwise at no more cost
 * than that what it writes down names the parent. For work that a background loop does for somebody.
 */
export const within =
  (name: string, options: SpanOptions) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(exporter, (tracer) => {
      const { parent } = options
      if (tracer === undefined) {
        return parent === undefined ? effect : Effect.provideService(effect, Tracer.ParentSpan, parent)
      }
      // A stack for each event would cost more than the event.
      const spanned = effect.pipe(Effect.withSpan(name, effectOptions(options), { captureStackTrace: false }))
      return Effect.withTracerEnabled(spanned, true) as typeof effect
    })

/** `effect`, which is done for several traces at once: where spans are collected, each of them gets one that lasts as long. */
export const withinEach = <A, E, R>(
  spans: ReadonlyArray<{ readonly name: string; readonly options: SpanOptions }>,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.flatMap(exporter, (tracer) => {
    if (tracer === undefined) return effect
    const begin = Effect.forEach(spans, ({ name, options }) => Effect.makeSpanScoped(name, effectOptions(options)), {
      discard: true
    })
    return Effect.scoped(Effect.andThen(Effect.withTracerEnabled(begin, true), effect))
  })
