/** A consumer whose place in the topic was moved past its events by hand: they are named, and what the rule says brings them back, once. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { Kafka, logLevel } from "kafkajs"
import { inject } from "vitest"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { newOrder, send } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { Directory, commandOf, environmentWith } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { topicEnds } from "../support/topicEnds.ts"
import * as Targets from "./Targets.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `a part of e2e/Skipped.test.ts did not run (offsets set by hand in a real Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

/** A broker, and what a person does there by hand. */
interface ByHand {
  readonly env: Readonly<Record<string, string>>
  /** Sets billing's place in the topic to its end. */
  readonly moveToEnd: Effect.Effect<unknown, unknown, SqlClient.SqlClient>
  /** Sets billing back, as docs/reconciliation.md says: while the service runs, or once it has stopped. */
  readonly whileItRuns: Effect.Effect<unknown, unknown, SqlClient.SqlClient>
  readonly onceStopped: (
    run: (...args: ReadonlyArray<string>) => Effect.Effect<{ readonly code: unknown; readonly stderr: string }>
  ) => Effect.Effect<unknown>
}

const embedded: ByHand = {
  env: {},
  moveToEnd: SqlClient.SqlClient.use(
    (sql) => sql`
      UPDATE broker_offsets AS o SET next_offset = p.next_offset FROM broker_partitions AS p
      WHERE o.consumer_group = 'billing' AND (p.topic, p.partition) = (o.topic, o.partition)`
  ),
  whileItRuns: SqlClient.SqlClient.use(
    (sql) =>
      sql`UPDATE broker_offsets SET next_offset = 0, generation = generation + 1 WHERE consumer_group = 'billing'`
  ),
  onceStopped: () => Effect.void
}

const kafka = (servers: string): ByHand => {
  const { env } = Targets.kafka(servers)
  const prefix = env["KAFKA_PREFIX"]!
  return {
    env,
    moveToEnd: Effect.gen(function* () {
      const client = new Kafka({ brokers: servers.split(","), logLevel: logLevel.NOTHING })
      const ends = yield* topicEnds(client, `${prefix}orders`)
      const partitions = ends.map(({ end, partition }) => ({ partition, offset: String(end) }))
      const admin = client.admin()
      yield* Effect.promise(async () => {
        await admin.connect()
        await admin.setOffsets({ groupId: `${prefix}billing`, topic: `${prefix}orders`, partitions })
        await admin.disconnect()
      })
    }),
    whileItRuns: Effect.void,
    onceStopped: (run) =>
      Effect.map(run("roll-forward", "--reason", "billing was moved past its events"), ({ code, stderr }) =>
        assert.strictEqual(code, 0, stderr)
      )
  }
}

const skipped = (name: string, { env, moveToEnd, onceStopped, whileItRuns }: ByHand) =>
  it.live(
    `${name}: events that billing was moved past are named, and booked once after it was set back`,
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const environment = yield* environmentWith(env)
        const run = (command: string, ...args: ReadonlyArray<string>) =>
          commandOf(command, Effect.succeed(environment))(...args)
        const placed = (url: string) => Effect.map(send(`${url}/orders`, { body: newOrder }), ({ json }) => json.id)
        const paid = Effect.fnUntraced(function* (url: string) {
          const id: string = yield* placed(url)
          const headers = { "idempotency-key": randomUUID() }
          const { status } = yield* send(`${url}/orders/${id}/pay`, { body: { paymentMethod: "pm_ok" }, headers })
          assert.strictEqual(status, 200)
          return id
        })
        const count = (statement: string) =>
          Effect.map(
            sql.unsafe<{ readonly count: number }>(`SELECT count(*)::int4 AS count FROM ${statement}`),
            ([row]) => row!.count
          )
        const none = (what: string, statement: string) =>
          eventually(
            what,
            Effect.map(count(statement), (rows) => rows === 0)
          )
        const unread = (consumers: ReadonlyArray<string>) =>
          `event_log AS e, unnest(ARRAY['${consumers.join("','")}']) AS consumer
           WHERE NOT EXISTS (SELECT FROM processed_events AS m WHERE m.event_id = e.event_id AND m.consumer_name = consumer)`
        const others = ["analytics", "inventory", "receipts"]
        const published = none("all events to be published", "outbox_events")

        yield* Effect.scoped(
          Effect.gen(function* () {
            const { url } = yield* ServiceProcess.start({ env: environment })
            yield* paid(url!)
            yield* published
            yield* none("all events to be applied", unread(["billing", ...others]))
          })
        )
        const order = yield* Effect.scoped(
          Effect.gen(function* () {
            const { url } = yield* ServiceProcess.start({ roles: "http,dispatcher,workers", env: environment })
            const id = yield* paid(url!)
            yield* published
            return id
          })
        )
        yield* moveToEnd
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { url } = yield* ServiceProcess.start({ env: environment })
            yield* none("the others to apply all", unread(others))
            const quiet = JSON.parse((yield* run("reconcile", "--json")).stdout)
            assert.deepStrictEqual(quiet.items, [], "no later event of the partition tells it yet")
            const later = `event_log AS e JOIN processed_events AS m ON m.event_id = e.event_id AND m.consumer_name = 'billing'
              JOIN event_log AS past ON past.aggregate_id = '${order}' AND past.broker_partition = e.broker_partition
              WHERE past.broker_offset < e.broker_offset`
            yield* eventually(
              "billing to apply a later event of the partition",
              Effect.gen(function* () {
                yield* placed(url!)
                return (yield* count(later)) > 0
              })
            )
            const { code, stdout } = yield* run("reconcile", "--json")
            assert.strictEqual(code, 1, stdout)
            const named = (
              JSON.parse(stdout).items as ReadonlyArray<Record<"expected" | "orderId" | "rule", string>>
            ).map(({ expected, orderId, rule }) => [rule, orderId, expected.split(",")[0]])
            assert.sameDeepMembers(named, [
              ["event-skipped", order, "OrderPlaced applied by billing"],
              ["event-skipped", order, "OrderPaid applied by billing"]
            ])
            yield* whileItRuns
          })
        )
        yield* onceStopped(run)
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* ServiceProcess.start({ env: environment })
            yield* none("billing to apply what it was moved past", unread(["billing", ...others]))
          })
        )
        assert.strictEqual(yield* count(`billing_ledger WHERE order_id = '${order}'`), 1)
        assert.strictEqual(yield* count("billing_ledger"), 2)
        const clean = yield* run("reconcile")
        assert.strictEqual(clean.code, 0, clean.stdout)
      }).pipe(Effect.scoped, Effect.provide(Directory.layer), Effect.provide(TestDatabase.layerPool)),
    240_000
  )

skipped("with the embedded broker", embedded)
describe.skipIf(brokers === null)("with a real Kafka", () => skipped("with Kafka", kafka(brokers ?? "none:9092")))
