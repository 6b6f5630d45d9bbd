/** An operator's decisions about mail: sent again, delivered, or given up, by a real worker's handler and a real mail server. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { MailDeliveries } from "../../../src/application/mail/MailDeliveries.ts"
import { EmailAddress } from "../../../src/application/mail/MailTransport.ts"
import * as SmtpTransport from "../../../src/application/mail/SmtpTransport.ts"
import { type Resolution, UnsettledMail } from "../../../src/application/mail/UnsettledMail.ts"
import { email, emailType } from "../../../src/application/tasks/Email.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import { TaskClaim } from "../../../src/tasks/TaskClaim.ts"
import { TaskFinish } from "../../../src/tasks/TaskFinish.ts"
import { TaskLeases } from "../../../src/tasks/TaskLeases.ts"
import { Tasks } from "../../../src/tasks/Tasks.ts"
import { TaskId } from "../../../src/tasks/TaskType.ts"
import { TaskWakeup } from "../../../src/tasks/TaskWakeup.ts"
import { TaskWorkers } from "../../../src/tasks/TaskWorkers.ts"
import { eventually } from "../../support/Counters.ts"
import * as MailServer from "../../support/MailServer.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"

const services = Layer.mergeAll(UnsettledMail.layer, MailDeliveries.layer).pipe(
  Layer.provideMerge(Tasks.layer),
  Layer.provideMerge(TaskWakeup.layer),
  Layer.provideMerge(TestProcess.platform),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const operator = { actor: "ann", reason: "asked the receiver" }
const retry = (id: TaskId) => UnsettledMail.use((mail) => mail.retry(id, operator))
const resolve = (id: TaskId, as: Resolution) => UnsettledMail.use((mail) => mail.resolve(id, as, operator))
const list = (filter: Parameters<UnsettledMail["Service"]["list"]>[0] = {}, limit = 50) =>
  UnsettledMail.use((mail) => mail.list(filter, limit))
const reasonOf = <A, E>(effect: Effect.Effect<A, E, UnsettledMail>) => Effect.map(Effect.flip(effect), String)

/** A refund's notice whose delivery and task are in these states. */
const mailIn = Effect.fnUntraced(function* (status: string, taskState: string) {
  const sql = yield* SqlClient.SqlClient
  const to = EmailAddress.make("ada@customers.example")
  const { taskId } = yield* Tasks.use((tasks) =>
    Transaction.run(tasks.enqueue(emailType, { kind: "refund-notice", to, subject: "A mail", text: "Hello\n" }))
  )
  yield* MailDeliveries.use((deliveries) =>
    deliveries.begin({ taskId, kind: "refund-notice", to, subject: "A mail" }, "hold")
  )
  yield* sql`
    UPDATE mail_deliveries SET status = ${status}, uncertain_sends = CASE WHEN ${status} = 'uncertain' THEN 1 ELSE 0 END
    WHERE task_id = ${taskId}::uuid`
  yield* sql`
    UPDATE outbox_tasks
    SET state = ${taskState}, attempts = 1, execute_at = clock_now() + interval '1 hour',
        finished_at = CASE WHEN ${taskState} IN ('dead', 'cancelled', 'completed') THEN clock_now() END,
        lease_until = CASE WHEN ${taskState} = 'processing' THEN clock_now() + interval '1 hour' END
    WHERE task_id = ${taskId}::uuid`
  return taskId
})

const stateOf = Effect.fnUntraced(function* (id: TaskId) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly status: string; readonly state: string; readonly audit: ReadonlyArray<string> }>`
    SELECT m.status, t.state,
           (SELECT coalesce(json_agg(concat_ws(' ', subject, action, actor, reason) ORDER BY audit_id), '[]') FROM operator_audit
            WHERE subject_id = ${id} AND subject = 'mail') AS audit
    FROM mail_deliveries AS m JOIN outbox_tasks AS t USING (task_id) WHERE task_id = ${id}::uuid`
  return [row!.status, row!.state, row!.audit]
})

/** The workers of a service, which send to `server`. */
const worked = <A, E, R>(server: { readonly port: number }, effect: Effect.Effect<A, E, R>) =>
  Effect.provide(
    effect,
    TaskWorkers.layer([email]).pipe(
      Layer.provide(SmtpTransport.layer(Redacted.make(`smtp://127.0.0.1:${server.port}`))),
      Layer.provide(Layer.mergeAll(TaskClaim.layer, TaskLeases.layer, TaskFinish.layer))
    ),
    { local: true }
  )

layer(services, { excludeTestServices: true })("unsettled mail", (it) => {
  it.effect(
    "a mail of unknown outcome is sent again, once, with the same Message-ID, and with a word that it may be a copy",
    () =>
      Effect.gen(function* () {
        const server = yield* MailServer.make()
        const held = yield* mailIn("uncertain", "dead")
        const died = yield* mailIn("sending", "dead")
        const refused = yield* mailIn("refused", "dead")
        assert.deepInclude(yield* retry(held), { status: "uncertain", changed: true, mayBeCopy: true })
        // A second click does nothing.
        assert.deepInclude(yield* retry(held), { changed: false })
        assert.deepInclude(yield* retry(died), { status: "uncertain", changed: true, mayBeCopy: true })
        assert.deepInclude(yield* retry(refused), { status: "refused", changed: true, mayBeCopy: false })
        yield* worked(
          server,
          eventually(
            "the mails to be sent",
            Effect.map(Effect.all([held, died, refused].map(stateOf)), (states) =>
              states.every(([status, state]) => status === "sent" && state === "completed")
            )
          )
        )
        assert.sameMembers(
          server.taken.map(({ source }) => MailServer.header(source, "Message-ID")),
          [held, died, refused].map((id) => `<${id}@paid-once.example>`)
        )
        assert.deepStrictEqual((yield* stateOf(held))[2], ["mail retry ann asked the receiver"])
        assert.match(yield* reasonOf(retry(held)), /was delivered/)
      }).pipe(Effect.scoped)
  )

  it.effect("a mail of unknown outcome that was delivered is never sent again, once it is said", () =>
    Effect.gen(function* () {
      const server = yield* MailServer.make()
      const held = yield* mailIn("uncertain", "dead")
      const again = yield* mailIn("uncertain", "failed")
      for (const id of [held, again]) {
        assert.deepInclude(yield* resolve(id, "delivered"), { status: "sent", changed: true })
        assert.deepInclude(yield* resolve(id, "delivered"), { status: "sent", changed: false })
        assert.deepStrictEqual(yield* stateOf(id), ["sent", "completed", ["mail resolve ann asked the receiver"]])
        assert.match(yield* reasonOf(resolve(id, "given-up")), /was delivered/)
      }
      const next = yield* mailIn("uncertain", "dead")
      yield* retry(next)
      yield* worked(
        server,
        eventually(
          "another mail",
          Effect.sync(() => server.taken.length > 0)
        )
      )
      assert.strictEqual(server.taken.length, 1)
    }).pipe(Effect.scoped)
  )

  it.effect("only a mail of unknown outcome can be called delivered, and one that is being sent is left alone", () =>
    Effect.gen(function* () {
      for (const status of ["failed", "refused"]) {
        assert.match(yield* reasonOf(resolve(yield* mailIn(status, "dead"), "delivered")), /its outcome is known/)
      }
      const busy = yield* mailIn("sending", "processing")
      assert.match(yield* reasonOf(resolve(busy, "delivered")), /is being sent now/)
      assert.match(yield* reasonOf(retry(busy)), /is being sent now/)
      assert.deepStrictEqual(yield* stateOf(busy), ["sending", "processing", []])
      const unknown = TaskId.make("0192a000-0000-7000-8000-000000000000")
      assert.match(yield* reasonOf(retry(unknown)), /there is no mail/)
    })
  )

  it.effect("a mail that is given up is not sent, not listed, and can be sent after all", () =>
    Effect.gen(function* () {
      const id = yield* mailIn("failed", "failed")
      assert.deepInclude(yield* resolve(id, "given-up"), { status: "given-up", changed: true })
      assert.deepInclude(yield* resolve(id, "given-up"), { changed: false })
      assert.deepStrictEqual(yield* stateOf(id), ["failed", "cancelled", ["mail resolve ann asked the receiver"]])
      assert.notInclude(
        (yield* list()).items.map((mail) => mail.id),
        id
      )
      assert.include(
        (yield* list({ status: "given-up" })).items.map((mail) => mail.id),
        id
      )
      assert.deepInclude(yield* retry(id), { changed: true })
      assert.include(
        (yield* list()).items.map((mail) => mail.id),
        id
      )
    })
  )
})

layer(services, { excludeTestServices: true })("lists of mail", (it) => {
  it.effect("unsettled mails are listed by state and time, newest first, page by page", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const uncertain = yield* mailIn("uncertain", "dead")
      const failed = yield* mailIn("failed", "failed")
      const sending = yield* mailIn("sending", "processing")
      const sent = yield* mailIn("uncertain", "dead")
      yield* resolve(sent, "delivered")
      const idsOf = (filter: Parameters<typeof list>[0]) =>
        Effect.map(list(filter), ({ items }) => items.map(({ id }) => id))
      assert.deepStrictEqual(yield* idsOf({}), [failed, uncertain])
      assert.deepStrictEqual(yield* idsOf({ status: "dead" }), [uncertain])
      assert.deepStrictEqual(yield* idsOf({ status: "sending" }), [sending])
      assert.deepStrictEqual(yield* idsOf({ status: "sent" }), [sent])
      const first = yield* list({}, 1)
      assert.strictEqual(first.nextCursor, failed)
      assert.deepInclude(first.items[0], {
        status: "retrying",
        taskState: "retrying",
        recipient: "ada@customers.example"
      })
      assert.isNotNull(first.items[0]!.nextSendAt)
      assert.deepStrictEqual(yield* idsOf({ cursor: failed }), [uncertain])
      yield* sql`UPDATE mail_deliveries SET updated_at = clock_now() - interval '2 hours' WHERE task_id = ${uncertain}::uuid`
      assert.deepStrictEqual(yield* idsOf({ sinceSeconds: 3_600 }), [failed])
    })
  )
})
