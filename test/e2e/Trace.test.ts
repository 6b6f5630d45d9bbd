/** The trace of a request through the outbox and the broker to each consumer and its tasks, as a collector gets it. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { inject } from "vitest"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import * as Collector from "../support/Collector.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as Targets from "./Targets.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `e2e/Trace.test.ts ran without a real Kafka: ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

const start = Effect.fnUntraced(function* (env: Readonly<Record<string, string>>) {
  const { url } = yield* TestDatabase
  return yield* ServiceProcess.start({
    env: {
      DATABASE_URL: Redacted.value(url),
      DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
      PORT: "0",
      LOG_JSON: "on",
      LOG_LEVEL: "Debug",
      ...env
    }
  })
})

const post = (url: string, body: unknown, headers: Readonly<Record<string, string>>) =>
  Effect.promise(async () => {
    const response = await fetch(url, {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "content-type": "application/json", ...headers }
    })
    return {
      status: response.status,
      traceparent: response.headers.get("traceparent") ?? "",
      id: ((await response.json()) as { readonly id: string }).id
    }
  })

const newOrder = {
  customerId: "ada",
  currency: "EUR",
  lines: [{ sku: "book", quantity: 1, unitAmountMinor: 100 }]
}

const consumers = ["analytics", "billing", "inventory", "receipts"]

interface LoggedEvent {
  readonly eventId: string
  readonly eventType: string
  readonly traceId: string
  readonly spanId: string
}

const publishedEvents = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<LoggedEvent>`
    SELECT event_id::text AS "eventId", event_type AS "eventType", trace_id AS "traceId", span_id AS "spanId"
    FROM event_log ORDER BY occurred_at, event_id`
})

const callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
const callerSpan = "00f067aa0ba902b7"

const tracing = (name: string, target: () => Targets.Target) =>
  it.live(
    `${name}: a caller's trace goes on through the outbox and the broker to every consumer's effect and its tasks`,
    () =>
      Effect.gen(function* () {
        const collector = yield* Collector.make()
        const service = yield* start({
          ...target().env,
          OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
          OTEL_EXPORTER_OTLP_HEADERS: "x-key=two%20words",
          OTEL_SERVICE_NAME: "shop"
        })
        const readyMillis = Date.now()
        const placed = yield* post(`${service.url}/orders`, newOrder, {
          traceparent: `00-${callerTrace}-${callerSpan}-01`
        })
        assert.strictEqual(placed.status, 201)
        assert.match(placed.traceparent, new RegExp(`^00-${callerTrace}-[0-9a-f]{16}-01$`))
        // A request without a trace header begins a trace.
        const paid = yield* post(
          `${service.url}/orders/${placed.id}/pay`,
          { paymentMethod: "pm_ok" },
          { "idempotency-key": "k" }
        )
        assert.strictEqual(paid.status, 200)
        assert.match(paid.traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/)
        const ownTrace = paid.traceparent.split("-")[1]!
        assert.notStrictEqual(ownTrace, callerTrace)

        const consumed = () =>
          collector
            .spans()
            .filter(({ attributes, kind }) => kind === Collector.kinds.consumer && "consumer" in attributes)
        const mailed = () => collector.spans().filter((span) => span.name === "task email")
        yield* eventually(
          "each consumer to have a span for each of two events, and the receipt's mail to have one",
          Effect.sync(() => consumed().length >= 2 * consumers.length && mailed().length >= 1)
        )
        // The remaining spans are sent at the end of the process.
        yield* service.signal("SIGTERM")
        assert.strictEqual(yield* service.exit, 0, service.output())
        assert.deepStrictEqual(collector.problems(), [])
        assert.strictEqual(collector.headers()["x-key"], "two words")
        const spans = collector.spans()
        assert.deepStrictEqual([...new Set(spans.map((span) => span.service))], ["shop"])
        // The process as the lanes' owners are called.
        for (const { instance } of spans) assert.match(instance, /^\d+@./)
        const bySpanId = new Map(spans.map((span) => [span.spanId, span]))

        const events = yield* publishedEvents
        assert.deepStrictEqual(
          events.map(({ eventType, traceId }) => [eventType, traceId]),
          [
            ["OrderPlaced", callerTrace],
            ["OrderPaid", ownTrace]
          ]
        )
        const server = spans.find((span) => span.parentSpanId === callerSpan)
        assert.deepInclude(server, { traceId: callerTrace, kind: Collector.kinds.server })

        for (const { eventId, eventType, spanId, traceId } of events) {
          assert.strictEqual(bySpanId.get(spanId)?.traceId, traceId, "the span that wrote the event")
          const about = { event_id: eventId, event_type: eventType, aggregate_id: placed.id }
          const published = spans.filter(
            (span) => span.kind === Collector.kinds.producer && span.attributes["event_id"] === eventId
          )
          assert.strictEqual(published.length, 1)
          assert.deepInclude(published[0], { traceId, parentSpanId: spanId, name: "publish orders" })
          assert.deepInclude(published[0]!.attributes, about)
          for (const consumer of consumers) {
            const [span, ...others] = consumed().filter(
              ({ attributes }) => attributes["event_id"] === eventId && attributes["consumer"] === consumer
            )
            assert.deepStrictEqual(others, [])
            assert.deepInclude(span, { traceId, parentSpanId: spanId })
            assert.deepInclude(span!.attributes, about)
          }
        }
        // The mail follows from the receipt, which follows from the payment.
        const [mail] = mailed()
        assert.deepInclude(mail, { traceId: ownTrace, kind: Collector.kinds.consumer })
        const causes: Array<string> = []
        for (
          let span = bySpanId.get(mail!.parentSpanId ?? "");
          span !== undefined;
          span = bySpanId.get(span.parentSpanId ?? "")
        ) {
          causes.push(span.name)
        }
        assert.include(causes, "receipts OrderPaid")
        assert.match(causes.at(-1)!, /POST/)

        // Every span has its parent, or is the caller's child. A trace begins with a request, and not with a poll.
        for (const span of spans) {
          // The start runs statements of its own.
          if (span.startMillis < readyMillis) continue
          if (span.parentSpanId === undefined)
            assert.strictEqual(span.kind, Collector.kinds.server, JSON.stringify(span))
          else assert.isTrue(bySpanId.has(span.parentSpanId) || span.parentSpanId === callerSpan, JSON.stringify(span))
        }
        // The log lines contain the trace id.
        const lines = service
          .output()
          .split("\n")
          .flatMap((line) =>
            line.startsWith("{") ? [JSON.parse(line) as { message?: unknown; annotations?: object }] : []
          )
        assert.deepInclude(
          lines.find(({ message }) => message === "request")?.annotations,
          { trace_id: callerTrace },
          service.output()
        )
      }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

tracing("embedded broker", () => Targets.embedded)

describe.skipIf(brokers === null)("with a real Kafka", () => {
  tracing("Kafka", () => Targets.kafka(brokers ?? ""))
})

it.live("a collector that answers with errors, or not at all, costs spans and nothing else", () =>
  Effect.gen(function* () {
    const collector = yield* Collector.make(500)
    for (const endpoint of [collector.url, "http://127.0.0.1:9"]) {
      const service = yield* start({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, LOG_LEVEL: "Warn" })
      for (let n = 0; n < 5; n++) assert.strictEqual((yield* post(`${service.url}/orders`, newOrder, {})).status, 201)
      yield* service.signal("SIGTERM")
      assert.strictEqual(yield* service.exit, 0, service.output())
    }
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)
