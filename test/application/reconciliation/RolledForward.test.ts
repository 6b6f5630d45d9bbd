/**
 * A database was restored, the service ran on it, and then it was rolled forward: an order has two histories. The database's own is mended by
 * reconciliation, and what is named for a person is what consumers took from the other one. See docs/restore.md.
 */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as RollForward from "../../../src/application/rollforward/RollForward.ts"
import * as EmbeddedTopicReader from "../../../src/brokers/embedded/EmbeddedTopicReader.ts"
import type * as Envelope from "../../../src/brokers/Envelope.ts"
import type { OrderId } from "../../../src/domain/Ids.ts"
import { inTopic } from "../../support/InTopic.ts"
import * as Subscribed from "../../support/Subscribed.ts"
import { pay, place, recover, refund } from "../World.ts"
import { agreeing, brokenIn, deliver, look, publish, repair, subscribers, test } from "./Books.ts"

const consumers = subscribers.map(({ name }) => name)

/** Another event of the order's version 2, which the topic has from before the restore. */
const otherPaid = (order: OrderId): Envelope.Envelope => ({
  eventId: Subscribed.newId(),
  eventType: "OrderPaid",
  schemaVersion: 1,
  aggregateType: "Order",
  aggregateId: order,
  aggregateVersion: 2,
  occurredAt: new Date().toISOString(),
  traceId: "0".repeat(32),
  data: { customerId: "c", paymentId: Subscribed.newId(), amount: { amountMinor: 100, currency: "EUR" } }
})

const publishedElsewhere = (event: Envelope.Envelope) =>
  inTopic([{ ...event, topic: "orders", spanId: "0".repeat(16), data: JSON.stringify(event.data) }])

const revenue = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ readonly amount: number }>`SELECT sum(amount_minor)::int4 AS amount FROM revenue_daily`,
    ([row]) => row?.amount
  )
)

const rollForward = RollForward.run({
  consumers,
  operator: { actor: "ada", reason: "restored" },
  tell: () => Effect.void
}).pipe(Effect.provide(EmbeddedTopicReader.layer))

test(
  "events of the database that no consumer has read are mended, and a refund after that leaves revenue right",
  Effect.gen(function* () {
    yield* agreeing
    const before = (yield* revenue) ?? 0
    const order = yield* place
    yield* deliver
    yield* pay(order, order)
    yield* publish
    yield* publishedElsewhere(otherPaid(order))
    assert.deepInclude(yield* rollForward, { collided: 1, collisions: [order] })

    // Nothing is left to a person.
    assert.deepStrictEqual(brokenIn(yield* look), {
      "billing-entry-missing": 1,
      "mail-missing": 1,
      "mark-lost": 4,
      "revenue-differs": 1
    })
    yield* repair
    assert.deepStrictEqual(brokenIn(yield* repair), {})
    assert.strictEqual(yield* revenue, before + 100)

    yield* recover((yield* refund(order)).paymentId)
    yield* deliver
    assert.deepStrictEqual(brokenIn(yield* look), {})
    assert.strictEqual(yield* revenue, before)
  })
)

test(
  "what consumers took from the topic's history is left to a person, and no event of the database is in doubt",
  Effect.gen(function* () {
    yield* agreeing
    const order = yield* place
    yield* deliver
    yield* pay(order, order)
    const theirs = otherPaid(order)
    for (const subscriber of subscribers) yield* Subscribed.apply(subscriber, theirs)
    yield* publish
    yield* publishedElsewhere(theirs)
    assert.deepInclude(yield* rollForward, { collided: 1 })
    const named = yield* look
    assert.deepStrictEqual(brokenIn(named), {
      "billing-entry-differs": 1,
      "mail-differs": 1,
      "mark-lost": 4,
      "revenue-differs": 1
    })
    // No program mends an order that is in doubt.
    assert.strictEqual((yield* repair).repaired, 0)

    // The accountant takes their entry out, and somebody has written to the customer.
    const sql = yield* SqlClient.SqlClient
    yield* sql`DELETE FROM billing_ledger WHERE event_id = ${theirs.eventId}::uuid`
    const mail = named.items.find(({ rule }) => rule === "mail-differs")!.id
    yield* sql`DELETE FROM outbox_tasks WHERE task_id = ${mail}::uuid`
    yield* repair
    assert.deepStrictEqual(brokenIn(yield* repair), {})
  })
)

test(
  "an event that is still queued is mended once it is published",
  Effect.gen(function* () {
    yield* agreeing
    const order = yield* place
    yield* deliver
    yield* pay(order, order)
    yield* publishedElsewhere(otherPaid(order))
    assert.deepInclude(yield* rollForward, { collided: 1 })
    yield* deliver
    yield* repair
    assert.deepStrictEqual(brokenIn(yield* repair), {})
  })
)
