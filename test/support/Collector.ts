/** A collector of traces on a port of its own. It keeps the spans that it gets over OTLP/HTTP as JSON, decoded by its own schema. */
import { Effect, Schema } from "effect"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"

const Attribute = Schema.Struct({
  key: Schema.String,
  value: Schema.Struct({
    stringValue: Schema.optionalKey(Schema.String),
    intValue: Schema.optionalKey(Schema.Union([Schema.Number, Schema.String])),
    boolValue: Schema.optionalKey(Schema.Boolean)
  })
})

const Request = Schema.fromJsonString(
  Schema.Struct({
    resourceSpans: Schema.Array(
      Schema.Struct({
        resource: Schema.Struct({ attributes: Schema.Array(Attribute) }),
        scopeSpans: Schema.Array(
          Schema.Struct({
            spans: Schema.Array(
              Schema.Struct({
                traceId: Schema.String.check(Schema.isPattern(/^[0-9a-f]{32}$/)),
                spanId: Schema.String.check(Schema.isPattern(/^[0-9a-f]{16}$/)),
                parentSpanId: Schema.optionalKey(Schema.String),
                name: Schema.String,
                kind: Schema.Int,
                startTimeUnixNano: Schema.String,
                endTimeUnixNano: Schema.String,
                attributes: Schema.Array(Attribute)
              })
            )
          })
        )
      })
    )
  })
)
const decode = Schema.decodeUnknownSync(Request)

/** OTLP's numbers for the kinds of spans. */
export const kinds = { internal: 1, server: 2, client: 3, producer: 4, consumer: 5 } as const

export interface CollectedSpan {
  readonly service: string
  /** The process: `pid@host`. */
  readonly instance: string
  readonly traceId: string
  readonly spanId: string
  /** Undefined for the first span of a trace. */
  readonly parentSpanId: string | undefined
  readonly name: string
  readonly kind: number
  /** By the clock of the process that made it. */
  readonly startMillis: number
  readonly attributes: Readonly<Record<string, unknown>>
}

export interface Collector {
  readonly url: string
  readonly spans: () => ReadonlyArray<CollectedSpan>
  /** Requests that it could not read. */
  readonly problems: () => ReadonlyArray<string>
  /** The headers of the last request. */
  readonly headers: () => Http.IncomingHttpHeaders
}

const read = (text: string): ReadonlyArray<CollectedSpan> =>
  decode(text).resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map(({ attributes, kind, name, parentSpanId, spanId, startTimeUnixNano, traceId }) => ({
        service: resource.attributes.find(({ key }) => key === "service.name")?.value.stringValue ?? "",
        instance: resource.attributes.find(({ key }) => key === "service.instance.id")?.value.stringValue ?? "",
        traceId,
        spanId,
        parentSpanId: parentSpanId === "" ? undefined : parentSpanId,
        name,
        kind,
        startMillis: Number(BigInt(startTimeUnixNano) / 1_000_000n),
        attributes: Object.fromEntries(
          attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue ?? value.boolValue])
        )
      }))
    )
  )

/** Answers `status` to every request, until the scope closes. */
export const make = Effect.fnUntraced(function* (status = 200) {
  const spans: Array<CollectedSpan> = []
  const problems: Array<string> = []
  let headers: Http.IncomingHttpHeaders = {}
  const server = Http.createServer((request, response) => {
    let text = ""
    request.setEncoding("utf8")
    request.on("data", (chunk: string) => (text += chunk))
    request.on("end", () => {
      headers = request.headers
      try {
        if (request.url !== "/v1/traces") throw new Error(`nothing is known at ${request.url}`)
        spans.push(...read(text))
      } catch (error) {
        problems.push(String(error))
      }
      response.writeHead(status, { "content-type": "application/json" }).end("{}")
    })
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.listen(0, "127.0.0.1", () => resume(Effect.void))
    }),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      })
  )
  const collector: Collector = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: () => spans,
    problems: () => problems,
    headers: () => headers
  }
  return collector
})
