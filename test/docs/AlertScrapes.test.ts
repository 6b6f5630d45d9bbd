/**
 * A real service is made ill, and what it tells of itself is replayed to the rules: the alert that should fire does, and no other. A replay
 * goes on as it went between two scrapes: counters and ages grow on, other figures stay. So half an hour takes a few seconds. Every alert
 * has a run here, but those of `awaited` metrics.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { writeFile } from "node:fs/promises"
import * as Path from "node:path"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import * as Database from "../../src/postgres/Database.ts"
import * as Certificates from "../support/Certificates.ts"
import { eventually } from "../support/Counters.ts"
import * as OwnPostgres from "../support/OwnPostgres.ts"
import * as Promtool from "../support/Promtool.ts"
import { scrape, seriesOf } from "../support/Scrape.ts"
import * as SmallDisk from "../support/SmallDisk.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { awaited, gone, mistakesIn, panels, rules } from "./AlertRules.ts"
import { above, beforeNight, firedSoFar, fires, firesIn, nobody, pay, place, post, start, times } from "./IllService.ts"

const promtool = await Effect.runPromise(Promtool.find)
const missing =
  "missing" in promtool ? `none of docs/AlertScrapes.test.ts ran (alerts of an ill service): ${promtool.missing}` : ""
const command = "command" in promtool ? promtool.command : ""

/** 320 MB in the half minute between two samples of the service: at this pace 5 GiB are full in ten minutes. */
const walSegments = 20

it("promtool is here, or CI is red", () => {
  // oxlint-disable-next-line no-console
  if (missing !== "") console.warn(missing)
  if (process.env["CI"] === "true") assert.strictEqual(missing, "")
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
      yield* above(service, 0, "inbox_events_total", { consumer: "analytics" })
      yield* above(service, 0, "outbox_task_processed_total", { task_type: "email", outcome: "completed" })
      yield* fires(command, service, ["CertificateEndsSoon"], { meanwhile: pay(service) })

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
      assert.isAtMost(awaited.length, 1)
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a broker that is away, while orders come", () =>
    Effect.gen(function* () {
      const service = yield* start({ KAFKA_BROKERS: yield* nobody })
      yield* times(1_001, place(service))
      yield* above(service, 1_000, "outbox_events_pending")
      const alerts = ["BrokerUnavailable", "OutboxBacklogGrowing", "OutboxEventsBacklog", "OutboxOldestEventTooOld"]
      yield* fires(command, service, alerts, {
        meanwhile: times(50, place(service)),
        growing: ["outbox_events_pending"]
      })
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
      yield* fires(command, service, ["DatabaseUnreachable", "HttpServerErrors"], { meanwhile: probe })
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
      yield* firesIn(command, gone, ["PaidOnceDown"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("an event that the broker rejects", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const service = yield* start({ OUTBOX_MAX_ATTEMPTS: "1" })
      yield* sql`UPDATE broker_topics SET max_message_bytes = 100`
      yield* place(service)
      yield* above(service, 0, "outbox_dead_letters")
      yield* fires(command, service, ["OutboxDeadLetters"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("an event that a consumer can't apply", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* beforeNight
      const service = yield* start({ INBOX_MAX_ATTEMPTS: "1" })
      yield* sql`ALTER TABLE billing_ledger RENAME TO away`
      yield* pay(service)
      yield* above(service, 0, "inbox_dead_letters", { consumer: "billing" })
      yield* fires(command, service, ["InboxDeadLetters"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("an event that never comes", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const taking = yield* start({}, "http")
      const { id } = yield* place(taking)
      yield* post(taking, `/orders/${id}/cancel`, {})
      yield* sql`DELETE FROM outbox_events WHERE aggregate_version = 1`
      yield* beforeNight
      const service = yield* start()
      yield* above(service, 0, "inbox_gaps")
      yield* fires(command, service, ["InboxGaps"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("slices that fail and come again", () =>
    Effect.gen(function* () {
      const service = yield* start({ FAULTS: "consumer.after-commit=fail:100000" })
      yield* times(1_001, place(service))
      yield* above(service, 0, "inbox_slice_failures_total")
      yield* above(service, 1_000, "inbox_lag", { consumer: "billing" })
      yield* fires(command, service, ["InboxEventTooOld", "InboxLag", "InboxSliceFailures"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("lanes that fail", () =>
    Effect.gen(function* () {
      const service = yield* start({ FAULTS: "dispatcher.before-publish=fail:100000" })
      yield* place(service)
      yield* above(service, 0, "outbox_lane_failures_total")
      yield* fires(command, service, ["OutboxLaneFailures", "OutboxOldestEventTooOld"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a mail server that is down", () =>
    Effect.gen(function* () {
      const service = yield* start({ SMTP_URL: `smtp://${yield* nobody}` })
      yield* times(51, pay(service))
      yield* above(service, 50, "outbox_tasks_pending", { task_type: "email", state: "failed" })
      // Its failures go on.
      yield* fires(command, service, ["OutboxHighErrorRate", "OutboxQueueBacklog", "OutboxStuckTasks"], {
        meanwhile: times(5, pay(service))
      })
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("batches and tasks that take long", () =>
    Effect.gen(function* () {
      const slow = "dispatcher.before-publish=delay:100000:6000,task.during-run=delay:100000:31000"
      const service = yield* start({ FAULTS: slow })
      yield* fires(command, service, ["OutboxBatchSlow", "OutboxSlowProcessing"], {
        meanwhile: Effect.andThen(
          pay(service),
          above(service, 0, "outbox_task_duration_seconds_count", { task_type: "email" })
        )
      })
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a replication slot that nobody reads", () =>
    Effect.gen(function* () {
      const { url } = yield* OwnPostgres.acquire({ settings: { wal_level: "replica", max_wal_senders: "1" } })
      const database = Database.layer.pipe(Layer.provideMerge(DatabaseSettings.layerOf({ url })))
      const service = yield* start({ DATABASE_URL: Redacted.value(url) })
      yield* above(service, 0, "data_directory_size_bytes")
      const fill = Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`SELECT 1 AS one FROM pg_create_physical_replication_slot('abandoned', true)`
        for (let segment = 0; segment < walSegments; segment++) {
          yield* sql`SELECT 1 AS one FROM pg_logical_emit_message(false, 'test', 'filler'), pg_switch_wal()`
        }
        yield* above(service, 0, "database_wal_retained_bytes")
      })
      yield* fires(command, service, ["WalRetained"], {
        meanwhile: fill.pipe(Effect.provide(database), Effect.orDie),
        growing: ["database_wal_retained_bytes"]
      })
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a task that has failed for good", () =>
    Effect.gen(function* () {
      const service = yield* start({ SMTP_URL: `smtp://${yield* nobody}`, TASK_RETRY_DELAYS: "1s" })
      yield* pay(service)
      yield* above(service, 0, "outbox_tasks_dead", { task_type: "email" })
      yield* fires(command, service, ["OutboxTasksDead"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("a payment that nobody can tell the outcome of", () =>
    Effect.gen(function* () {
      const service = yield* start({ GATEWAY_URL: `http://${yield* nobody}`, PAYMENT_RECOVER_DELAYS: "1s" })
      yield* pay(service)
      yield* above(service, 0, "payments_manual")
      yield* fires(command, service, ["PaymentsManual"])
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
      yield* fires(command, service, ["PaymentsContradicted"], { meanwhile: report })
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it.live("books that differ, until they are repaired", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const token = "the-operator-of-this-test"
      const service = yield* start({ ADMIN_TOKEN: token })
      const reconcile = (body: object) =>
        Effect.promise(async () => {
          const response = await fetch(`${service.url}/admin/reconciliation`, {
            method: "POST",
            headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
            body: JSON.stringify(body)
          })
          return (await response.json()) as { readonly differences: number; readonly repaired: number }
        })
      yield* pay(service)
      const booked = Effect.map(sql`SELECT FROM billing_ledger`, ({ length }) => length)
      yield* eventually(
        "the sale to be booked",
        Effect.map(booked, (count) => count === 1)
      )
      yield* sql`DELETE FROM billing_ledger`
      assert.deepInclude(yield* reconcile({}), { differences: 1, repaired: 0 })
      yield* above(service, 0, "reconciliation_differences")
      yield* fires(command, service, ["ReconciliationDifference"])
      assert.deepInclude(yield* reconcile({ repair: true, reason: "a test" }), { differences: 0, repaired: 1 })
      assert.strictEqual(yield* booked, 1)
      yield* eventually(
        "the alert's metric to be 0 again",
        Effect.map(scrape(service), (text) => /^reconciliation_differences 0$/m.test(text))
      )
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("a loop that fails again and again", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const service = yield* start()
      yield* sql`ALTER TABLE payments RENAME TO away`
      yield* above(service, 0, "fiber_restarts_total", { fiber: "payment metrics" })
      yield* fires(command, service, ["FiberRestarts"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live.skipIf(!SmallDisk.canMount)("a disk that fills up", () =>
    Effect.gen(function* () {
      const disk = yield* SmallDisk.make(20)
      yield* Effect.promise(() => writeFile(Path.join(disk.directory, "ballast"), Buffer.alloc(19 << 20)))
      const service = yield* start({ DATA_DIRECTORY: Path.join(disk.directory, "data") })
      yield* fires(command, service, ["DiskAlmostFull"])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )

  it("every alert has fired in one of these runs, but for metrics that are still awaited", () => {
    const mayMiss = SmallDisk.canMount ? [] : ["DiskAlmostFull"]
    const missed = rules.filter(({ alert }) => !firedSoFar.has(alert) && !mayMiss.includes(alert))
    assert.deepStrictEqual(
      missed.filter(({ expr }) => !awaited.some((name) => expr.includes(name))).map(({ alert }) => alert),
      []
    )
  })
})
