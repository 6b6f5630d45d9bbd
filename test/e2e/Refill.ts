/** The archive filled from the topic beside a running service, as a suite for the embedded broker and for a real Kafka. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { send, sendElsewhere } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"
import { type Paid, revenue, revenueOf } from "./Rebuild.ts"
import type { Target } from "./Targets.ts"

/** Orders before and after the archive is switched on. */
const pastOrders = 40

const args = ["archive", "refill", "--reason", "a test", "--json"]

/** Starts a refill and kills it as soon as it has told of its first records. */
const killRefill = (env: Readonly<Record<string, string>>) =>
  Effect.promise(
    () =>
      new Promise<void>((resolve) => {
        const child = spawn(process.execPath, [Path.join(root, "src/paid-once.js"), ...args], {
          env: { PATH: process.env["PATH"], ...plantedEnv(), ...env },
          stdio: ["ignore", "ignore", "pipe"]
        })
        child.stderr.on("data", (chunk: Buffer) => {
          if (chunk.toString().includes('"read":')) child.kill("SIGKILL")
        })
        child.on("close", () => resolve())
      })
  )

const makeCustomer = (url: string) => {
  let orders = 0
  return Effect.gen(function* () {
    const way = ++orders % 4
    const { json: order } = yield* send(`${url}/orders`, {
      body: {
        customerId: "ada",
        currency: way === 2 ? "USD" : "EUR",
        lines: [{ sku: "book", quantity: 1, unitAmountMinor: 1_000 + orders }]
      }
    })
    if (way === 3) {
      yield* sendElsewhere(`${url}/orders/${order.id}/cancel`, { method: "POST" })
      return
    }
    yield* sendElsewhere(`${url}/orders/${order.id}/pay`, {
      headers: { "idempotency-key": randomUUID() },
      body: { paymentMethod: "pm_ok" }
    })
    if (way === 1) yield* sendElsewhere(`${url}/orders/${order.id}/refund`, { method: "POST" })
  })
}

/** All that was committed is published, and applied by the four consumers. */
const settled = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* eventually(
    "the consumers to have applied all",
    Effect.map(
      sql`
        SELECT 1 AS one FROM orders AS o CROSS JOIN unnest('{receipts,inventory,billing,analytics}'::text[]) AS c(name)
        WHERE EXISTS (SELECT FROM outbox_events) OR EXISTS (SELECT FROM payments WHERE status IN ('charging', 'refunding'))
          OR NOT EXISTS (SELECT FROM consumer_cursors WHERE consumer_name = c.name AND aggregate_id = o.id::text AND version = o.version) LIMIT 1`,
      (rows) => rows.length === 0
    )
  )
})

export const refillBesideService = (name: string, target: () => Target) =>
  it.live(
    `a rebuild that lacks events is refused, the archive is filled from the topic, and then it is right, ${name}`,
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const broker = target()
        const environment = environmentWith({ ...broker.env, OUTBOX_RETENTION_DAYS: "0" })
        const env = yield* environment
        const [archive, rebuild, replay] = (["archive", "rebuild", "replay"] as const).map((command) =>
          commandOf(command, environment)
        )

        // The archive is off at first.
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { url } = yield* ServiceProcess.start({
              env: { ...env, OUTBOX_ARCHIVE: "off", OUTBOX_RETENTION_DAYS: "3" }
            })
            yield* Effect.replicateEffect(makeCustomer(url!), pastOrders)
            yield* settled
            // The service's retention counts, and not this shell's.
            const short = yield* archive!("refill", "--reason", "a test")
            assert.strictEqual(short.code, 1)
            assert.include(short.stderr, "it keeps events for 3 days (OUTBOX_RETENTION_DAYS)")
          })
        )
        const service = yield* ServiceProcess.start({ env })
        const customer = makeCustomer(service.url!)
        yield* Effect.replicateEffect(customer, pastOrders)
        yield* settled
        // Retention drops a day, and an operator makes a mistake.
        yield* sql`
          DO $$ BEGIN EXECUTE format('DROP TABLE event_log_%s', to_char(clock_now() AT TIME ZONE 'UTC', 'YYYYMMDD')); END $$`
        const right = yield* revenue("all")
        yield* sql`UPDATE revenue_daily SET amount_minor = amount_minor + 1`
        const refused = yield* rebuild!("analytics", "--reason", "a test")
        assert.strictEqual(refused.code, 1, refused.stderr)
        assert.include(refused.stderr, "Where the topic still has them, paid-once archive refill fills them in")
        const [orders] = yield* sql<{ readonly events: number }>`SELECT sum(version)::int4 AS events FROM orders`
        const lost = orders!.events

        assert.strictEqual((yield* archive!("refill")).code, 2)
        assert.strictEqual((yield* archive!("refill", "--dry-run", "--topic", "nobody")).code, 2)
        const dry = yield* archive!("refill", "--dry-run")
        assert.strictEqual(dry.code, 0, dry.stderr)
        assert.match(
          dry.stdout,
          new RegExp(`^The archive lacks ${lost} events of the \\d+ records of topic orders\\.\n`)
        )
        assert.match(dry.stderr, /\n(\d+) records of \1 records, \d+ events lacking\.\n$/)
        assert.deepStrictEqual(yield* sql`SELECT 1 AS one FROM event_log`, [])

        // Customers go on meanwhile, and end what they are at when they are stopped: a request cut off could still commit after the sums are read.
        const traffic = yield* Effect.forkChild(Effect.forever(Effect.uninterruptible(customer)))
        for (let kill = 0; kill < 3; kill++) yield* killRefill(env)
        const filled = yield* commandOf("archive", environment)(...args.slice(1))
        assert.strictEqual(filled.code, 0, filled.stderr)
        assert.deepInclude(JSON.parse(filled.stdout), { dryRun: false, older: 0, foreign: 0, different: 0 })
        const again = yield* commandOf("archive", environment)(...args.slice(1))
        assert.strictEqual(JSON.parse(again.stdout).filled, 0, again.stdout)
        const rebuilt = yield* rebuild!("analytics", "--reason", "a test")
        assert.strictEqual(rebuilt.code, 0, rebuilt.stderr)
        yield* Fiber.interrupt(traffic)
        yield* settled

        const [all] = yield* sql<{ readonly archived: number; readonly total: number; readonly strays: number }>`
          SELECT (SELECT count(*) FROM event_log)::int4 AS archived, (SELECT sum(version) FROM orders)::int4 AS total,
                 (SELECT count(*) FROM event_log_default)::int4 AS strays`
        assert.strictEqual(all!.archived, all!.total)
        assert.isAbove(all!.total, lost)
        assert.strictEqual(all!.strays, 0)
        const topic = (yield* broker.readTopic(all!.total)).map(({ value }) => JSON.parse(value) as Paid)
        assert.deepStrictEqual(yield* revenue("all"), revenueOf(topic))
        assert.notDeepEqual(yield* revenue("all"), right, "orders of the traffic are in it")
        const replayed = yield* replay!("receipts", "--json")
        assert.deepInclude(JSON.parse(replayed.stdout), { replayed: all!.total, waiting: 0 })
      }).pipe(Effect.scoped, Effect.provide(Directory.layer), Effect.provide(TestDatabase.layerPool))
  )
