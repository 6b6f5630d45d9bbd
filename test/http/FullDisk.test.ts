/** A whole service while the disk of its Postgres is full, and after it has space again. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Redacted, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { eventually } from "../support/Counters.ts"
import * as OwnPostgres from "../support/OwnPostgres.ts"
import * as SmallDisk from "../support/SmallDisk.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const order = {
  customerId: "ada",
  currency: "EUR",
  lines: Array.from({ length: 50 }, (_, index) => ({ sku: `sku-${index}`, quantity: 1, unitAmountMinor: 100 }))
}

it.live.skipIf(!SmallDisk.canMount)(
  "a full disk is 503, unready and a line in the log, burns no attempt, and passes by itself",
  () =>
    Effect.gen(function* () {
      // Twice what an empty database takes.
      const disk = yield* SmallDisk.make(120)
      const server = yield* OwnPostgres.acquire({ dataDirectory: Path.join(disk.directory, "data") })
      const service = yield* ServiceProcess.start({
        env: {
          DATABASE_URL: Redacted.value(server.url),
          DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
          PORT: "0",
          LOG_LEVEL: "Info"
        }
      })
      const ask = (path: string, body?: unknown) =>
        Effect.promise(async () => {
          const response = await fetch(`${service.url}${path}`, {
            method: body === undefined ? "GET" : "POST",
            headers: { "content-type": "application/json", "idempotency-key": crypto.randomUUID() },
            ...(body === undefined ? {} : { body: JSON.stringify(body) })
          })
          return {
            status: response.status,
            retryAfter: response.headers.get("retry-after"),
            text: await response.text()
          }
        })
      const isReady = Effect.map(ask("/health/ready"), ({ status }) => status === 200)
      const pay = Effect.gen(function* () {
        const placed = yield* ask("/orders", order)
        if (placed.status !== 201) return placed
        return yield* ask(`/orders/${(JSON.parse(placed.text) as { readonly id: string }).id}/pay`, {
          paymentMethod: "pm_ok"
        })
      })
      assert.strictEqual((yield* pay).status, 200)
      yield* eventually("the service to be ready", isReady)
      const before = service.output().length

      yield* disk.fill
      const refusals = { count: 0 }
      const paying = pay.pipe(
        Effect.tap(({ retryAfter, status, text }) =>
          Effect.sync(() => {
            // 202: the money has moved, and the outcome could not be written yet.
            assert.include([200, 202, 503], status, text)
            if (status === 503) {
              assert.match(retryAfter ?? "", /^\d+$/)
              refusals.count++
            }
          })
        )
      )
      const many = Effect.forEach(Array.from({ length: 100 }), () => paying, { concurrency: 8, discard: true })
      yield* Effect.repeat(many, { until: () => refusals.count >= 1_000 })
      yield* eventually(
        "the service to be unready",
        Effect.map(isReady, (ready) => !ready)
      )
      // The loops of the service meet it meanwhile, too.
      yield* Effect.repeat(many, { schedule: Schedule.recurs(3) })
      const while503 = service.output().slice(before)
      assert.notInclude(while503, "request failed")
      assert.strictEqual(while503.split("the database is unavailable: ").length - 1, 1, while503)
      assert.include(while503, "No space left on device (53100)")
      assert.isBelow(while503.length, 50_000, while503.slice(0, 20_000))

      yield* disk.free
      yield* eventually("the service to be ready again", isReady)
      assert.strictEqual((yield* pay).status, 200)
      // Once the last part of the process works again.
      yield* eventually(
        "the end of the outage in the log",
        Effect.sync(() => service.output().includes("the database is available again: "))
      )
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* eventually(
          "everything to be published, applied and done",
          Effect.map(
            sql<{ readonly left: number }>`
            SELECT ((SELECT count(*) FROM outbox_events) + (SELECT count(*) FROM outbox_tasks WHERE state NOT IN ('completed', 'cancelled'))
              + (SELECT count(*) FROM payments WHERE status = 'charging')
              + (SELECT 4 * count(*) FROM event_log) - (SELECT count(*) FROM processed_events))::int4 AS left`,
            ([row]) => row!.left === 0
          )
        )
        const [burnt] = yield* sql`
        SELECT (SELECT count(*) FROM outbox_holds)::int4 AS "outboxHolds", (SELECT count(*) FROM inbox_holds)::int4 AS "inboxHolds",
               (SELECT count(*) FROM outbox_tasks WHERE state = 'dead' OR history::text LIKE '%SqlError%')::int4 AS "failedTasks",
               (SELECT count(*) FROM orders WHERE status NOT IN ('paid', 'pending'))::int4 AS "otherOrders"`
        assert.deepStrictEqual(burnt, { outboxHolds: 0, inboxHolds: 0, failedTasks: 0, otherOrders: 0 })
      }).pipe(Effect.provide(PgClient.layer({ url: server.url, maxConnections: 1 })))
    }).pipe(Effect.scoped)
)
