/** `paid-once mail …` as an operator runs it. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { MailDeliveries } from "../../src/application/mail/MailDeliveries.ts"
import { EmailAddress } from "../../src/application/mail/MailTransport.ts"
import { emailType } from "../../src/application/tasks/Email.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskWakeup } from "../../src/tasks/TaskWakeup.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const run = commandOf("mail", environmentWith({}))

const world = Layer.merge(Tasks.layer, MailDeliveries.layer).pipe(
  Layer.provideMerge(TaskWakeup.layer),
  Layer.provideMerge(TestProcess.platform),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(Layer.merge(Directory.layer, TestProcess.quiet))
)

/** A refund's notice that is held, for nobody knows whether it arrived. */
const held = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const mail = { kind: "refund-notice", to: EmailAddress.make("ada@customers.example"), subject: "A refund" } as const
  const { taskId } = yield* Tasks.use((tasks) =>
    Transaction.run(tasks.enqueue(emailType, { ...mail, text: "Hello\n" }))
  )
  const deliveries = yield* MailDeliveries
  const begun = yield* deliveries.begin({ taskId, ...mail }, "hold")
  assert.strictEqual(begun._tag, "Begun")
  yield* deliveries.record({ taskId, number: 1 }, "uncertain", "no answer in time")
  yield* sql`UPDATE outbox_tasks SET state = 'dead', finished_at = clock_now() WHERE task_id = ${taskId}::uuid`
  return taskId
})

/** A receipt that no worker has taken. */
const waiting = Effect.gen(function* () {
  const to = EmailAddress.make("bob@customers.example")
  const { taskId } = yield* Tasks.use((tasks) =>
    Transaction.run(tasks.enqueue(emailType, { kind: "receipt", to, subject: "A receipt", text: "Hello\n" }))
  )
  return taskId
})

it.live(
  "mails of unknown outcome, from the list to the decision",
  () =>
    Effect.gen(function* () {
      const [first, second] = [yield* held, yield* held]
      const list = yield* run("list")
      assert.strictEqual(list.code, 0, list.stderr)
      assert.match(list.stdout, new RegExp(`${first}  uncertain  dead .*ada@customers\\.example.*no answer in time`))
      const page = yield* run("list", "--limit", "1", "--since", "1h", "--json")
      assert.strictEqual((JSON.parse(page.stdout) as { readonly nextCursor: string }).nextCursor, second)

      for (const [args, words] of [
        [["retry", first], "--reason"],
        [["resolve", first, "--reason", "x"], "--as"],
        [["resolve", first, "--as", "lost", "--reason", "x"], "given-up"],
        [["list", "--status", "lost"], "uncertain"]
      ] as const) {
        const wrong = yield* run(...args)
        assert.strictEqual(wrong.code, 2, args.join(" "))
        assert.include(wrong.stdout + wrong.stderr, words)
      }

      const retried = yield* run("retry", first, "--reason", "she has none", "--json")
      assert.include(retried.stderr, "paid-once: an earlier send had no answer: its receiver may get a second copy")
      assert.deepStrictEqual(JSON.parse(retried.stdout), {
        id: first,
        status: "uncertain",
        changed: true,
        mayBeCopy: true
      })
      for (const words of ["is sent by your word", "is sent already"]) {
        const resolved = yield* run("resolve", second, "--as", "delivered", "--reason", "she has it")
        assert.strictEqual(resolved.code, 0, resolved.stderr)
        assert.include(resolved.stdout, words)
      }
      const late = yield* run("retry", second, "--reason", "once more")
      assert.strictEqual(late.code, 1)
      assert.strictEqual(late.stderr.trim().split("\n").at(-1), `paid-once: mail ${second} was delivered`)
    }).pipe(Effect.scoped, Effect.provide(world)),
  // A dozen commands run here, each in a process of its own.
  200_000
)

it.live(
  "dead mails are grouped by cause, and sent again all at once after a look at what that would do",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const [first, second, other] = [yield* held, yield* held, yield* held]
      const asked = yield* waiting
      yield* sql`UPDATE mail_deliveries SET status = 'refused', last_error = 'mailbox 7 is full' WHERE task_id = ${other}::uuid`
      assert.match((yield* run("list")).stdout, new RegExp(`${asked}  waiting  +pending .*bob@customers\\.example`))
      const grouped = (yield* run("list", "--by-cause", "--customer", "ada")).stdout
      assert.match(grouped, /2 +uncertain +dead .*no answer in time\n/)
      assert.match(grouped, /1 +refused +dead .*mailbox … is full/)
      const none = yield* run("list", "--customer", "eve@customers.example")
      assert.strictEqual(none.stdout, "None.\n")

      const filter = ["--status", "dead", "--cause", "no answer in time"]
      for (const [args, words] of [
        [["retry", ...filter], "--reason"],
        [["retry", first, "--all", "--reason", "x"], "a mail id, or else --all"],
        [["retry", first, "--dry-run"], "a mail id, or else --all"]
      ] as const) {
        const wrong = yield* run(...args)
        assert.strictEqual(wrong.code, 2, args.join(" "))
        assert.include(wrong.stderr, words)
      }
      const dry = yield* run("retry", ...filter, "--dry-run")
      assert.strictEqual(dry.code, 0, dry.stderr)
      assert.strictEqual(dry.stdout, "2 dead mails would be sent again:\n2  no answer in time\n")
      const done = yield* run("retry", ...filter, "--reason", "the server is back")
      assert.include(done.stderr, "of 2 mails an earlier send had no answer: their receivers may get a second copy")
      assert.strictEqual(done.stdout, "Sending 2 mails again.\n")
      const audited = yield* sql`
        SELECT subject_id AS id FROM operator_audit WHERE subject = 'mail' AND action = 'retry' AND reason = 'the server is back'`
      assert.sameMembers(
        audited.map(({ id }) => id),
        [first, second]
      )
      const all = yield* run("retry", "--all", "--reason", "and the rest", "--json")
      assert.deepStrictEqual(JSON.parse(all.stdout), { retried: 1, skipped: 0, mayBeCopies: 1 })
    }).pipe(Effect.scoped, Effect.provide(world)),
  // A dozen commands run here, each in a process of its own.
  200_000
)
