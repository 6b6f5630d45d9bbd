/** Tasks, orders, payments, mail and pauses through /admin. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { MailDeliveries } from "../../src/application/mail/MailDeliveries.ts"
import { EmailAddress } from "../../src/application/mail/MailTransport.ts"
import { emailType } from "../../src/application/tasks/Email.ts"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { ask, audited, hostile, pagesOf, service } from "./Admin.ts"
import { newOrder, send } from "./Service.ts"

const reason = "the server is back"
const unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
const to = EmailAddress.make("ada@customers.example")

/** A mail's task that is dead for this reason. */
const deadTask = Effect.fnUntraced(function* (error: string) {
  const sql = yield* SqlClient.SqlClient
  const { taskId } = yield* Tasks.use((tasks) =>
    Transaction.run(tasks.enqueue(emailType, { kind: "refund-notice", to, subject: "A mail", text: "hush\n" }))
  )
  yield* sql`
    UPDATE outbox_tasks SET state = 'dead', attempts = 3, finished_at = clock_now(), last_error = ${error} WHERE task_id = ${taskId}::uuid`
  return taskId
})

/** A mail of unknown outcome, whose task is dead. */
const uncertainMail = Effect.fnUntraced(function* () {
  const sql = yield* SqlClient.SqlClient
  const taskId = yield* deadTask("the server hung up")
  yield* Effect.provide(
    MailDeliveries.use((mail) => mail.begin({ taskId, kind: "refund-notice", to, subject: hostile }, "hold")),
    MailDeliveries.layer
  )
  yield* sql`UPDATE mail_deliveries SET status = 'uncertain', uncertain_sends = 1 WHERE task_id = ${taskId}::uuid`
  return taskId
})

/** A captured payment that a person has to look after. */
const manualPayment = Effect.fnUntraced(function* () {
  const sql = yield* SqlClient.SqlClient
  const { url } = yield* BoundAddress
  const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
  yield* send(`${url}/orders/${order.id}/pay`, {
    body: { paymentMethod: "pm_ok" },
    headers: { "idempotency-key": order.id }
  })
  const [row] = yield* sql`
    UPDATE payments SET status = 'manual' WHERE order_id = ${order.id}::uuid RETURNING id::text AS id`
  return { orderId: String(order.id), paymentId: String(row?.["id"]) }
})

/** Of equal clicks at once one changes something. */
const clickAtOnce = Effect.fnUntraced(function* (path: string, body: object) {
  const clicks = yield* Effect.all(
    Array.from({ length: 5 }, () => ask(path, body)),
    { concurrency: 5 }
  )
  assert.deepStrictEqual(
    clicks.map(({ status }) => status),
    clicks.map(() => 200),
    path
  )
  assert.strictEqual(clicks.filter(({ json }) => json.changed === true).length, 1, path)
  const again = yield* ask(path, body)
  assert.isFalse(again.json.changed)
  return again.json
})

layer(service, { excludeTestServices: true })((it) => {
  it.effect("tasks are listed in pages, counted and grouped by cause, without their payloads", () =>
    Effect.gen(function* () {
      const ids = []
      for (let number = 0; number < 12; number++) ids.push(yield* deadTask(`mailbox ${number} is full`))
      const { items, pages } = yield* pagesOf("/tasks?state=dead&type=email&limit=5")
      assert.strictEqual(pages, 3)
      assert.deepStrictEqual(
        items.map(({ taskId }) => taskId),
        ids.toReversed()
      )
      assert.notInclude(JSON.stringify(items), "hush")
      assert.deepInclude((yield* ask("/tasks/counts")).json.items[0], { type: "email", state: "dead", count: 12 })
      const { json } = yield* ask("/tasks/causes")
      assert.deepInclude(json.items[0], { type: "email", state: "dead", cause: "mailbox … is full", count: 12 })
      const { json: one } = yield* ask(`/tasks/${ids[0]}`)
      assert.deepInclude(one, { taskId: ids[0], state: "dead", audit: [] })
      const { json: none } = yield* ask("/tasks?state=completed")
      assert.deepStrictEqual(none, { items: [], nextCursor: null })
    })
  )

  it.effect(
    "a dead task runs anew and is cancelled, once however often it is asked; many at once, after a preview",
    () =>
      Effect.gen(function* () {
        const id = yield* deadTask("mailbox 1 is closed")
        assert.deepInclude(yield* clickAtOnce(`/tasks/${id}/retry`, { reason }), { state: "pending" })
        assert.deepInclude(yield* clickAtOnce(`/tasks/${id}/cancel`, { reason }), { state: "cancelled" })
        assert.deepStrictEqual(yield* audited(id), [`cancel by admin: ${reason}`, `retry by admin: ${reason}`])
        const cause = "the server … refuses"
        for (let number = 0; number < 12; number++) yield* deadTask(`the server ${number} refuses`)
        const filter = { type: "email", cause }
        const preview = yield* ask("/tasks/retry", { filter, preview: true })
        assert.deepInclude(preview.json, {
          preview: true,
          matching: 12,
          groups: [{ cause, count: 12 }]
        })
        const listed = yield* ask(`/tasks?state=dead&cause=${encodeURIComponent(cause)}`)
        assert.strictEqual(listed.json.items.length, 12)
        const done = { preview: false, retried: 12, skipped: 0 }
        assert.deepStrictEqual((yield* ask("/tasks/retry", { filter, reason })).json, done)
        assert.deepStrictEqual((yield* ask("/tasks/retry", { filter, reason })).json, { ...done, retried: 0 })
      })
  )

  it.effect("a completed task can't be cancelled, and unknown names and ids are refused", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const id = yield* deadTask("x")
      yield* sql`UPDATE outbox_tasks SET state = 'completed' WHERE task_id = ${id}::uuid`
      const refused = yield* ask(`/tasks/${id}/cancel`, { reason })
      assert.strictEqual(refused.status, 409)
      assert.include(refused.json.detail, "is completed")
      const named = yield* ask("/tasks?type=emial&state=nope")
      assert.strictEqual(named.status, 400)
      assert.deepStrictEqual((yield* ask("/tasks?type=emial")).json.errors, [
        { in: "query", pointer: "/type", message: "must be one of email, note" }
      ])
      assert.strictEqual((yield* ask("/tasks/causes?type=emial")).status, 400)
      assert.strictEqual((yield* ask("/tasks/retry", { filter: { type: "emial" }, reason })).status, 400)
      for (const path of [`/tasks/${unknown}/retry`, `/tasks/${unknown}/cancel`]) {
        assert.strictEqual((yield* ask(path, { reason })).status, 404, path)
      }
      assert.strictEqual((yield* ask(`/tasks/${unknown}`)).status, 404)
    })
  )

  it.effect("a payment that waits for a person is shown, compared with the gateway and settled, once", () =>
    Effect.gen(function* () {
      const { orderId, paymentId } = yield* manualPayment()
      const { json: list } = yield* ask("/payments?status=manual")
      assert.deepStrictEqual(
        list.items.map(({ id }: { readonly id: string }) => id),
        [paymentId]
      )
      const { json: shown } = yield* ask(`/payments/${paymentId}`)
      assert.strictEqual(shown.order.id, orderId)
      const { json: checked } = yield* ask(`/payments/${paymentId}/check`, undefined, { method: "POST" })
      assert.deepInclude(checked.charge, { says: "captured" })
      const body = { reason: "the gateway's books have it" }
      const refused = yield* ask(`/payments/${paymentId}/settle`, { ...body, as: "declined" })
      assert.strictEqual(refused.status, 409)
      const settled = yield* clickAtOnce(`/payments/${paymentId}/settle`, { ...body, as: checked.mayBecome[0] })
      assert.deepInclude(settled.payment, { id: paymentId, status: checked.mayBecome[0] })
      assert.deepStrictEqual(yield* audited(paymentId), [`settle by admin: ${body.reason}`])
      assert.strictEqual((yield* ask(`/payments/${unknown}/settle`, body)).status, 404)
      assert.strictEqual((yield* ask(`/payments/${paymentId}/settle`, { ...body, as: "lost" })).status, 400)
      assert.strictEqual((yield* ask("/payments?status=lost")).status, 400)
    })
  )

  it.effect("an order is refunded or cancelled for a reason, once however often it is asked", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { url } = yield* BoundAddress
      const { orderId, paymentId } = yield* manualPayment()
      const refund = `/orders/${orderId}/refund`
      assert.include((yield* ask(refund, { reason })).json.detail, "waits for a person")
      yield* sql`UPDATE payments SET status = 'captured' WHERE id = ${paymentId}::uuid`
      assert.strictEqual((yield* ask(refund, {})).status, 400)
      assert.deepInclude((yield* clickAtOnce(refund, { reason })).order, { id: orderId, status: "refunding" })
      const { json: entries } = yield* ask(`/audit?subject=order&subjectId=${orderId}`)
      assert.lengthOf(entries.items, 1)
      assert.deepInclude(entries.items[0], {
        action: "refund",
        actor: "admin",
        reason,
        before: { status: "paid" },
        after: { status: "refunding", paymentId }
      })
      assert.strictEqual((yield* ask(`/orders/${orderId}/cancel`, { reason })).status, 409)

      const { json: pending } = yield* send(`${url}/orders`, { body: newOrder })
      assert.strictEqual((yield* ask(`/orders/${pending.id}/refund`, { reason })).status, 409)
      const { order } = yield* clickAtOnce(`/orders/${pending.id}/cancel`, { reason })
      assert.deepInclude(order, { status: "cancelled", version: 2 })
      assert.deepStrictEqual(yield* audited(pending.id), [`cancel by admin: ${reason}`])
      for (const path of [`/orders/${unknown}/refund`, `/orders/${unknown}/cancel`]) {
        assert.strictEqual((yield* ask(path, { reason })).status, 404, path)
      }
    })
  )

  it.effect("a mail of unknown outcome is sent again, or called delivered or given up, once", () =>
    Effect.gen(function* () {
      const [again, delivered, givenUp] = [yield* uncertainMail(), yield* uncertainMail(), yield* uncertainMail()]
      const { json: list } = yield* ask("/mail?status=uncertain")
      assert.deepStrictEqual(
        list.items.map(({ id, subject }: Record<string, unknown>) => [id, subject]),
        [givenUp, delivered, again].map((id) => [id, hostile])
      )
      assert.deepInclude(yield* clickAtOnce(`/mail/${again}/retry`, { reason }), { mayBeCopy: true })
      yield* clickAtOnce(`/mail/${delivered}/resolve`, { reason, outcome: "delivered" })
      yield* clickAtOnce(`/mail/${givenUp}/resolve`, { reason, outcome: "given-up" })
      const refused = yield* ask(`/mail/${delivered}/retry`, { reason })
      assert.strictEqual(refused.status, 409)
      assert.include(refused.json.detail, "was delivered")
      assert.strictEqual((yield* ask(`/mail/${unknown}/retry`, { reason })).status, 404)
      assert.strictEqual((yield* ask(`/mail/${givenUp}/resolve`, { reason, outcome: "eaten" })).status, 400)
    })
  )

  it.effect("a topic, a consumer and a type of task are paused and resumed, once; an unknown one is not known", () =>
    Effect.gen(function* () {
      for (const path of ["/topics/orders", "/consumers/analytics", "/task-types/email"]) {
        assert.deepInclude(yield* clickAtOnce(`${path}/pause`, { reason: "a drill" }), { status: "paused" })
      }
      const { json: paused } = yield* ask("/pauses")
      assert.deepStrictEqual(
        paused.items.map(({ actor, kind, name }: Record<string, string>) => [kind, name, actor]),
        [
          ["consumer", "analytics", "admin"],
          ["task type", "email", "admin"],
          ["topic", "orders", "admin"]
        ]
      )
      for (const path of ["/topics/orders", "/consumers/analytics", "/task-types/email"]) {
        assert.deepInclude(yield* clickAtOnce(`${path}/resume`, { reason: "it is over" }), { status: "running" })
      }
      assert.deepStrictEqual((yield* ask("/pauses")).json, { items: [] })
      assert.deepStrictEqual(yield* audited("analytics"), ["resume by admin: it is over", "pause by admin: a drill"])
      for (const [path, names] of [
        ["/topics/order", "orders"],
        ["/consumers/nobody", "analytics"],
        ["/task-types/emial", "email, note"]
      ] as const) {
        const { json, status } = yield* ask(`${path}/pause`, { reason })
        assert.strictEqual(status, 404)
        assert.include(json.detail, `they are ${names}`)
      }
    })
  )
})
