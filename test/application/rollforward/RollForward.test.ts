/** What a restored database gets from its topic, event by event, and what it is not given. The whole story over Kafka: test/e2e/Restore.test.ts. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as BehindTopic from "../../../src/application/doctor/BehindTopic.ts"
import * as RollForward from "../../../src/application/rollforward/RollForward.ts"
import * as EmbeddedTopicReader from "../../../src/brokers/embedded/EmbeddedTopicReader.ts"
import * as Envelope from "../../../src/brokers/Envelope.ts"
import { inTopic } from "../../support/InTopic.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

const consumers = ["billing", "receipts"]
const operator = { actor: "ada", reason: "restored" }
const hour = 3_600_000

const idOf = (millis: number, n: number) => {
  const time = Math.floor(millis).toString(16).padStart(12, "0")
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-${n.toString(16).padStart(12, "0")}`
}
let made = 0

/** An event of an order, as its outbox has sent it. */
const eventOf = (order: string, version: number, eventType: string, data: object, millis = Date.now()) =>
  ({
    eventId: idOf(millis, ++made),
    topic: "orders",
    eventType,
    schemaVersion: 1,
    aggregateType: "Order",
    aggregateId: order,
    aggregateVersion: version,
    occurredAt: new Date(millis).toISOString(),
    traceId: "0".repeat(32),
    spanId: "0".repeat(16),
    data: JSON.stringify(data)
  }) satisfies Envelope.StoredEvent
type Event = ReturnType<typeof eventOf>

const total = { amountMinor: 2_599, currency: "EUR" }
const newOrder = () => idOf(Date.now(), 1_000_000 + ++made)
const placed = (order: string, millis?: number) =>
  eventOf(
    order,
    1,
    "OrderPlaced",
    { customerId: "c", lines: [{ sku: "book", quantity: 1, unitAmountMinor: 2_599 }], total },
    millis
  )
const paymentOf = (order: string) => order.replace(/^./, "1")
const paid = (order: string, version = 2, millis?: number) =>
  eventOf(order, version, "OrderPaid", { customerId: "c", paymentId: paymentOf(order), amount: total }, millis)
const refunded = (order: string, version = 3) =>
  eventOf(order, version, "OrderRefunded", { customerId: "c", paymentId: paymentOf(order), amount: total })

/** These consumers have applied the order up to this version, with marks for these events. */
const applied = (order: string, version: number, events: ReadonlyArray<Event>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version)
      SELECT name, ${order}, 'Order', ${version}::int4 FROM unnest(${consumers}::text[]) AS name`
    yield* sql`
      INSERT INTO processed_events (consumer_name, event_id, processed_at)
      SELECT name, id, clock_now() FROM unnest(${consumers}::text[]) AS name, unnest(${events.map(({ eventId }) => eventId)}::uuid[]) AS id`
  })

const run = (operator: RollForward.Options["operator"]) =>
  RollForward.run({ consumers, operator, tell: () => Effect.void })

/** A dry run tells what the run after it does. */
const rolled = Effect.gen(function* () {
  const dry = yield* run("dry run")
  const result = yield* run(operator)
  assert.deepStrictEqual(dry, result)
  return result
})

const problems = Effect.map(BehindTopic.check(consumers).run, (outcome) =>
  outcome._tag === "Told" ? outcome.findings.map(({ problem }) => problem) : [outcome.why]
)

const orderRow = (id: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{
        readonly status: string
        readonly version: number
      }>`SELECT status, version FROM orders WHERE id = ${id}::uuid`,
      ([row]) => row && { ...row }
    )
  )
const cursorsOf = (id: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ readonly version: number }>`
        SELECT version FROM consumer_cursors WHERE aggregate_id = ${id} ORDER BY consumer_name`,
      (rows) => rows.map(({ version }) => version)
    )
  )

const nothing = { applied: 0, collided: 0, collisions: [], forgotten: 0, gapped: 0, gaps: [] }
const world = Layer.provideMerge(EmbeddedTopicReader.layer, Layer.fresh(TestDatabase.layerPool))

it.live(
  "events of many orders are written together, each order's in their order, and a copy of one is written once",
  () =>
    Effect.gen(function* () {
      const orders = Array.from({ length: 400 }, newOrder)
      const [first] = orders
      // Of a day that the backup has no partition for.
      const old = Date.now() - 120 * hour
      const events = orders.flatMap((order) => [placed(order, old), paid(order, 2, old)])
      yield* inTopic([...events.slice(0, 2), ...events, refunded(first!)])
      const result = yield* rolled
      assert.deepStrictEqual(result, { ...nothing, read: 803, applied: 801 })
      assert.deepStrictEqual(yield* orderRow(first!), { status: "refunded", version: 3 })
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(
        (yield* sql`
        SELECT (SELECT count(*) FROM orders WHERE status = 'paid' AND version = 2)::int4 AS orders,
               (SELECT count(*) FROM order_lines WHERE sku = 'book' AND position = 0)::int4 AS lines,
               (SELECT count(*) FROM payments WHERE captured_minor = 2599)::int4 AS payments,
               (SELECT count(*) FROM payments WHERE refunded_minor = 2599 AND status = 'refunded')::int4 AS refunds,
               (SELECT count(*) FROM event_log WHERE broker_partition = 0)::int4 AS archived,
               (SELECT count(*) FROM event_log_default)::int4 AS strays`).map((row) => ({ ...row })),
        [{ orders: 399, lines: 400, payments: 400, refunds: 1, archived: 801, strays: 0 }]
      )
      assert.deepStrictEqual(yield* problems, [])
      assert.deepStrictEqual(yield* rolled, { ...nothing, read: 803 })
      const audited = yield* sql<{ readonly status: string; readonly applied: number | null }>`
        SELECT after ->> 'status' AS status, (after ->> 'applied')::int4 AS applied FROM operator_audit
        WHERE action = 'roll forward' ORDER BY audit_id`
      assert.deepStrictEqual(
        audited.map(({ applied, status }) => [status, applied]),
        [
          ["begun", null],
          ["ended", 801],
          ["begun", null],
          ["ended", 0]
        ]
      )
    }).pipe(Effect.provide(world))
)

it.live("an order of which the topic has lost an event is named once, and consumers wait for nothing", () =>
  Effect.gen(function* () {
    // Of one the topic has lost the beginning, of the other an event behind the backup.
    const [unseen, seen] = [newOrder(), newOrder()]
    const first = placed(seen)
    yield* inTopic([first])
    assert.deepInclude(yield* rolled, { applied: 1 })
    yield* applied(seen, 1, [first])
    yield* inTopic([paid(unseen), refunded(unseen), refunded(seen)])
    assert.lengthOf(yield* problems, 1)
    const result = yield* rolled
    assert.deepStrictEqual(result, { ...nothing, read: 4, gapped: 2, gaps: [unseen, seen] })
    assert.isUndefined(yield* orderRow(unseen))
    assert.deepStrictEqual(yield* orderRow(seen), { status: "pending", version: 3 })
    assert.deepStrictEqual(
      [yield* cursorsOf(unseen), yield* cursorsOf(seen)],
      [
        [3, 3],
        [3, 3]
      ]
    )
    assert.deepStrictEqual(yield* problems, [])
    assert.deepStrictEqual(yield* rolled, { ...nothing, read: 4 })
    const sql = yield* SqlClient.SqlClient
    assert.deepStrictEqual(
      (yield* sql`
        SELECT consumer_name AS consumer, after_version AS after, until_version AS until FROM consumer_gaps WHERE aggregate_id = ${seen} ORDER BY 1`).map(
        (row) => ({ ...row })
      ),
      consumers.map((consumer) => ({ consumer, after: 1, until: 3 }))
    )
    assert.deepStrictEqual(
      (yield* sql`
        SELECT actor, reason, after ->> 'why' AS why FROM operator_audit WHERE action = 'leave events out' AND subject_id = ${seen}`).map(
        (row) => ({ ...row })
      ),
      [{ ...operator, why: "gap" }]
    )
  }).pipe(Effect.provide(world))
)

it.live("an event that can't be read, and those behind it, are left out, and all other orders are rolled forward", () =>
  Effect.gen(function* () {
    const [foreign, whole] = [newOrder(), newOrder()]
    const unreadable = eventOf(foreign, 2, "OrderPaid", {
      customerId: "c",
      paymentId: "of another company",
      amount: total
    })
    yield* inTopic([placed(foreign), unreadable, refunded(foreign), placed(whole), paid(whole)])
    assert.deepStrictEqual(yield* rolled, { ...nothing, read: 5, applied: 3, gapped: 1, gaps: [foreign] })
    assert.deepStrictEqual(yield* orderRow(foreign), { status: "pending", version: 3 })
    assert.deepStrictEqual(yield* orderRow(whole), { status: "paid", version: 2 })
    assert.deepStrictEqual(yield* problems, [])
    assert.deepStrictEqual(yield* rolled, { ...nothing, read: 5 })
  }).pipe(Effect.provide(world))
)

it.live(
  "a version that was used for another event is seen by the consumers' marks where the archive has it no more",
  () =>
    Effect.gen(function* () {
      const order = newOrder()
      const [first, theirs, ours] = [placed(order), paid(order), paid(order)]
      yield* inTopic([first])
      yield* rolled
      yield* inTopic([theirs, refunded(order), ours])
      const sql = yield* SqlClient.SqlClient
      // The service went on: paid here, too.
      yield* sql`UPDATE orders SET status = 'paid', version = 2`
      yield* applied(order, 2, [first, ours])
      yield* sql`DELETE FROM event_log`
      assert.lengthOf(yield* problems, 2)
      assert.match((yield* problems)[1]!, /^1 order has used a version for another event .* the first /)
      assert.deepStrictEqual(yield* rolled, { ...nothing, read: 4, collided: 1, collisions: [order] })
      assert.deepStrictEqual(yield* orderRow(order), { status: "paid", version: 3 })
      assert.deepStrictEqual(yield* cursorsOf(order), [3, 3])
      assert.deepStrictEqual(yield* problems, [])
      assert.deepStrictEqual(yield* rolled, { ...nothing, read: 4 })
    }).pipe(Effect.provide(world))
)

it.live("where the marks are past their retention, too, it is said that nothing tells", () =>
  Effect.gen(function* () {
    const order = newOrder()
    const old = Date.now() - 48 * hour
    yield* inTopic([placed(order, old), paid(order, 2, old)])
    const sql = yield* SqlClient.SqlClient
    yield* rolled
    yield* applied(order, 2, [])
    yield* sql`DELETE FROM event_log`
    assert.deepStrictEqual(yield* run("dry run"), { ...nothing, read: 2, collided: 1, collisions: [order] })
    yield* sql`INSERT INTO retention (table_name, forgotten_before) VALUES ('processed_events', clock_now() - interval '1 day')`
    assert.deepStrictEqual(yield* rolled, { ...nothing, read: 2, forgotten: 2 })
    const outcome = yield* BehindTopic.check(consumers).run
    assert.deepInclude(outcome, {
      told: "the database knows the events of 2 records; of 2 events nothing tells any more whether they are its own"
    })
  }).pipe(Effect.provide(world))
)
