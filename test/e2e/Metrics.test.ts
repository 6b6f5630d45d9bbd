/** The metrics and the health of the whole service: every metric of the contract, health's parts, and that a scrape runs no SQL. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { isDeepStrictEqual } from "node:util"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { consumerNames } from "../../src/main/Names.ts"
import * as Certificates from "../support/Certificates.ts"
import { eventually } from "../support/Counters.ts"
import { scrape, seriesOf, written } from "../support/Scrape.ts"
import { plantedEnv } from "../mutants/planted.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const text = (url: string) => Effect.promise(async () => (await fetch(url)).text())

const serve = (url: string, directory: string, roles?: string) =>
  ServiceProcess.start({
    ...(roles === undefined ? {} : { roles }),
    env: { DATABASE_URL: url, DATA_DIRECTORY: directory, PORT: "0", LOG_LEVEL: "Warn", ...plantedEnv() }
  })

const place = (url: string) =>
  Effect.promise(() =>
    fetch(`${url}/orders`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        customerId: "ada",
        currency: "EUR",
        lines: [{ sku: "book", quantity: 1, unitAmountMinor: 100 }]
      })
    })
  )

/** A series' value; undefined if there is none. */
const value = (metrics: string, series: string) => {
  const line = metrics.split("\n").find((line) => line.startsWith(`${series} `))
  return line === undefined ? undefined : Number(line.slice(series.length + 1))
}

/** Every metric that the contract names for the dispatcher, the consumers, the tasks and the process, with its type. */
const contract = {
  outbox_events_published_total: "counter",
  outbox_events_failed_total: "counter",
  outbox_events_pending: "gauge",
  outbox_oldest_pending_age_seconds: "gauge",
  outbox_batch_duration_seconds: "histogram",
  outbox_publish_latency_seconds: "histogram",
  outbox_events_parked: "gauge",
  outbox_dead_letters: "gauge",
  outbox_task_processed_total: "counter",
  outbox_task_duration_seconds: "histogram",
  outbox_tasks_pending: "gauge",
  outbox_tasks_dead: "gauge",
  outbox_task_leases_recovered_total: "counter",
  inbox_events_total: "counter",
  inbox_lag: "gauge",
  inbox_lag_seconds: "gauge",
  broker_available: "gauge",
  payments_contradicted_total: "counter",
  payments_manual: "gauge",
  listen_connected: "gauge",
  fiber_restarts_total: "counter",
  process_resident_memory_bytes: "gauge",
  process_cpu_seconds_total: "counter",
  process_start_time_seconds: "gauge",
  nodejs_heap_size_used_bytes: "gauge",
  nodejs_eventloop_lag_seconds: "gauge",
  db_pool_connections: "gauge",
  db_pool_connections_max: "gauge",
  db_pool_wait_seconds: "gauge"
} as const

/** The rows of docs/reference.md's table of metrics, which Reference.test.ts holds against the code: name, labels and kind. */
const listed = [
  ...readFileSync(Path.resolve(import.meta.dirname, "../../docs/reference.md"), "utf8").matchAll(
    /^\| `(\w+)(?:\{([\w,]*)\})?` \| (counter|gauge|histogram) \|/gm
  )
].map(([, name = "", labels, kind]) => ({ name, labels: labels?.split(",").toSorted() ?? [], kind }))

/** Their labels are what a client asks for. */
const byRequest = ["http_requests_total", "http_request_duration_seconds"]

/** Requests that touch each use case, and so each counter and histogram. */
const useEverything = (url: string) =>
  Effect.promise(async () => {
    const post = (path: string, body: unknown, key: string) =>
      fetch(`${url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": key },
        body: JSON.stringify(body)
      })
    const line = { sku: "book", quantity: 1, unitAmountMinor: 100 }
    for (const method of ["pm_ok", "pm_declined", "pm_flaky"]) {
      const placed = await post("/orders", { customerId: "ada", currency: "EUR", lines: [line] }, `place ${method}`)
      const { id } = (await placed.json()) as { readonly id: string }
      await post(`/orders/${id}/pay`, { paymentMethod: method }, `pay ${method}`)
      await post(`/orders/${id}/${method === "pm_ok" ? "refund" : "cancel"}`, {}, `end ${method}`)
    }
    await post("/reports", { from: "2026-01-01", to: "2026-02-01" }, "report")
  })

const eventTypes = ["OrderPlaced", "PaymentDeclined", "OrderPaid", "OrderRefunded", "OrderCancelled"]

it.live("every metric is there from the start, with its meaning, and counts what happens", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const service = yield* serve(Redacted.value(url), yield* TestDatabase.dataDirectory)
    const scrape = text(`${service.url}/metrics`)
    yield* eventually(
      "the samplers",
      Effect.map(scrape, (metrics) => Object.keys(contract).every((name) => metrics.includes(`# TYPE ${name} `)))
    )
    const before = yield* scrape
    for (const [name, type] of Object.entries(contract)) {
      assert.match(before, new RegExp(`^# HELP ${name} \\S.{10,}$`, "m"))
      assert.match(before, new RegExp(`^# TYPE ${name} ${type}$`, "m"))
    }
    // What warms up is no batch.
    assert.strictEqual(value(before, "outbox_batch_duration_seconds_count"), 0)
    for (const eventType of eventTypes) {
      assert.strictEqual(value(before, `outbox_events_published_total{event_type="${eventType}"}`), 0)
      for (const reason of ["BrokerUnavailable", "TopicUnavailable", "MessageRejected"]) {
        assert.strictEqual(value(before, `outbox_events_failed_total{event_type="${eventType}",reason="${reason}"}`), 0)
      }
    }
    for (const consumer of ["receipts", "inventory", "billing", "analytics"]) {
      for (const outcome of ["applied", "duplicate", "parked", "dead"]) {
        assert.strictEqual(value(before, `inbox_events_total{consumer="${consumer}",outcome="${outcome}"}`), 0)
      }
    }
    for (const taskType of ["email", "report", "payment.recover"]) {
      for (const state of ["pending", "failed"])
        assert.strictEqual(value(before, `outbox_tasks_pending{task_type="${taskType}",state="${state}"}`), 0)
      assert.strictEqual(value(before, `outbox_tasks_dead{task_type="${taskType}"}`), 0)
      for (const outcome of ["completed", "failed", "dead"]) {
        assert.strictEqual(
          value(before, `outbox_task_processed_total{outcome="${outcome}",task_type="${taskType}"}`) ??
            value(before, `outbox_task_processed_total{task_type="${taskType}",outcome="${outcome}"}`),
          0
        )
      }
    }
    assert.strictEqual(value(before, "outbox_task_leases_recovered_total"), 0)
    assert.strictEqual(value(before, "payments_contradicted_total"), 0)
    assert.strictEqual(value(before, "broker_available"), 1)
    assert.strictEqual(value(before, "listen_connected"), 1)
    assert.strictEqual(value(before, `fiber_restarts_total{fiber="control-connection"}`), 0)
    for (const [pool, connections] of Object.entries({ requests: 16, dispatcher: 9, workers: 4 })) {
      assert.strictEqual(value(before, `db_pool_connections_max{pool="${pool}"}`), connections)
    }

    for (let n = 0; n < 3; n++) yield* place(service.url!)
    yield* eventually(
      "three events to be published",
      Effect.map(scrape, (metrics) => value(metrics, `outbox_events_published_total{event_type="OrderPlaced"}`) === 3)
    )
    yield* eventually(
      "three events to be applied by each consumer, and the lag to be reported",
      Effect.map(scrape, (metrics) =>
        ["receipts", "inventory", "billing", "analytics"].every(
          (consumer) =>
            value(metrics, `inbox_events_total{consumer="${consumer}",outcome="applied"}`) === 3 &&
            value(metrics, `inbox_lag{consumer="${consumer}"}`) === 0
        )
      )
    )
    const after = yield* scrape
    assert.isAtLeast(value(after, "outbox_publish_latency_seconds_count")!, 1)
    // The time from a commit to its ack is above zero and, on any machine, below a minute.
    assert.isAbove(value(after, "outbox_publish_latency_seconds_sum")!, 0)
    assert.isBelow(value(after, "outbox_publish_latency_seconds_sum")!, 60)
    assert.isAtLeast(value(after, "outbox_batch_duration_seconds_count")!, 1)
    assert.isAbove(value(after, "outbox_batch_duration_seconds_sum")!, 0)
    assert.isBelow(value(after, "outbox_batch_duration_seconds_sum")!, 60)
    assert.isAbove(value(after, `db_pool_connections{pool="requests"}`)!, 0)
    assert.isAbove(value(after, "process_cpu_seconds_total")!, value(before, "process_cpu_seconds_total")!)

    const ready = JSON.parse(yield* text(`${service.url}/health/ready`)) as {
      readonly status: string
      readonly parts: Readonly<Record<string, Readonly<Record<string, unknown>>>>
    }
    assert.strictEqual(ready.status, "ready", JSON.stringify(ready))
    assert.deepInclude(ready.parts["dispatcher"], { status: "ready", lanesOwned: 64, pausedTopics: [] })
    assert.deepStrictEqual(ready.parts["topics"], { status: "ready", topics: [{ topic: "orders", findings: [] }] })
    assert.deepStrictEqual(ready.parts["broker"], { status: "ready", name: "embedded" })
    assert.includeMembers(Object.keys(ready.parts), [
      "database",
      "fiber:control-connection",
      "fiber:wake-ups",
      "fiber:ownership of dispatcher",
      "fiber:dispatcher turns",
      "fiber:dispatcher poll",
      "fiber:outbox sizes",
      "fiber:topic checks",
      "fiber:maintenance",
      "fiber:publish latency",
      "fiber:pool metrics of requests"
    ])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("every metric of the reference is there before the first event, and no event starts a series", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    // With a file of certificates, so that its end is told. This Postgres has no TLS, which `prefer` accepts.
    const { root } = yield* Certificates.authority("Paid Once test")
    const withCertificate = new URL(Redacted.value(url))
    withCertificate.searchParams.set("sslmode", "prefer")
    withCertificate.searchParams.set("sslrootcert", root)
    const service = yield* serve(withCertificate.toString(), yield* TestDatabase.dataDirectory)
    const names = (text: string) => new Set(seriesOf(text).map(written))
    const missing = (text: string, kinds: ReadonlyArray<string>) => {
      const found = seriesOf(text)
      return listed
        .filter(({ kind = "", name }) => kinds.includes(kind) && !byRequest.includes(name))
        .filter(({ kind, labels, name }) => {
          const all = found.filter((series) => series.name === (kind === "histogram" ? `${name}_count` : name))
          return (
            all.length === 0 || all.some((series) => Object.keys(series.labels).toSorted().join() !== labels.join())
          )
        })
        .map(({ name }) => name)
    }
    const first = yield* scrape(service)
    assert.deepStrictEqual(missing(first, ["counter", "histogram"]), [])
    // A gauge shows its first sample: a 0 before it would end an alert.
    yield* eventually(
      "the samplers, and each consumer's lag",
      Effect.map(
        scrape(service),
        (text) =>
          missing(text, ["gauge"]).length === 0 &&
          seriesOf(text).filter(({ name }) => name === "inbox_lag").length === consumerNames.length
      )
    )
    const before = names(yield* scrape(service))
    yield* useEverything(service.url!)
    yield* eventually(
      "a payment of each end, and everything published, applied and done",
      Effect.map(scrape(service), (text) => {
        const found = new Map(seriesOf(text).map((series) => [written(series), series.value]))
        return (
          ["captured", "declined", "refunded"].every(
            (status) => found.get(`payments_settled_total{status="${status}"}`)! > 0
          ) &&
          found.get(`outbox_events_published_total{event_type="OrderRefunded"}`) === 1 &&
          found.get(`outbox_task_processed_total{outcome="completed",task_type="report"}`) === 1 &&
          found.get(`outbox_task_processed_total{outcome="completed",task_type="email"}`)! > 0
        )
      })
    )
    const late = [...names(yield* scrape(service))].filter(
      (series) => !before.has(series) && !byRequest.some((name) => series.startsWith(name))
    )
    assert.deepStrictEqual(late, [])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("a scrape runs no SQL", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const sql = yield* PgClient.PgClient
    const service = yield* serve(Redacted.value(url), yield* TestDatabase.dataDirectory, "http")
    yield* place(service.url!)
    /** When each connection of the service's pool began its last statement. */
    const statements = sql`
      SELECT pid, query_start::text AS started FROM pg_stat_activity
      WHERE datname = current_database() AND application_name = 'paid-once' AND pid <> pg_backend_pid() ORDER BY pid`
    assert.isAbove((yield* statements).length, 0)
    // The samplers run at their own pace: one may run a statement between two scrapes, but not each time.
    yield* eventually(
      "ten scrapes without a statement",
      Effect.gen(function* () {
        const before = yield* statements
        for (let n = 0; n < 10; n++) {
          assert.include(yield* text(`${service.url}/metrics`), "http_requests_total")
        }
        return isDeepStrictEqual(yield* statements, before)
      })
    )
    const before = yield* statements
    // Health runs a statement, which shows that this test would see one.
    yield* text(`${service.url}/health/ready`)
    assert.notDeepEqual(yield* statements, before)
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("with a database that does not answer, a scrape still contains the last sampled values", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const direct = new URL(Redacted.value(url))
    const proxy = yield* TcpProxy.make({ upstream: { host: direct.hostname, port: Number(direct.port) } })
    direct.hostname = proxy.host
    direct.port = String(proxy.port)
    const service = yield* serve(direct.toString(), yield* TestDatabase.dataDirectory)
    // A sampler that has not run yet has no value.
    yield* eventually(
      "a sample of each",
      Effect.map(text(`${service.url}/metrics`), (metrics) =>
        Object.keys(contract).every((name) => metrics.includes(`# TYPE ${name} `))
      )
    )
    yield* proxy.blackHole()
    const metrics = yield* text(`${service.url}/metrics`)
    for (const name of Object.keys(contract)) assert.include(metrics, `# TYPE ${name} `)
    yield* proxy.pass
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)
