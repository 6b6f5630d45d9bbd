import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { receipts } from "../../../src/application/subscribers/Receipts.ts"
import { Tasks } from "../../../src/tasks/Tasks.ts"
import { TaskWakeup } from "../../../src/tasks/TaskWakeup.ts"
import * as Subscribed from "../../support/Subscribed.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"

const services = Subscribed.inbox.pipe(
  Layer.provideMerge(Tasks.layer),
  Layer.provideMerge(TaskWakeup.layer),
  Layer.provideMerge(TestProcess.platform),
  Layer.provideMerge(TestDatabase.layer)
)

/** The mails that were enqueued for this order. */
const mailsOf = Effect.fnUntraced(function* (orderId: string) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly kind: string; readonly to: string; readonly text: string }>`
    SELECT payload ->> 'kind' AS kind, payload ->> 'to' AS to, payload ->> 'text' AS text FROM outbox_tasks
    WHERE task_type = 'email' AND payload ->> 'subject' LIKE ${`%${orderId}`} ORDER BY seq`
  return rows
})

layer(services, { excludeTestServices: true })("receipts", (it) => {
  it.effect(
    "a paid order asks for a receipt, a refunded one for a notice, and no mail is sent from the transaction",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const order = Subscribed.order({ currency: "JPY" })
        yield* Subscribed.apply(receipts, order.placed(), order.declined(), order.paid(), order.refunded())
        const mails = yield* mailsOf(order.id)
        assert.deepStrictEqual(
          mails.map(({ kind, to }) => `${kind} ${to}`),
          ["receipt ada@customers.example", "refund-notice ada@customers.example"]
        )
        assert.include(mails[0]!.text, "1250 JPY")
        assert.deepStrictEqual(yield* sql`SELECT 1 AS one FROM mail_deliveries`, [])
      })
  )

  it.effect("a duplicate event enqueues no second mail, even after the inbox's retention", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const order = Subscribed.order()
      const events = [order.placed(), order.paid()]
      yield* Subscribed.apply(receipts, ...events)
      yield* Subscribed.apply(receipts, ...events)
      yield* sql`DELETE FROM processed_events`
      yield* sql`DELETE FROM consumer_cursors`
      yield* Subscribed.apply(receipts, ...events)
      assert.strictEqual((yield* mailsOf(order.id)).length, 1)
    })
  )

  it.effect("a customer's id can't carry syntax to a mail server", () =>
    Effect.gen(function* () {
      const order = Subscribed.order({ customerId: "ada\r\nBcc: eve@evil.example" })
      yield* Subscribed.apply(receipts, order.placed(), order.paid())
      assert.match((yield* mailsOf(order.id))[0]!.to, /^id_[0-9a-f]{40}@customers\.example$/)
    })
  )
})
