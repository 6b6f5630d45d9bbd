/** On a database that was restored and not yet rolled forward nothing is repaired, and all differences can be listed. See docs/restore.md. */
import { PgClient } from "@effect/sql-pg"
import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as BehindTopic from "../../../src/application/doctor/BehindTopic.ts"
import { Reconciliation, ReconciliationSettings } from "../../../src/application/reconciliation/Reconciliation.ts"
import { TopicHistory } from "../../../src/application/reconciliation/TopicHistory.ts"
import { TopicUnavailable } from "../../../src/brokers/Broker.ts"
import * as EmbeddedTopicReader from "../../../src/brokers/embedded/EmbeddedTopicReader.ts"
import { TopicReader } from "../../../src/brokers/TopicReader.ts"
import { inTopic } from "../../support/InTopic.ts"
import * as Subscribed from "../../support/Subscribed.ts"
import { agreeing, brokenIn, chargeAtGateway, look, refundAtGateway, subscribers, test } from "./Books.ts"

const consumers = subscribers.map(({ name }) => name)

/** A repair of a reconciliation that goes by this topic. */
const repairBy = (reader: Layer.Layer<TopicReader>) =>
  Effect.gen(function* () {
    const history = TopicHistory.layerChecked(BehindTopic.check(consumers)).pipe(Layer.provide(reader))
    return yield* Reconciliation.use(({ run }) => run({ actor: "ada", repair: { reason: "the books differ" } })).pipe(
      Effect.provide(
        Layer.fresh(Reconciliation.layer).pipe(
          Layer.provide(Layer.merge(history, Layer.succeed(ReconciliationSettings, { graceMillis: 1 })))
        ),
        { local: true }
      )
    )
  })

/** The version after this one of the order, as the database that is lost has published it. */
const lost = (order: string, version: number) => ({
  eventId: Subscribed.newId(),
  topic: "orders",
  eventType: "OrderRefunded",
  schemaVersion: 1,
  aggregateType: "Order",
  aggregateId: order,
  aggregateVersion: version,
  occurredAt: new Date().toISOString(),
  traceId: "0".repeat(32),
  spanId: "0".repeat(16),
  data: JSON.stringify({
    customerId: "c",
    paymentId: Subscribed.newId(),
    amount: { amountMinor: 100, currency: "EUR" }
  })
})

test(
  "behind its topic a refund of the gateway is named and not recorded, nor while the broker does not tell; after that it is",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paid } = yield* agreeing
    yield* refundAtGateway(paid.paymentId, "re_1", 100)
    const refused = Effect.fnUntraced(function* (reader: Layer.Layer<TopicReader>, why: RegExp) {
      const report = yield* repairBy(reader)
      assert.deepStrictEqual(brokenIn(report), { "gateway-refund-unrecorded": 1 })
      assert.strictEqual(report.repaired, 0)
      assert.match(report.items[0]!.repair!.why!, why)
      assert.deepStrictEqual(yield* sql`SELECT FROM outbox_events`, [])
      assert.deepStrictEqual(yield* sql`SELECT status FROM orders WHERE id = ${paid.orderId}::uuid`, [
        { status: "paid" }
      ])
    })
    const embedded = EmbeddedTopicReader.layer.pipe(
      Layer.provide(Layer.succeed(PgClient.PgClient, yield* PgClient.PgClient))
    )
    // The first offset is one that the archive of this test has.
    yield* inTopic([lost(paid.orderId, 2), lost(paid.orderId, 3)])
    yield* refused(embedded, /does not have its topic's history: paid-once doctor .* docs\/restore\.md/)

    const away = Effect.fail(new TopicUnavailable({ topic: "orders", reason: "it is away" }))
    yield* refused(
      Layer.succeed(TopicReader, { bounds: () => away, read: () => away }),
      /nobody can tell now whether the database is behind its topic: .*it is away/
    )

    yield* sql`DELETE FROM broker_log`
    yield* sql`UPDATE broker_partitions SET next_offset = 0`
    assert.deepStrictEqual(brokenIn(yield* repairBy(embedded)), {})
    assert.lengthOf(yield* sql`SELECT FROM outbox_events`, 1)
  })
)

test(
  "a result lists as many differences of a rule as are asked for, and twenty are stored",
  Effect.gen(function* () {
    for (let n = 0; n < 25; n++) yield* chargeAtGateway(`lost-${n}`, 100)
    const { last, run } = yield* Reconciliation
    assert.lengthOf((yield* look).items, 20)
    const { differences, items } = yield* run({ actor: "ada", listed: 24 })
    assert.deepStrictEqual([differences, items.length], [25, 24])
    const all = yield* run({ actor: "ada", listed: 1_000 })
    assert.lengthOf(new Set(all.items.map(({ id }) => id)), 25)
    assert.lengthOf((yield* last)!.items, 20)
  })
)
