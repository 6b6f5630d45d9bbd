/** A subscriber of another author: it needs only this code, and a line in `src/main.ts`. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { decodeOrderEvent } from "../../../src/application/OrderEvents.ts"
import { Broker } from "../../../src/brokers/Broker.ts"
import { ordersTopic } from "../../../src/domain/Events.ts"
import * as Consumer from "../../../src/inbox/Consumer.ts"
import type { Subscriber } from "../../../src/inbox/Subscriber.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import { eventually } from "../../support/Counters.ts"
import * as Subscribed from "../../support/Subscribed.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"

/** A point for each euro, cent or yen that a customer has paid. */
const loyalty: Subscriber = {
  name: "loyalty",
  topic: ordersTopic,
  firstSight: "from-version-1",
  handle: Effect.fn("Loyalty.handle")(function* (envelope) {
    const { sql } = yield* Transaction
    const { _tag, data } = yield* decodeOrderEvent(envelope)
    if (_tag !== "OrderPaid") return
    yield* sql`
      INSERT INTO loyalty_points VALUES (${data.customerId}, ${data.amount.amountMinor}::int8)
      ON CONFLICT (customer_id) DO UPDATE SET points = loyalty_points.points + excluded.points`
  })
}

const services = Subscribed.inbox.pipe(
  Layer.provideMerge(TestProcess.broker),
  Layer.provideMerge(TestProcess.platform),
  Layer.provideMerge(TestDatabase.layer)
)

layer(services, { excludeTestServices: true })("a fifth subscriber", (it) => {
  it.effect("written by hand applies each event once, from the broker, whatever is delivered twice", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const broker = yield* Broker
      yield* sql`CREATE TABLE loyalty_points (customer_id text PRIMARY KEY, points bigint NOT NULL)`
      yield* Layer.build(Consumer.layer(loyalty))
      yield* broker.ensureTopic(ordersTopic, 8)
      const orders = [Subscribed.order(), Subscribed.order({ customerId: "bob" }), Subscribed.order()]
      const records = Subscribed.recordsOf(orders.flatMap((order) => [order.placed(), order.paid()]))
      for (let times = 0; times < 2; times++) {
        yield* broker.publish({ topic: ordersTopic, partition: 0, records })
      }
      const points = Effect.map(
        sql<{
          readonly line: string
        }>`SELECT customer_id || ' ' || points::text AS line FROM loyalty_points ORDER BY 1`,
        (rows) => rows.map(({ line }) => line)
      )
      yield* eventually(
        "all offsets to be committed",
        Effect.map(
          sql`SELECT 1 AS one FROM broker_offsets WHERE partition = 0 AND next_offset = 12`,
          (rows) => rows.length > 0
        )
      )
      assert.deepStrictEqual(yield* points, ["ada 2500", "bob 1250"])
    }).pipe(Effect.scoped)
  )
})
