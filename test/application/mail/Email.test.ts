import { assert, layer } from "@effect/vitest"
import { Cause, Effect, Exit, Layer, Option, Redacted, Ref } from "effect"
import { SqlClient } from "effect/sql"
import { MailDeliveries } from "../../../src/application/mail/MailDeliveries.ts"
import { EmailAddress, MailSettings, MailTransport } from "../../../src/application/mail/MailTransport.ts"
import * as SmtpTransport from "../../../src/application/mail/SmtpTransport.ts"
import { email, emailType } from "../../../src/application/tasks/Email.ts"
import * as FaultInjection from "../../../src/platform/FaultInjection.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import { Tasks } from "../../../src/tasks/Tasks.ts"
import type { TaskId } from "../../../src/tasks/TaskType.ts"
import { TaskWakeup } from "../../../src/tasks/TaskWakeup.ts"
import * as MailServer from "../../support/MailServer.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"

const services = Layer.mergeAll(MailDeliveries.layer, Tasks.layer).pipe(
  Layer.provideMerge(TaskWakeup.layer),
  Layer.provideMerge(TestProcess.platform),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(Layer.mergeAll(TestProcess.quiet, FaultInjection.layer()))
)

/** Longer than a mail takes on a busy machine. */
const patientMillis = 20_000

/** The timeout for a reply that never comes. It is waited for, and the server must have the mail by then. */
const impatientMillis = 2_000

/** An unused port: the server is down. */
const transport = (server: { readonly port: number }, sendTimeoutMillis: number) =>
  SmtpTransport.layer(Redacted.make(`smtp://127.0.0.1:${server.port}`)).pipe(
    Layer.provide(
      Layer.effect(
        MailSettings,
        Effect.map(MailSettings, (settings) => ({ ...settings, sendTimeoutMillis }))
      )
    )
  )

const enqueue = (kind: "receipt" | "refund-notice" = "receipt", idempotencyKey?: string) =>
  Effect.gen(function* () {
    const tasks = yield* Tasks
    const to = EmailAddress.make("ada@customers.example")
    const { taskId } = yield* Transaction.run(
      tasks.enqueue(
        emailType,
        { kind, to, subject: "A mail", text: "Hello\n" },
        idempotencyKey === undefined ? {} : { idempotencyKey }
      )
    )
    return taskId
  })

/** One run of the task as a worker does it: the handler, then the finishing transaction. Returns the tag of its failure. */
const run = Effect.fnUntraced(function* (
  taskId: TaskId,
  server: { readonly port: number },
  sendTimeoutMillis = patientMillis
) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{
    readonly payload: unknown
    readonly idempotencyKey: string | null
  }>`SELECT payload, idempotency_key AS "idempotencyKey" FROM outbox_tasks WHERE task_id = ${taskId}::uuid`
  const exit = yield* email
    .run(row!.payload, {
      taskId,
      attempt: 1,
      isLastAttempt: false,
      idempotencyKey: row!.idempotencyKey,
      enqueuedAt: "2026-03-01T12:00:00.000Z",
      traceId: undefined
    })
    .pipe(
      Effect.flatMap((finishing) => (finishing === undefined ? Effect.void : Transaction.run(finishing))),
      Effect.provide(transport(server, sendTimeoutMillis)),
      Effect.exit
    )
  return Exit.match(exit, {
    onSuccess: () => "completed",
    onFailure: (cause) => {
      const error = Option.getOrElse(Cause.findErrorOption(cause), () => ({ _tag: "died" }))
      return (error as { readonly _tag: string })._tag
    }
  })
})

const delivery = Effect.fnUntraced(function* (taskId: TaskId) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly status: string; readonly sends: number; readonly uncertain: number }>`
    SELECT status, sends, uncertain_sends AS uncertain FROM mail_deliveries WHERE task_id = ${taskId}::uuid`
  return row
})

const messageIds = (server: { readonly taken: ReadonlyArray<MailServer.Taken> }) =>
  server.taken.map(({ source }) => MailServer.header(source, "Message-ID"))

/** The process dies after the server has taken the mail, and before the send is recorded. */
const dieAfterSend = Effect.flatMap(FaultInjection.FaultControl, ({ set }) =>
  set("mail.after-send", { action: "fail", times: 1, delayMillis: 0 })
)

layer(services, { excludeTestServices: true })("email", (it) => {
  it.effect("a mail is sent once, and its task's id is its Message-ID", () =>
    Effect.gen(function* () {
      const server = yield* MailServer.make()
      const taskId = yield* enqueue()
      assert.strictEqual(yield* run(taskId, server), "completed")
      assert.deepStrictEqual(yield* delivery(taskId), { status: "sent", sends: 1, uncertain: 0 })
      assert.strictEqual(yield* run(taskId, server), "completed")
      assert.deepStrictEqual(messageIds(server), [`<${taskId}@paid-once.example>`])
    }).pipe(Effect.scoped)
  )

  it.effect("a task that was lost and asked for again sends its mail with the same Message-ID", () =>
    Effect.gen(function* () {
      const server = yield* MailServer.make()
      const sql = yield* SqlClient.SqlClient
      const first = yield* enqueue("receipt", "the-event")
      assert.strictEqual(yield* run(first, server), "completed")
      yield* sql`DELETE FROM outbox_tasks WHERE task_id = ${first}::uuid`
      assert.strictEqual(yield* run(yield* enqueue("receipt", "the-event"), server), "completed")
      assert.deepStrictEqual(messageIds(server), Array(2).fill("<the-event@paid-once.example>"))
    }).pipe(Effect.scoped)
  )

  it.effect("a send is stored as begun before its first byte leaves", () =>
    Effect.gen(function* () {
      const seen = yield* Ref.make<unknown>(undefined)
      const taskId = yield* enqueue()
      const look = Layer.effect(
        MailTransport,
        Effect.map(SqlClient.SqlClient, (sql) => ({
          send: () =>
            Effect.flatMap(
              Effect.orDie(
                sql<{ readonly status: string }>`SELECT status FROM mail_deliveries WHERE task_id = ${taskId}::uuid`
              ),
              ([row]) => Ref.set(seen, row?.status)
            )
        }))
      )
      yield* email
        .run(
          { kind: "receipt", to: "ada@customers.example", subject: "s", text: "t" },
          { taskId, idempotencyKey: null, attempt: 1, isLastAttempt: false, enqueuedAt: "", traceId: undefined }
        )
        .pipe(Effect.provide(look))
      assert.strictEqual(yield* Ref.get(seen), "sending")
      assert.deepInclude(yield* delivery(taskId), { status: "sending" })
    })
  )

  it.effect("a receipt whose worker dies after the send is sent again, with the same Message-ID", () =>
    Effect.gen(function* () {
      const server = yield* MailServer.make()
      const taskId = yield* enqueue()
      yield* dieAfterSend
      assert.strictEqual(yield* run(taskId, server), "died")
      assert.deepStrictEqual(yield* delivery(taskId), { status: "sending", sends: 1, uncertain: 0 })
      assert.strictEqual(yield* run(taskId, server), "completed")
      assert.deepStrictEqual(yield* delivery(taskId), { status: "sent", sends: 2, uncertain: 1 })
      assert.strictEqual(server.taken.length, 2)
      assert.strictEqual(new Set(messageIds(server)).size, 1)
    }).pipe(Effect.scoped)
  )

  it.effect(
    "a refund notice whose worker dies after the send is held as uncertain, and sent when an operator retries its task",
    () =>
      Effect.gen(function* () {
        const server = yield* MailServer.make()
        const taskId = yield* enqueue("refund-notice")
        yield* dieAfterSend
        assert.strictEqual(yield* run(taskId, server), "died")
        assert.strictEqual(yield* run(taskId, server), "TaskRefused")
        assert.deepStrictEqual(yield* delivery(taskId), { status: "uncertain", sends: 1, uncertain: 1 })
        assert.strictEqual(server.taken.length, 1)
        assert.strictEqual(yield* run(taskId, server), "completed")
        assert.deepStrictEqual(yield* delivery(taskId), { status: "sent", sends: 2, uncertain: 1 })
      }).pipe(Effect.scoped)
  )

  it.effect(
    "a server that hangs after the message makes the mail uncertain: a receipt is sent again, a notice is held",
    () =>
      Effect.gen(function* () {
        const server = yield* MailServer.make()
        server.behave({ message: "silence" })
        const [receipt, notice] = [yield* enqueue(), yield* enqueue("refund-notice")]
        assert.strictEqual(yield* run(receipt, server, impatientMillis), "MailOutcomeUnknown")
        assert.strictEqual(yield* run(notice, server, impatientMillis), "TaskRefused")
        for (const taskId of [receipt, notice]) {
          assert.deepStrictEqual(yield* delivery(taskId), { status: "uncertain", sends: 1, uncertain: 1 })
        }
        server.behave({})
        assert.strictEqual(yield* run(receipt, server), "completed")
        assert.deepStrictEqual(yield* delivery(receipt), { status: "sent", sends: 2, uncertain: 1 })
      }).pipe(Effect.scoped)
  )

  it.effect("a recipient refused for good ends the task; one refused for now, or a server that is down, does not", () =>
    Effect.gen(function* () {
      const server = yield* MailServer.make()
      const taskId = yield* enqueue("refund-notice")
      server.behave({ recipient: 450 })
      assert.strictEqual(yield* run(taskId, server), "MailUnavailable")
      assert.deepStrictEqual(yield* delivery(taskId), { status: "failed", sends: 1, uncertain: 0 })
      server.behave({ recipient: 550 })
      assert.strictEqual(yield* run(taskId, server), "TaskRefused")
      assert.deepStrictEqual(yield* delivery(taskId), { status: "refused", sends: 2, uncertain: 0 })
      yield* server.stop
      assert.strictEqual(yield* run(taskId, server), "MailUnavailable")
      assert.deepStrictEqual(yield* delivery(taskId), { status: "failed", sends: 3, uncertain: 0 })
      assert.strictEqual(server.taken.length, 0)
    }).pipe(Effect.scoped)
  )
})
