/** docs/restore.md, step by step: a database that is restored from a backup behind its topic is named, rolled forward, and charges nobody twice. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { inject } from "vitest"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import { gateway, newOrder, send, sendElsewhere } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as Targets from "./Targets.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of e2e/Restore.test.ts ran (a restored database over a real Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

/** The gateway is another company's: its database is restored with nothing of ours. */
const world = Layer.merge(Layer.provide(gateway, Layer.fresh(TestDatabase.layerPool)), Layer.fresh(TestDatabase.layer))

/** The rows of a statement on this database, on a connection of its own. */
const rowsOf = <Row extends object>(url: Redacted.Redacted, statement: string) =>
  PgClient.PgClient.use((sql) => sql.unsafe<Row>(statement)).pipe(
    Effect.provide(Layer.fresh(PgClient.layer({ url, maxConnections: 1 }))),
    Effect.orDie
  )

/** The one row of a statement of counts. */
const rowOf = (url: Redacted.Redacted, statement: string) =>
  Effect.map(rowsOf<Readonly<Record<string, number>>>(url, statement), ([row]) => row!)

/** The service on this database, and what a customer does there. */
const serviceOn = (env: Readonly<Record<string, string>>) =>
  Effect.map(ServiceProcess.start({ env }), ({ url }) => ({
    place: Effect.map(send(`${url}/orders`, { body: newOrder }), ({ json }) => json.id as string),
    pay: (id: string, key: string, paymentMethod = "pm_ok") =>
      send(`${url}/orders/${id}/pay`, { body: { paymentMethod }, headers: { "idempotency-key": key } }),
    act: (id: string, verb: "cancel" | "refund") => send(`${url}/orders/${id}/${verb}`, { method: "POST" }),
    statusOf: (id: string) => Effect.map(send(`${url}/orders/${id}`), ({ json }) => json.status as string)
  }))

/** Every event is published, and applied by the four consumers. */
const settled = (url: Redacted.Redacted, events: number) =>
  eventually(
    `${events} events to be applied`,
    Effect.map(
      rowOf(
        url,
        `SELECT (SELECT count(*) FROM outbox_events)::int4 AS queued, (SELECT count(*) FROM processed_events)::int4 AS marks`
      ),
      ({ marks, queued }) => queued === 0 && marks === events * 4
    )
  )

/** The environment of the service on a database: a topic, a directory and a gateway of this test. */
const installation = Effect.gen(function* () {
  const { url: gatewayUrl } = yield* GatewayServer
  const directory = yield* TestDatabase.dataDirectory
  const target = Targets.kafka(brokers!)
  return (url: Redacted.Redacted) => ({
    ...target.env,
    DATABASE_URL: Redacted.value(url),
    DATA_DIRECTORY: directory,
    PORT: "0",
    LOG_LEVEL: "Error",
    GATEWAY_URL: gatewayUrl,
    GATEWAY_WEBHOOK_SECRET: "a-secret-of-two-companies"
  })
})

describe.skipIf(brokers === null)("with a real Kafka", () => {
  it.live(
    "a database behind its topic is named, rolled forward, and then all books agree and nobody is charged twice",
    () =>
      Effect.gen(function* () {
        const envOf = yield* installation
        const live = yield* TestDatabase
        const [first, open] = yield* Effect.scoped(
          Effect.gen(function* () {
            const { pay, place } = yield* serviceOn(envOf(live.url))
            const [paid, pending] = [yield* place, yield* place]
            assert.strictEqual((yield* pay(paid, "first")).status, 200)
            yield* settled(live.url, 3)
            return [paid, pending] as const
          })
        )
        // The backup, as pg_dump would take it at this moment.
        const restored = yield* TestDatabase.make(live.name)
        const env = envOf(restored.url)
        const run = (name: string, ...args: ReadonlyArray<string>) => commandOf(name, Effect.succeed(env))(...args)

        // Customers go on, and then the database is lost.
        const [later, refunded, cancelled] = yield* Effect.scoped(
          Effect.gen(function* () {
            const { act, pay, place, statusOf } = yield* serviceOn(envOf(live.url))
            assert.strictEqual((yield* pay(open, "declined", "pm_declined")).status, 402)
            assert.strictEqual((yield* pay(open, "open")).status, 200)
            const [later, refunded, cancelled] = [yield* place, yield* place, yield* place]
            assert.strictEqual((yield* pay(later, "later")).status, 200)
            assert.strictEqual((yield* pay(refunded, "refunded")).status, 200)
            yield* act(refunded, "refund")
            yield* eventually(
              "the refund",
              Effect.map(statusOf(refunded), (status) => status === "refunded")
            )
            assert.strictEqual((yield* act(cancelled, "cancel")).status, 200)
            yield* settled(live.url, 12)
            return [later, refunded, cancelled] as const
          })
        )

        // The backup was taken while this payment was under way: its intent is in it, and no outcome.
        const [underWay] = yield* rowsOf<{ readonly id: string }>(
          live.url,
          `SELECT id::text FROM payments WHERE order_id = '${open}' AND status = 'captured'`
        )
        yield* rowsOf(
          restored.url,
          `INSERT INTO payments (id, order_id, status, payment_method, amount_minor, currency, leased_until, created_at, updated_at)
           SELECT '${underWay!.id}', id, 'charging', 'pm_ok', total_amount_minor, currency, updated_at, updated_at, updated_at FROM orders WHERE id = '${open}'`
        )

        const ill = yield* run("doctor")
        assert.strictEqual(ill.code, 1)
        assert.match(
          ill.stdout,
          /\ndatabase-behind-topic: the database is behind its topic: 9 events of 4 orders are there and not here, the first of order [\da-f-]{36}\. .*\n.*docs\/restore\.md.*\n {2}\$ npm run paid-once -- roll-forward --dry-run\n/
        )
        const dry = yield* run("roll-forward", "--dry-run")
        assert.strictEqual(dry.code, 1, dry.stderr)
        assert.match(dry.stdout, /^Read 12 records\.\nThe database has lost 9 events\.\n$/)
        assert.strictEqual((yield* run("tasks", "pause", "email", "--reason", "restored from a backup")).code, 0)
        const rolled = yield* run("roll-forward", "--reason", "restored from last night's backup")
        assert.strictEqual(rolled.code, 0, rolled.stdout + rolled.stderr)
        assert.match(rolled.stdout, /^Read 12 records\.\nWrote 9 events\.\n/)
        // Again, as by a person who is not sure.
        assert.match((yield* run("roll-forward", "--reason", "again")).stdout, /^Read 12 records\.\nWrote 0 events\.\n/)
        const { checks } = JSON.parse((yield* run("doctor", "--json")).stdout)
        assert.deepInclude(
          checks.find(({ name }: { readonly name: string }) => name === "database-behind-topic"),
          { outcome: "ok" }
        )

        const { pay, statusOf } = yield* serviceOn(env)
        yield* settled(restored.url, 12)
        const orders = [first, open, later, refunded, cancelled]
        assert.deepStrictEqual(yield* Effect.forEach(orders, statusOf), [
          "paid",
          "paid",
          "paid",
          "refunded",
          "cancelled"
        ])
        // Customers who try again are not charged again.
        const again = yield* Effect.forEach(orders, (id) => pay(id, `again ${id}`))
        assert.deepStrictEqual(
          again.map(({ status }) => status),
          [409, 409, 409, 409, 409]
        )
        assert.match((yield* run("consumers", "lag")).stdout, /billing/)
        const books = yield* run("reconcile")
        assert.strictEqual(books.code, 0, books.stdout + books.stderr)
        assert.match(books.stdout, /Compared the gateway's ledger \(5\), orders \(5\).*\n\nAll books agree\.\n$/)

        // The mails of what came after the backup were held back, and one person decides.
        const unsent =
          "SELECT count(*)::int4 AS waiting FROM outbox_tasks WHERE task_type = 'email' AND state = 'pending'"
        assert.deepStrictEqual(yield* rowOf(restored.url, unsent), { waiting: 4 })
        assert.strictEqual(
          (yield* run("tasks", "resume", "email", "--reason", "a second receipt does no harm")).code,
          0
        )
        yield* eventually(
          "the mails",
          Effect.map(rowOf(restored.url, unsent), ({ waiting }) => waiting === 0)
        )
      }).pipe(Effect.scoped, Effect.provide(world)),
    240_000
  )

  it.live(
    "where the service ran on such a database, the order with two histories is named and left alone, and its second charge is given back",
    () =>
      Effect.gen(function* () {
        const envOf = yield* installation
        const live = yield* TestDatabase
        const order = yield* Effect.scoped(
          Effect.gen(function* () {
            const { place } = yield* serviceOn(envOf(live.url))
            const id = yield* place
            yield* settled(live.url, 1)
            return id
          })
        )
        const restored = yield* TestDatabase.make(live.name)
        const run = (name: string, ...args: ReadonlyArray<string>) =>
          commandOf(name, Effect.succeed(envOf(restored.url)))(...args)
        // Paid on the database that is lost, and again on the one that is behind.
        for (const { events, url } of [
          { url: live.url, events: 2 },
          { url: restored.url, events: 2 }
        ]) {
          yield* Effect.scoped(
            Effect.gen(function* () {
              const { pay } = yield* serviceOn(envOf(url))
              assert.strictEqual((yield* pay(order, "k")).status, 200)
              yield* settled(url, events)
            })
          )
        }
        const ill = yield* run("doctor")
        assert.match(
          ill.stdout,
          new RegExp(
            `\ndatabase-behind-topic: 1 order has used a version for another event than the topic has, the first ${order}: the service ran`
          )
        )
        const rolled = yield* run("roll-forward", "--reason", "restored")
        assert.strictEqual(rolled.code, 1, rolled.stderr)
        assert.match(
          rolled.stdout,
          new RegExp(`Wrote 0 events\\.\nOrder ${order} has used a version for another event`)
        )

        yield* serviceOn(envOf(restored.url))
        const differ = yield* run("reconcile", "--json")
        assert.strictEqual(differ.code, 1, differ.stdout)
        const { items } = JSON.parse(differ.stdout)
        assert.deepStrictEqual(
          items.map(({ rule }: { readonly rule: string }) => rule),
          ["gateway-charge-unknown"]
        )
        const { url: gatewayUrl } = yield* GatewayServer
        const back = yield* sendElsewhere(`${gatewayUrl}/refunds`, {
          headers: { "idempotency-key": "by hand" },
          body: { charge: items[0].id, amountMinor: 2_599, currency: "EUR" }
        })
        assert.strictEqual(back.status, 200, back.text)
        const books = yield* run("reconcile")
        assert.strictEqual(books.code, 0, books.stdout)
      }).pipe(Effect.scoped, Effect.provide(world)),
    240_000
  )
})
