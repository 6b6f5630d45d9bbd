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

it.live(
  "with the embedded broker the gateway's ledger tells that a database is behind, and once its charges are settled all is well",
  () =>
    Effect.gen(function* () {
      const { url: gatewayUrl } = yield* GatewayServer
      const directory = yield* TestDatabase.dataDirectory
      const envOf = (url: Redacted.Redacted) => ({
        DATABASE_URL: Redacted.value(url),
        DATA_DIRECTORY: directory,
        PORT: "0",
        LOG_LEVEL: "Error",
        GATEWAY_URL: gatewayUrl,
        GATEWAY_WEBHOOK_SECRET: "a-secret-of-two-companies"
      })
      const live = yield* TestDatabase
      const order = yield* Effect.scoped(
        Effect.gen(function* () {
          const { pay, place } = yield* serviceOn(envOf(live.url))
          const [paid, open] = [yield* place, yield* place]
          assert.strictEqual((yield* pay(paid, "first")).status, 200)
          yield* settled(live.url, 3)
          return open
        })
      )
      const restored = yield* TestDatabase.make(live.name)
      const run = (name: string, ...args: ReadonlyArray<string>) =>
        commandOf(name, Effect.succeed(envOf(restored.url)))(...args)
      const looked = Effect.map(run("doctor", "--json"), ({ stdout }) => JSON.parse(stdout).checks[0])
      assert.deepInclude(yield* looked, { name: "database-behind-gateway", outcome: "ok" })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { pay } = yield* serviceOn(envOf(live.url))
          assert.strictEqual((yield* pay(order, "later")).status, 200)
          yield* settled(live.url, 4)
        })
      )

      const ill = yield* run("doctor")
      assert.strictEqual(ill.code, 1)
      assert.match(
        ill.stdout,
        /\ndatabase-behind-gateway: the database is behind the gateway: .* 1 charge of payments that are not here, .*\n.*docs\/restore\.md.*\n {2}\$ npm run paid-once -- reconcile\n/
      )
      assert.notInclude(ill.stdout, "serve --roles")
      const differ = yield* run("reconcile", "--json")
      assert.strictEqual(differ.code, 1, differ.stdout)
      const { items } = JSON.parse(differ.stdout)
      assert.deepStrictEqual(
        items.map(({ rule }: { readonly rule: string }) => rule),
        ["gateway-charge-unknown"]
      )
      const back = yield* sendElsewhere(`${gatewayUrl}/refunds`, {
        headers: { "idempotency-key": "by hand" },
        body: { charge: items[0].id, amountMinor: 2_599, currency: "EUR" }
      })
      assert.strictEqual(back.status, 200, back.text)
      assert.strictEqual((yield* run("reconcile")).code, 0)
      assert.deepInclude(yield* looked, { name: "database-behind-gateway", outcome: "ok" })
    }).pipe(Effect.scoped, Effect.provide(world)),
  240_000
)

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
        // A repair too early, which would write events with versions that the topic has for others.
        const early = JSON.parse((yield* run("reconcile", "--repair", "--reason", "too early", "--json")).stdout)
        assert.deepInclude(early, { repaired: 0, notCompared: [] })
        assert.isAbove(early.differences, 0)
        for (const { repair } of early.items) assert.match(repair.why, /does not have its topic's history/)
        const dry = yield* run("roll-forward", "--dry-run")
        assert.strictEqual(dry.code, 1, dry.stderr)
        assert.match(dry.stdout, /^Read 12 records\.\nThe database has lost 9 events\.\n$/)
        assert.strictEqual((yield* run("tasks", "pause", "email", "--reason", "restored from a backup")).code, 0)
        const rolled = yield* run("roll-forward", "--reason", "restored from last night's backup")
        assert.strictEqual(rolled.code, 0, rolled.stdout + rolled.stderr)
        assert.match(rolled.stdout, /^Read 12 records\.\nWrote 9 events\.\n/)
        assert.match(rolled.stderr, /\d+ records? of 12 records, \d+ events? that the database has lost/)
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
    "where the service ran on such a database, orders with two histories go on with the database's, all is clean in the end, and a second charge is named",
    () =>
      Effect.gen(function* () {
        const envOf = yield* installation
        const live = yield* TestDatabase
        const [order, other] = yield* Effect.scoped(
          Effect.gen(function* () {
            const { place } = yield* serviceOn(envOf(live.url))
            const ids = [yield* place, yield* place] as const
            yield* settled(live.url, 2)
            return ids
          })
        )
        const restored = yield* TestDatabase.make(live.name)
        const run = (name: string, ...args: ReadonlyArray<string>) =>
          commandOf(name, Effect.succeed(envOf(restored.url)))(...args)
        // Paid on the database that is lost, one of them refunded there, and both paid again on the one that is behind.
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { act, pay, statusOf } = yield* serviceOn(envOf(live.url))
            for (const id of [order, other]) assert.strictEqual((yield* pay(id, `k ${id}`)).status, 200)
            yield* act(order, "refund")
            yield* eventually(
              "the refund",
              Effect.map(statusOf(order), (status) => status === "refunded")
            )
            yield* settled(live.url, 5)
          })
        )
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { pay } = yield* serviceOn(envOf(restored.url))
            for (const id of [order, other]) assert.strictEqual((yield* pay(id, `k ${id}`)).status, 200)
            yield* settled(restored.url, 4)
          })
        )
        const behind = (text: string) =>
          JSON.parse(text).checks.find(({ name }: { readonly name: string }) => name === "database-behind-topic")
        const ill = behind((yield* run("doctor", "--json")).stdout)
        assert.match(
          ill.findings.map(({ problem }: { readonly problem: string }) => problem).join("\n"),
          /2 orders have used a version for another event than the topic has/
        )
        const dry = yield* run("roll-forward", "--dry-run")
        const rolled = yield* run("roll-forward", "--reason", "restored")
        for (const { code, stdout, stderr } of [dry, rolled]) {
          assert.strictEqual(code, 1, stderr)
          assert.match(stdout, /(The database has lost|Wrote) 0 events\.\n2 orders have two histories\./)
          for (const id of [order, other]) assert.include(stdout, id)
          assert.match(stderr, /the broker is Kafka at .*\n.*the topic is e2e-.*orders\n.*the database is /)
        }
        // Decided once: then all is well, and nothing is told again.
        const again = yield* run("roll-forward", "--reason", "again")
        assert.strictEqual(again.code, 0, again.stdout + again.stderr)
        assert.match(again.stdout, /^Read 7 records\.\nWrote 0 events\.\nThe consumers read/)
        assert.deepInclude(behind((yield* run("doctor", "--json")).stdout), { outcome: "ok", findings: [] })

        // Its next event is the next one for each consumer.
        const { act, statusOf } = yield* serviceOn(envOf(restored.url))
        yield* act(order, "refund")
        yield* settled(restored.url, 5)
        assert.deepStrictEqual(yield* Effect.forEach([order, other], statusOf), ["refunded", "paid"])
        assert.deepStrictEqual(
          yield* rowsOf(
            restored.url,
            `SELECT debit_account AS debit, credit_account AS credit FROM billing_ledger WHERE order_id = '${order}' ORDER BY occurred_at`
          ),
          [
            { debit: "gateway", credit: "sales" },
            { debit: "refunds", credit: "gateway" }
          ]
        )
        const differ = yield* run("reconcile", "--json")
        assert.strictEqual(differ.code, 1, differ.stdout)
        const { items } = JSON.parse(differ.stdout)
        // The charge of the lost history that was not refunded: its customer has paid twice.
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
        assert.deepInclude(behind((yield* run("doctor", "--json")).stdout), { outcome: "ok", findings: [] })
      }).pipe(Effect.scoped, Effect.provide(world)),
    240_000
  )
})
