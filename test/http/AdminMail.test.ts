/** Mail through /admin: what waits, why it was not sent, and the retry of many. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { MailDeliveries } from "../../src/application/mail/MailDeliveries.ts"
import { EmailAddress } from "../../src/application/mail/MailTransport.ts"
import { UnsettledMail } from "../../src/application/mail/UnsettledMail.ts"
import { emailType } from "../../src/application/tasks/Email.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import type { TaskId } from "../../src/tasks/TaskType.ts"
import { ask, audited, service } from "./Admin.ts"

const reason = "the server is back"
const mailTo = (name: string) => ({
  kind: "refund-notice" as const,
  to: EmailAddress.make(`${name}@customers.example`),
  subject: "A refund"
})

/** A mail that is asked for, and not begun. `about` is the id of the event that asks. */
const asked = Effect.fnUntraced(function* (name: string, about?: string) {
  const { taskId } = yield* Tasks.use((tasks) =>
    Transaction.run(
      tasks.enqueue(
        emailType,
        { ...mailTo(name), text: "hush\n" },
        about === undefined ? {} : { idempotencyKey: about }
      )
    )
  )
  return taskId
})

/** A dead mail whose last send ended so. */
const dead = Effect.fnUntraced(function* (
  name: string,
  status: "uncertain" | "refused",
  error: string,
  about?: string
) {
  const sql = yield* SqlClient.SqlClient
  const taskId = yield* asked(name, about)
  yield* Effect.provide(
    MailDeliveries.use((mail) =>
      Effect.andThen(mail.begin({ taskId, ...mailTo(name) }, "hold"), mail.record({ taskId, number: 1 }, status, error))
    ),
    MailDeliveries.layer
  )
  yield* sql`UPDATE outbox_tasks SET state = 'dead', finished_at = clock_now() WHERE task_id = ${taskId}::uuid`
  return taskId
})

const idsOf = (query: string) =>
  Effect.map(ask(`/mail?${query}`), ({ json }) => json.items.map(({ id }: { readonly id: TaskId }) => id))

layer(service, { excludeTestServices: true })((it) => {
  it.effect("dead mail is grouped by cause, and sent again all at once, after a preview", () =>
    Effect.gen(function* () {
      const cause = "mailbox … is busy"
      const busy = [
        yield* dead("ada", "uncertain", "mailbox 1 is busy"),
        yield* dead("bob", "uncertain", "mailbox 22 is busy")
      ]
      const refused = yield* dead("ada", "refused", "no such user")
      const { json: causes } = yield* ask("/mail/causes")
      assert.deepInclude(causes.items[0], { status: "uncertain", taskState: "dead", cause, count: 2 })
      assert.deepInclude(causes.items[1], { status: "refused", cause: "no such user", count: 1 })
      assert.deepStrictEqual(yield* idsOf(`cause=${encodeURIComponent(cause)}`), busy.toReversed())

      const filter = { cause, status: "uncertain" }
      const preview = yield* ask("/mail/retry", { filter, preview: true })
      assert.deepInclude(preview.json, { preview: true, matching: 2, groups: [{ cause, count: 2 }] })
      assert.deepStrictEqual(yield* idsOf("status=dead"), [refused, ...busy.toReversed()])
      const done = { preview: false, retried: 2, skipped: 0, mayBeCopies: 2 }
      assert.deepStrictEqual((yield* ask("/mail/retry", { filter, reason })).json, done)
      assert.deepStrictEqual((yield* ask("/mail/retry", { filter, reason })).json, {
        ...done,
        retried: 0,
        mayBeCopies: 0
      })
      assert.deepStrictEqual(yield* idsOf("status=dead"), [refused])
      assert.include(yield* audited(busy[0]!), `retry by admin: ${reason}`)

      const wrong = yield* ask("/mail/retry", { filter: { status: "lost" }, preview: true })
      assert.strictEqual(wrong.status, 400)
      assert.include(JSON.stringify(wrong.json), "must be one of dead, uncertain, refused, failed, sending")
      assert.strictEqual((yield* ask("/mail/retry", { filter: {} })).status, 400)
    })
  )

  it.effect("mail is found by its order, and by its customer's id or address", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const [event, order] = ["01890a5d-ac96-774b-bcce-b302099a8051", "01890a5d-ac96-774b-bcce-b302099a8052"]
      yield* sql`
        INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
                               trace_id, span_id, data, broker_partition, broker_offset, published_at)
        VALUES (${event}::uuid, 'orders', 'OrderRefunded', 1, 'Order', ${order}, 3, clock_now(), ${"a".repeat(32)}, ${"b".repeat(16)}, '{}',
                0, 0, clock_now())`
      const about = yield* dead("cora", "refused", "no such user", event)
      const other = yield* dead("cora", "refused", "no such user")
      assert.deepStrictEqual(yield* idsOf(`order=${order}`), [about])
      assert.deepStrictEqual(yield* idsOf("customer=cora"), [other, about])
      assert.deepStrictEqual(yield* idsOf("customer=cora%40customers.example&status=refused"), [other, about])
      assert.deepStrictEqual(yield* idsOf("customer=cor"), [])
      const { json } = yield* ask("/mail/retry", { filter: { order }, preview: true })
      assert.deepInclude(json, { matching: 1, examples: [about] })
    })
  )

  it.effect("mail that no worker has begun is listed and counted as waiting", () =>
    Effect.gen(function* () {
      const { waiting: before } = yield* UnsettledMail.use(({ counts }) => counts)
      const id = yield* asked("dan")
      const { json } = yield* ask("/mail?status=waiting&customer=dan")
      assert.deepInclude(json.items[0], {
        id,
        status: "waiting",
        taskState: "pending",
        kind: "refund-notice",
        recipient: "dan@customers.example",
        subject: "A refund",
        sends: 0
      })
      assert.deepStrictEqual(yield* idsOf("customer=dan"), [id])
      assert.strictEqual((yield* UnsettledMail.use(({ counts }) => counts)).waiting, before + 1)
    })
  )
})
