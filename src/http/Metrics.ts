/** `GET /metrics`: every metric of the service, and those of the process (CPU, memory, event loop), in Prometheus' text format. */
import { Effect, Metric } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { PrometheusMetrics } from "effect/observability"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { seriesOf } from "../platform/MetricSeries.ts"

/** Requests, by method, route and status. */
export const requests = seriesOf(
  (attributes) =>
    Metric.counter("http_requests_total", {
      description: "HTTP requests by method, route and status",
      incremental: true,
      attributes
    }),
  ["method", "route", "status"]
)

/** The times of requests in seconds, by method and route. */
export const durations = seriesOf(
  (attributes) =>
    Metric.histogram("http_request_duration_seconds", {
      description: "Time from a request's headers to its answer, in seconds",
      // From a cached answer to the gateway's timeout: twelve buckets, each about twice the last where answers usually fall.
      boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      attributes
    }),
  ["method", "route"]
)

const residentMemory = Metric.gauge("process_resident_memory_bytes", { description: "Resident memory in bytes" })
const heapUsed = Metric.gauge("nodejs_heap_size_used_bytes", { description: "Heap of JavaScript in use, in bytes" })
const cpu = Metric.counter("process_cpu_seconds_total", {
  description: "CPU time of the process, user and system, in seconds",
  incremental: true
})
const startTime = Metric.gauge("process_start_time_seconds", {
  description: "When the process started, in Unix seconds"
})
const uptime = Metric.gauge("process_uptime_seconds", { description: "Seconds since the process started" })
const eventLoopLag = Metric.gauge("nodejs_eventloop_lag_seconds", {
  description: "99th percentile of the event loop's delay since the last scrape, in seconds"
})

/** The CPU seconds that the counter has been given: it takes increments only. */
let countedCpuSeconds = 0

/** How often the event loop's delay is sampled: fine enough for a pause that a request notices. */
const lagResolutionMillis = 20

/** The text format's version that Prometheus asks for by default. */
const contentType = "text/plain; version=0.0.4; charset=utf-8"

/**
 * Adds `GET /metrics`. The process's metrics are read by the scrape itself, so that nothing runs between two of them. Metrics that need a query
 * are sampled elsewhere: a scrape runs no query.
 */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const delay = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const histogram = monitorEventLoopDelay({ resolution: lagResolutionMillis })
        histogram.enable()
        return histogram
      }),
      (histogram) => Effect.sync(() => histogram.disable())
    )
    // Computed once: a start time that changes between scrapes would look like a restart.
    yield* Metric.update(startTime, performance.timeOrigin / 1000)
    yield* router.add(
      "GET",
      "/metrics",
      Effect.gen(function* () {
        const { heapUsed: heapUsedBytes, rss } = process.memoryUsage()
        yield* Metric.update(residentMemory, rss)
        yield* Metric.update(heapUsed, heapUsedBytes)
        const { system, user } = process.cpuUsage()
        const cpuSeconds = (system + user) / 1e6
        yield* Metric.update(cpu, cpuSeconds - countedCpuSeconds)
        countedCpuSeconds = cpuSeconds
        yield* Metric.update(uptime, process.uptime())
        // A sample includes the resolution; before the first one there is no value.
        const p99Millis = Math.max(0, delay.percentile(99) / 1e6 - lagResolutionMillis)
        yield* Metric.update(eventLoopLag, Number.isFinite(p99Millis) ? p99Millis / 1000 : 0)
        delay.reset()
        return HttpServerResponse.text(yield* PrometheusMetrics.format(), { contentType })
      })
    )
  })
)
