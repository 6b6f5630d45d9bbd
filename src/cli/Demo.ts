/**
 * `paid-once demo`: shows the outbox in half a minute. Orders are placed and paid over HTTP. The dispatcher is killed with SIGKILL, the queue
 * fills, and a new dispatcher drains it. At the end all sums agree. With `--stay` a person breaks it instead (demo/Stay.ts).
 */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Console, Effect, Fiber, Layer, Redacted, Ref, Schedule, Schema, Scope } from "effect"
import { Command, Flag } from "effect/cli"
import { HttpClient, HttpClientRequest, type HttpClientResponse } from "effect/http"
import { SqlClient } from "effect/sql"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { settingsOf, temporaryPostgres } from "../main/Storage.ts"
import * as Rows from "../platform/Rows.ts"
import * as Database from "../postgres/Database.ts"
import { ExitStatus } from "./Process.ts"
import * as ServiceProcess from "./ServiceProcess.ts"
import * as Stay from "./demo/Stay.ts"

/** Enough to see the queue fill and drain, and few enough for half a minute on two slow cores. */
const orderCount = 240
/** Concurrent customers, and how long each waits between two orders: slow enough to watch. */
const concurrency = 4
const thinkMillis = 120
const unitAmountMinor = 1_250

/** A third of the orders come before the dispatcher dies, a third while it is dead, a third after it has come back. */
const killAfter = orderCount / 3
const reviveAfter = (orderCount * 2) / 3

/** The figures that have to agree at the end. Amounts in minor units. */
const figures = Rows.one(
  Schema.Struct({
    paid: Schema.Int,
    queued: Schema.Int,
    published: Schema.Int,
    captured: Schema.Number,
    revenue: Schema.Number,
    charged: Schema.Number,
    orders: Schema.Number,
    /** Events whose version is not the one after their predecessor's in the topic. */
    wrong: Schema.Int
  })
)

const numbers = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* figures(sql`
    SELECT (SELECT count(*) FROM orders WHERE status = 'paid')::int4 AS paid,
           (SELECT count(*) FROM outbox_events)::int4 AS queued,
           (SELECT count(*) FROM event_log)::int4 AS published,
           (SELECT coalesce(sum(captured_minor), 0) FROM payments)::float8 AS captured,
           (SELECT coalesce(sum(amount_minor), 0) FROM revenue_daily)::float8 AS revenue,
           (SELECT coalesce(sum(amount_minor), 0) FROM sandbox_gateway.charges WHERE status = 'captured')::float8 AS charged,
           (SELECT coalesce(sum(total_amount_minor), 0) FROM orders WHERE status = 'paid')::float8 AS orders,
           (SELECT count(*) FROM (
              SELECT aggregate_version - lag(aggregate_version, 1, 0)
                       OVER (PARTITION BY aggregate_id ORDER BY broker_partition, broker_offset) AS step
              FROM event_log) AS steps WHERE step <> 1)::int4 AS wrong`)
})

const bar = (value: number, of: number, width = 24) => {
  const filled = Math.min(width, Math.round((value / of) * width))
  return "█".repeat(filled) + "·".repeat(width - filled)
}

const money = (minor: number) => `${(minor / 100).toFixed(2)} EUR`

const show = Effect.gen(function* () {
  const now = yield* numbers
  yield* Console.log(
    `  paid ${bar(now.paid, orderCount)} ${String(now.paid).padStart(3)}/${orderCount}` +
      `   queue ${bar(now.queued, orderCount, 16)} ${String(now.queued).padStart(3)}` +
      `   published ${String(now.published).padStart(3)}   revenue ${money(now.revenue)}`
  )
})

/** Places one order and pays it, with idempotency keys. */
const buy = Effect.fnUntraced(function* (url: string, index: number) {
  const client = yield* HttpClient.HttpClient
  const post = (path: string, key: string, body: unknown) =>
    HttpClientRequest.post(`${url}${path}`).pipe(
      HttpClientRequest.setHeader("idempotency-key", key),
      HttpClientRequest.bodyJsonUnsafe(body),
      client.execute,
      Effect.flatMap(expectSuccess)
    )
  const order = yield* post("/orders", `demo-order-${index}`, {
    customerId: `customer-${index % 10}`,
    currency: "EUR",
    lines: [{ sku: "book", quantity: 1 + (index % 3), unitAmountMinor }]
  })
  yield* post(`/orders/${(order as { readonly id: string }).id}/pay`, `demo-pay-${index}`, { paymentMethod: "pm_ok" })
})

const expectSuccess = (response: HttpClientResponse.HttpClientResponse) =>
  response.status < 300
    ? response.json
    : Effect.flatMap(response.text, (text) => Effect.die(new Error(`the service answered ${response.status}: ${text}`)))

/** Waits until `condition` is true, at most 15 seconds. */
const until = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  condition.pipe(
    Effect.repeat({ until: (yes) => yes, schedule: Schedule.spaced("100 millis") }),
    Effect.timeout("15 seconds")
  )

const story = (
  url: string,
  startDispatcher: Effect.Effect<ServiceProcess.ServiceProcess, ServiceProcess.ServiceProcessFailed>
) =>
  Effect.gen(function* () {
    const bought = yield* Ref.make(0)
    const first = yield* startDispatcher
    yield* Console.log(`Customers place and pay orders; the dispatcher (pid ${first.pid}) publishes the events:`)
    const customers = yield* Effect.forkChild(
      Effect.forEach(
        Array.from({ length: orderCount }, (_, index) => index),
        (index) =>
          buy(url, index).pipe(
            Effect.andThen(Ref.update(bought, (n) => n + 1)),
            Effect.andThen(Effect.sleep(thinkMillis))
          ),
        { concurrency, discard: true }
      )
    )
    const progress = yield* Effect.forkChild(show.pipe(Effect.repeat(Schedule.spaced("700 millis"))))
    const reached = (count: number) => until(Effect.map(Ref.get(bought), (n) => n >= count))

    yield* reached(killAfter)
    yield* first.signal("SIGKILL")
    yield* first.exit
    yield* Console.log(
      "\n✗ kill -9 of the dispatcher. Orders are still taken and paid; their events wait in the queue:"
    )
    yield* reached(reviveAfter)
    const second = yield* startDispatcher
    yield* Console.log(`\n✓ A new dispatcher (pid ${second.pid}) takes over the lanes and drains the queue:`)
    yield* Fiber.join(customers)
    yield* until(Effect.map(numbers, (now) => now.queued === 0 && now.revenue === now.orders))
    yield* Fiber.interrupt(progress)
    yield* show
  })

const verdict = Effect.gen(function* () {
  const sums = yield* numbers
  const events = 2 * orderCount
  const checks: ReadonlyArray<readonly [string, boolean]> = [
    [`${sums.paid} orders paid, of ${orderCount} placed`, sums.paid === orderCount],
    [
      `${sums.published} events published, of ${events} committed; ${sums.queued} left in the queue`,
      sums.published === events && sums.queued === 0
    ],
    [`every order's events in version order, without gaps`, sums.wrong === 0],
    [`charged at the gateway   ${money(sums.charged)}`, sums.charged === sums.orders],
    [`captured payments        ${money(sums.captured)}`, sums.captured === sums.orders],
    [`total of paid orders     ${money(sums.orders)}`, sums.orders > 0],
    [`revenue by the consumer  ${money(sums.revenue)}`, sums.revenue === sums.orders]
  ]
  yield* Console.log("")
  for (const [text, holds] of checks) yield* Console.log(`  ${holds ? "✓" : "✗"} ${text}`)
  if (!checks.every(([, holds]) => holds)) return yield* Effect.fail(new ExitStatus(1))
  yield* Console.log("\nNothing was lost, and nothing was applied twice.")
})

/** A Postgres with a new database, and the variables of the processes that use it. */
const world = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(Path.join(tmpdir(), "paid-once-demo-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
  )
  yield* Console.log("Starting Postgres and the service …")
  const { ownerUrl, url } = yield* temporaryPostgres
  const env = {
    DATABASE_URL: Redacted.value(url),
    DATABASE_OWNER_URL: Redacted.value(ownerUrl),
    DATA_DIRECTORY: directory,
    PORT: "0",
    LOG_LEVEL: "None"
  }
  return { env, ownerUrl, url }
})

const run = Effect.gen(function* () {
  const { env, url } = yield* world
  const scope = yield* Effect.scope
  const service = yield* ServiceProcess.start({ roles: "http,consumers,maintenance", env })
  yield* Console.log(`The service answers at ${service.url}.`)
  const startDispatcher = ServiceProcess.start({ roles: "dispatcher", env }).pipe(
    Effect.provideService(Scope.Scope, scope)
  )
  yield* Effect.andThen(story(service.url ?? "", startDispatcher), verdict).pipe(
    Effect.provide(NodeHttpClient.layerUndici),
    Effect.provide(Database.layer.pipe(Layer.provide(settingsOf(url, { maxConnections: 2 }))))
  )
}).pipe(Effect.scoped)

/** The command. */
export const demo = Command.make(
  "demo",
  {
    stay: Flag.Boolean("stay").pipe(
      Flag.withDescription("keep it running, for you to break its processes and its broker on the console"),
      Flag.withDefault(false)
    )
  },
  ({ stay }) => (stay ? Effect.scoped(Effect.flatMap(world, Stay.stay)) : run)
)
