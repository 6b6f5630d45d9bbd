/**
 * A real service is made ill, and what it tells of itself is replayed to the rules: the alert that should fire does, and no other. A replay
 * goes on as it went between two scrapes: counters and ages grow on, other figures stay. So half an hour takes a few seconds.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { writeFile } from "node:fs/promises"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import * as Certificates from "../support/Certificates.ts"
import { eventually } from "../support/Counters.ts"
import * as Promtool from "../support/Promtool.ts"
import { scrape, type Series, seriesOf } from "../support/Scrape.ts"
import * as SmallDisk from "../support/SmallDisk.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { awaited, betweenMillis, minutesHeld, mistakesIn, panels, replayed, rules } from "./AlertRules.ts"

const promtool = await Effect.runPromise(Promtool.find)
const missing =
  "missing" in promtool ? `none of docs/AlertScrapes.test.ts ran (alerts of an ill service): ${promtool.missing}` : ""
const command = "command" in promtool ? promtool.command : ""

it("promtool is here, or CI is red", () => {
  // oxlint-disable-next-line no-console
  if (missing !== "") console.warn(missing)
  if (process.env["CI"] === "true") assert.strictEqual(missing, "")
})

const start = Effect.fnUntraced(function* (env: Readonly<Record<string, string>> = {}, roles?: string) {
  const { url } = yield* TestDatabase
  return yield* ServiceProcess.start({
    ...(roles === undefined ? {} : { roles }),
    env: {
      DATABASE_URL: Redacted.value(url),
      DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
      PORT: "0",
      LOG_LEVEL: "Error",
      ...env
    }
  })
})
type Service = ServiceProcess.ServiceProcess

const post = (service: Service, path: string, body: unknown) =>
  Effect.promise(async () => {
    const response = await fetch(`${service.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", "idempotency-key": crypto.randomUUID() },
      body: JSON.stringify(body)
    })
    return (await response.json()) as { readonly id: string }
  })
const line = { sku: "book", quantity: 1, unitAmountMinor: 100 }
const place = (service: Service) => post(service, "/orders", { customerId: "ada", currency: "EUR", lines: [line] })
const pay = (service: Service) =>
  Effect.flatMap(place(service), ({ id }) =>
    Effect.as(post(service, `/orders/${id}/pay`, { paymentMethod: "pm_ok" }), id)
  )

/** An address where nobody listens. */
const nobody = Effect.map(TcpProxy.freePorts(1), ([port]) => `127.0.0.1:${port}`)

/** Waits until a metric is above 0, of these labels. */
const above0 = (service: Service, name: string, labels: Series["labels"] = {}) =>
  eventually(
    `${name} above 0`,
    Effect.map(scrape(service), (text) =>
      seriesOf(text).some(
        (one) =>
          one.name === name &&
          one.value > 0 &&
          Object.entries(labels).every(([key, value]) => one.labels[key] === value)
      )
    )
  )

/** These alerts, and no others, fire in the end. */
const fires = Effect.fnUntraced(function* (
  service: Service,
  alerts: ReadonlyArray<string>,
  meanwhile: Effect.Effect<unknown> = Effect.void
) {
  const first = seriesOf(yield* scrape(service))
  yield* meanwhile
  yield* Effect.sleep(betweenMillis)
  const second = seriesOf(yield* scrape(service))
  yield* Promtool.testRules(command, [
    { name: "an ill service", series: replayed(first, second), firing: { [minutesHeld - 1]: alerts.toSorted() } }
  ])
})

describe.skipIf(missing !== "")("a service tells what it suffers from", () => {
  it.live("nothing but a certificate of two days, and every query of rules and dashboard finds what it asks for", () =>
    Effect.gen(function* () {
      const { root } = yield* Certificates.authority("Paid Once test")
      const { url } = yield* TestDatabase
      const database = new URL(Redacted.value(url))
      database.searchParams.set("sslmode", "prefer")
      database.searchParams.set("sslrootcert", root)
      const service = yield* start({ DATABASE_URL: database.toString() })
      yield* pay(service)
      yield* above0(service, "inbox_events_total", { consumer: "analytics" })
      yield* above0(service, "outbox_task_processed_total", { task_type: "email", outcome: "completed" })
      yield* fires(service, ["CertificateEndsSoon"], pay(service))

      const found = seriesOf(yield* scrape(service))
      const queries = [
        ...rules.map(({ alert, expr }) => ({ of: alert, expr })),
        ...panels().flatMap(({ targets, title }) => targets.map(({ expr }) => ({ of: title, expr })))
      ]
      assert.isAbove(queries.length, 50)
      assert.deepStrictEqual(
        queries.flatMap(({ expr, of }) => mistakesIn(expr, found).map((mistake) => `${of}: ${mistake}`)),
        []
      )
      // Queries that would stay empty for ever.
      for (const [query, mistake] of [
        [
          `sum(rate(outbox_task_processed_total{outcome="done"}[5m]))`,
          "no outbox_task_processed_total has the outcome done"
        ],
        [`max by (consumer) (inbox_lagg)`, "there is no inbox_lagg"],
        [`inbox_lag{topic="orders"}`, "inbox_lag has no label topic"],
        [`max by (topic) (inbox_lag)`, "none of inbox_lag has the label topic"]
      ] as const) {
        assert.include(mistakesIn(query, found), mistake)
      }
      assert.isAtMost(awaited.length, 2)
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a broker that is away", () =>
    Effect.gen(function* () {
      const service = yield* start({ KAFKA_BROKERS: yield* nobody })
      yield* place(service)
      yield* above0(service, "outbox_oldest_pending_age_seconds")
      yield* fires(service, ["BrokerUnavailable", "OutboxOldestEventTooOld"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a database that is away", () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase
      const { proxy, url: proxied } = yield* TcpProxy.makePostgres(url)
      const service = yield* start({ DATABASE_URL: Redacted.value(proxied) })
      yield* proxy.refuse
      yield* proxy.reset
      const probe = Effect.promise(async () => (await fetch(`${service.url}/health/ready`)).status)
      yield* eventually(
        "the service to be unready, and its control connection to be lost",
        Effect.gen(function* () {
          const text = yield* scrape(service)
          return (yield* probe) === 503 && text.includes("\nlisten_connected 0\n")
        })
      )
      yield* fires(service, ["DatabaseUnreachable", "HttpServerErrors"], probe)
      yield* proxy.pass
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a process that was killed", () =>
    Effect.gen(function* () {
      const service = yield* start()
      yield* service.signal("SIGKILL")
      yield* service.exit
      // Of a target that does not answer Prometheus keeps `up` alone.
      assert.strictEqual((yield* Effect.exit(scrape(service)))._tag, "Failure")
      yield* Promtool.testRules(command, [
        { name: "gone", series: replayed([], [], 0), firing: { [minutesHeld - 1]: ["PaidOnceDown"] } }
      ])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("an event that the broker rejects", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const service = yield* start({ OUTBOX_MAX_ATTEMPTS: "1" })
      yield* sql`UPDATE broker_topics SET max_message_bytes = 100`
      yield* place(service)
      yield* above0(service, "outbox_dead_letters")
      yield* fires(service, ["OutboxDeadLetters"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("an event that a consumer can't apply", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const service = yield* start({ INBOX_MAX_ATTEMPTS: "1" })
      yield* sql`ALTER TABLE billing_ledger RENAME TO away`
      yield* pay(service)
      yield* above0(service, "inbox_dead_letters", { consumer: "billing" })
      yield* fires(service, ["InboxDeadLetters"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("an event that never comes", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const taking = yield* start({}, "http")
      const { id } = yield* place(taking)
      yield* post(taking, `/orders/${id}/cancel`, {})
      yield* sql`DELETE FROM outbox_events WHERE aggregate_version = 1`
      const service = yield* start()
      yield* above0(service, "inbox_gaps")
      yield* fires(service, ["InboxGaps"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("slices that fail and come again", () =>
    Effect.gen(function* () {
      const service = yield* start({ FAULTS: "consumer.after-commit=fail:100000" })
      yield* pay(service)
      yield* above0(service, "inbox_slice_failures_total")
      yield* fires(service, ["InboxSliceFailures", "InboxEventTooOld"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("lanes that fail", () =>
    Effect.gen(function* () {
      const service = yield* start({ FAULTS: "dispatcher.before-publish=fail:100000" })
      yield* place(service)
      yield* above0(service, "outbox_lane_failures_total")
      yield* fires(service, ["OutboxLaneFailures", "OutboxOldestEventTooOld"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a mail server that is down", () =>
    Effect.gen(function* () {
      const service = yield* start({ SMTP_URL: `smtp://${yield* nobody}` })
      yield* pay(service)
      yield* above0(service, "outbox_tasks_pending", { task_type: "email", state: "failed" })
      yield* fires(service, ["OutboxStuckTasks"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a task that has failed for good", () =>
    Effect.gen(function* () {
      const service = yield* start({ SMTP_URL: `smtp://${yield* nobody}`, TASK_RETRY_DELAYS: "1s" })
      yield* pay(service)
      yield* above0(service, "outbox_tasks_dead", { task_type: "email" })
      yield* fires(service, ["OutboxTasksDead"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a payment that nobody can tell the outcome of", () =>
    Effect.gen(function* () {
      const service = yield* start({ GATEWAY_URL: `http://${yield* nobody}`, PAYMENT_RECOVER_DELAYS: "1s" })
      yield* pay(service)
      yield* above0(service, "payments_manual")
      yield* fires(service, ["PaymentsManual"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a report of the gateway that can't be read", () =>
    Effect.gen(function* () {
      const secret = "a-secret-of-this-test"
      const service = yield* start({ GATEWAY_URL: `http://${yield* nobody}`, GATEWAY_WEBHOOK_SECRET: secret })
      const text = JSON.stringify({ type: "refund.made", key: 7 })
      const signature = SignedMessage.sign(Redacted.make(secret), Math.floor(Date.now() / 1_000), text)
      const report = Effect.promise(() =>
        fetch(`${service.url}/webhooks/gateway`, {
          method: "POST",
          headers: { "content-type": "application/json", "gateway-signature": signature },
          body: text
        })
      )
      yield* fires(service, ["PaymentsContradicted"], report)
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a loop that fails again and again", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const service = yield* start()
      yield* sql`ALTER TABLE payments RENAME TO away`
      yield* above0(service, "fiber_restarts_total", { fiber: "payment metrics" })
      yield* fires(service, ["FiberRestarts"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live.skipIf(!SmallDisk.canMount)("a disk that fills up", () =>
    Effect.gen(function* () {
      const disk = yield* SmallDisk.make(20)
      yield* Effect.promise(() => writeFile(Path.join(disk.directory, "ballast"), Buffer.alloc(19 << 20)))
      const service = yield* start({ DATA_DIRECTORY: Path.join(disk.directory, "data") })
      yield* fires(service, ["DiskAlmostFull"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )
})
