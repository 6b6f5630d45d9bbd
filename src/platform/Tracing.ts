/**
 * Which trace a piece of work belongs to.
 *
 * A request or a record continues the trace that it names. Trace ids are kept even where no spans are collected, because they join log lines and
 * events. Spans of single events are made only where an {@link exporter} collects them.
 */
import { Context, Effect, Tracer } from "effect"

/** The installed tracer; undefined where there is none, and Effect would make spans that nobody reads. */
export const exporterIn = (context: Context.Context<never>): Tracer.Tracer | undefined =>
  // Not the default one, which a reference has where no other was provided.
  Context.getOrUndefined(context as Context.Context<Tracer.Tracer>, Tracer.Tracer)

/** {@link exporterIn} of the context that it runs in. */
export const exporter: Effect.Effect<Tracer.Tracer | undefined> = Effect.map(Effect.context<never>(), exporterIn)

/** The span of a context. The span of a background loop does not count: it is hidden from tracers. */
export const spanOf = (context: Context.Context<never>): Tracer.AnySpan | undefined => {
  let span = Context.getOrUndefined(context as Context.Context<Tracer.ParentSpan>, Tracer.ParentSpan)
  while (span !== undefined && Context.get(span.annotations, Tracer.DisablePropagation)) {
    span = span._tag === "Span" && span.parent._tag === "Some" ? span.parent.value : undefined
  }
  return span
}

/** The span of the request or record that this work belongs to; undefined for work of a loop. */
export const current: Effect.Effect<Tracer.AnySpan | undefined> = Effect.map(Effect.context<never>(), spanOf)

/** Version 00 of the header. Ids of zeros name no span. */
const traceparentText = /^00-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})$/

/** The span that a `traceparent` header names (W3C Trace Context, version 00). */
export const fromTraceparent = (traceparent: string | undefined): Tracer.ExternalSpan | undefined => {
  const [, traceId, spanId, flags] = traceparentText.exec(traceparent ?? "") ?? []
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
  return Tracer.externalSpan({ traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 })
}

/** The header that names a span. */
export const toTraceparent = ({ sampled, spanId, traceId }: Tracer.AnySpan): string =>
  `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`

/** How a span is made. */
export interface SpanOptions {
  readonly kind: Tracer.SpanKind
  readonly parent: Tracer.AnySpan | undefined
  /** Only called where spans are collected. */
  readonly attributes: () => Readonly<Record<string, unknown>>
}

const effectOptions = ({ attributes, kind, parent }: SpanOptions): Tracer.SpanOptionsNoTrace => ({
  kind,
  attributes: attributes(),
  ...(parent === undefined ? { root: true } : { parent })
})

/**
 * Runs `effect` as a part of the parent's trace, for work that a background loop does for a request. If spans are collected, it gets a span of
 * its own. Otherwise only its log lines and events name the parent.
 */
export const within =
  (name: string, options: SpanOptions) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(exporter, (tracer) => {
      const { parent } = options
      if (tracer === undefined) {
        return parent === undefined ? effect : Effect.provideService(effect, Tracer.ParentSpan, parent)
      }
      // A stack trace for each event would cost more than the event.
      const spanned = effect.pipe(Effect.withSpan(name, effectOptions(options), { captureStackTrace: false }))
      return Effect.withTracerEnabled(spanned, true) as typeof effect
    })

/**
 * Runs `effect` for several traces at once. If spans are collected, each trace gets a span that lasts as long as `effect`. `spans` is only called
 * then.
 */
export const withinEach = <A, E, R>(
  spans: () => ReadonlyArray<{ readonly name: string; readonly options: SpanOptions }>,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.flatMap(exporter, (tracer) => {
    if (tracer === undefined) return effect
    const begin = Effect.forEach(spans(), ({ name, options }) => Effect.makeSpanScoped(name, effectOptions(options)), {
      discard: true
    })
    return Effect.scoped(Effect.andThen(Effect.withTracerEnabled(begin, true), effect))
  })
