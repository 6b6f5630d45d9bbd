/** Processes that take no requests: their port for health and metrics, its content, and how long it stays open. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Redacted } from "effect"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { newOrder, send, sendElsewhere } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const start = Effect.fnUntraced(function* (roles: string, env: Readonly<Record<string, string>> = {}) {
  const { url } = yield* TestDatabase
  const directory = yield* TestDatabase.dataDirectory
  return yield* ServiceProcess.start({
    roles,
    env: { DATABASE_URL: Redacted.value(url), DATA_DIRECTORY: directory, LOG_LEVEL: "Warn", ...env }
  })
})

it.live("a dispatcher that is told a port answers health and metrics there, and nothing else", () =>
  Effect.gen(function* () {
    const { url } = yield* start("dispatcher", { PORT: "0" })
    assert.isNotNull(url)
    yield* eventually(
      "the queue to be sampled",
      Effect.map(send(`${url}/metrics`), ({ text }) => /^outbox_events_pending 0$/m.test(text))
    )
    assert.match((yield* send(`${url}/metrics`)).text, /^outbox_events_published_total\{event_type="OrderPaid"\} 0$/m)
    assert.deepStrictEqual((yield* send(`${url}/health/live`)).json, { status: "live" })
    yield* eventually(
      "all lanes",
      Effect.map(send(`${url}/health/ready`), ({ json }) => json.parts.dispatcher.lanesOwned === 64)
    )
    const ready = yield* send(`${url}/health/ready`)
    assert.deepStrictEqual([ready.status, ready.json.status], [200, "ready"], ready.text)
    for (const [path, init] of [
      ["/orders", {}],
      ["/orders", { body: newOrder }],
      ["/openapi.json", {}],
      ["/docs", {}],
      ["/nothing", {}]
    ] as const) {
      const answer = yield* sendElsewhere(`${url}${path}`, init)
      assert.deepStrictEqual(
        [answer.status, answer.headers.get("content-type"), answer.json.detail],
        [404, "application/problem+json", "there is nothing at this path"]
      )
    }
    const refused = yield* send(`${url}/metrics`, { method: "POST" })
    assert.deepStrictEqual([refused.status, refused.headers.get("allow")], [405, "GET, HEAD"])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("health judges the roles that the process has, and no others", () =>
  Effect.gen(function* () {
    for (const [roles, parts] of [
      ["http", ["broker", "database", "pauses", "topics", "writes"]],
      ["dispatcher", ["broker", "database", "dispatcher", "pauses", "topics"]],
      ["consumers", ["broker", "database", "inbox", "pauses", "topics"]],
      ["workers,maintenance", ["database", "pauses"]]
    ] as const) {
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { url } = yield* start(roles, { PORT: "0" })
          const { json } = yield* send(`${url}/health/ready`)
          const found = Object.keys(json.parts).filter((name) => !name.startsWith("fiber:"))
          assert.deepStrictEqual(found.toSorted(), [...parts], roles)
        })
      )
    }
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("without a port such processes run side by side, and say that they have none", () =>
  Effect.gen(function* () {
    const started = yield* Effect.all([start("dispatcher"), start("consumers"), start("workers,maintenance")], {
      concurrency: "unbounded"
    })
    assert.deepStrictEqual(
      started.map(({ url }) => url),
      [null, null, null]
    )
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("a port that is taken refuses the start of a dispatcher, too", () =>
  Effect.gen(function* () {
    const { url } = yield* start("dispatcher", { PORT: "0" })
    const { port } = new URL(url!)
    const refused = yield* Effect.flip(start("dispatcher", { PORT: port }))
    assert.strictEqual(refused.code, "1")
    assert.include(refused.output, `PORT: can't listen on 127.0.0.1:${port}: the port is in use`)
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("a dispatcher that stops ends its batch first, watched to the end, and closes its port then", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    const http = yield* start("http", { PORT: "0" })
    const { exit, output, signal, url } = yield* start("dispatcher", {
      PORT: "0",
      // Long enough to look at the process while the batch is in flight, even on a machine that stands still for a moment.
      FAULTS: "dispatcher.after-publish=delay:1:6000",
      SHUTDOWN_GRACE_MILLIS: "60000",
      SHUTDOWN_HARD_MILLIS: "90000"
    })
    yield* send(`${http.url}/orders`, { body: newOrder })
    yield* eventually(
      "the event to be sent",
      Effect.map(sql`SELECT FROM broker_log`, (rows) => rows.length === 1)
    )
    yield* signal("SIGTERM")
    yield* eventually(
      "health to report the stop",
      Effect.map(
        send(`${url}/health/ready`),
        ({ headers, json, status }) =>
          status === 503 && json.parts.shutdown.status === "unready" && headers.get("connection") === "close"
      )
    )
    assert.lengthOf(yield* sql`SELECT FROM outbox_events`, 1, "the batch is under way")
    assert.strictEqual((yield* send(`${url}/health/live`)).status, 200)
    assert.include((yield* send(`${url}/metrics`)).text, "outbox_events_published_total")
    yield* eventually(
      "the port to close",
      Effect.map(Effect.exit(Effect.tryPromise(() => fetch(`${url}/health/live`))), Exit.isFailure)
    )
    assert.deepStrictEqual(yield* sql`SELECT FROM outbox_events`, [], "the batch has ended by then")
    assert.strictEqual(yield* exit, 0, output())
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)
