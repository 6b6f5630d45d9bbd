/** Export of traces, and their ids in log lines. */
import { Duration, Effect, Layer, Logger, References, Result, type Tracer } from "effect"
import { HttpClient, HttpClientError, type HttpClientRequest, HttpClientResponse } from "effect/http"
import { OtlpSerialization, OtlpTracer } from "effect/observability"
import * as BoundedBody from "./BoundedBody.ts"
import * as Tracing from "./Tracing.ts"

export interface TelemetrySettings {
  /** The collector's base URL; traces are posted to `/v1/traces` below it, as JSON. */
  readonly endpoint: string
  /** Headers that the collector wants, for example a key. */
  readonly headers: Readonly<Record<string, string>>
  readonly serviceName: string
  /** This process, as operators see it elsewhere (`pid@host`): a span tells who did a step. */
  readonly instance: string
}

/** How often spans are sent, unless there are many. */
const exportMillis = 2_000

/** A collector that answers later gets nothing for a minute, and the spans of that time are dropped: they must not pile up. */
const requestTimeoutMillis = 5_000

/** A collector answers with a few bytes. The exporter reads an answer to its end, and would read one that has none. */
const maxAnswerBytes = 65_536

/** How long the end of the process waits for the last spans to be taken. */
const shutdownMillis = 3_000

const failed = (request: HttpClientRequest.HttpClientRequest, description: string) =>
  new HttpClientError.HttpClientError({ reason: new HttpClientError.TransportError({ request, description }) })

/** Sends every sampled span to an OTLP collector. While the collector is down spans are dropped, and nothing else happens. */
export const layerOtlp = (settings: TelemetrySettings): Layer.Layer<never, never, HttpClient.HttpClient> =>
  OtlpTracer.layer({
    url: `${settings.endpoint.replace(/\/+$/, "")}/v1/traces`,
    headers: settings.headers,
    resource: { serviceName: settings.serviceName, attributes: { "service.instance.id": settings.instance } },
    exportInterval: Duration.millis(exportMillis),
    shutdownTimeout: Duration.millis(shutdownMillis)
  }).pipe(
    Layer.provide(OtlpSerialization.layerJson),
    Layer.provide(
      Layer.effect(
        HttpClient.HttpClient,
        Effect.map(HttpClient.HttpClient, (client) =>
          HttpClient.transform(client, (execute, request) =>
            Effect.gen(function* () {
              const response = yield* execute
              const text = yield* Effect.result(BoundedBody.textOf(response, maxAnswerBytes))
              if (Result.isFailure(text)) return yield* failed(request, text.failure.message)
              // The exporter reads nothing but the status and when to try again.
              return yield* Effect.try({
                try: () =>
                  HttpClientResponse.fromWeb(
                    request,
                    new Response(null, { status: response.status, headers: { ...response.headers } })
                  ),
                catch: () => failed(request, `the answer ${response.status} makes no sense`)
              })
            }).pipe(
              Effect.timeoutOrElse({
                duration: requestTimeoutMillis,
                orElse: () => Effect.fail(failed(request, "no answer in time"))
              })
            )
          )
        )
      )
    )
  )

/** `format`, with the id of the trace that a line belongs to, unless the line names one itself. */
export const withTraceId = (format: Logger.Logger<unknown, string>): Logger.Logger<unknown, string> =>
  Logger.make((options) => {
    const { fiber } = options
    const span: Tracer.AnySpan | undefined = Tracing.spanOf(fiber.context)
    const annotations = fiber.getRef(References.CurrentLogAnnotations)
    if (span === undefined || "trace_id" in annotations) return format.log(options)
    const named = { ...annotations, trace_id: span.traceId }
    // A format reads the annotations from the fiber: this object is that fiber with one more annotation.
    const getRef: typeof fiber.getRef = (ref) =>
      (ref as unknown) === References.CurrentLogAnnotations ? (named as never) : fiber.getRef(ref)
    return format.log({ ...options, fiber: Object.create(fiber, { getRef: { value: getRef } }) as typeof fiber })
  })
