/** `paid-once tasks …`, `consumers …` and `dispatcher …` as an operator runs them. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { emailType } from "../../src/application/tasks/Email.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { TaskReport } from "../../src/operations/reports/TaskReport.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { enqueue, enqueuer, rows, taskType } from "../tasks/Support.ts"

const environment = environmentWith({})
const run = commandOf("tasks", environment)

const world = TaskReport.layer.pipe(
  Layer.provideMerge(enqueuer),
  Layer.provideMerge(Directory.layer),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** Tasks that no worker of the service handles, so that they stay as they are. */
const foreign = taskType("foreign")

/** Clears the screen, begins another sequence, and turns the text around. */
const hostile = "too late\u001b[2J\u009b\u202e"

/** Writes how runs of this task have ended. */
const failed = (taskId: string, state: "failed" | "dead", error: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      UPDATE outbox_tasks
      SET state = ${state}, attempts = 1, last_error = ${error}, finished_at = CASE ${state} WHEN 'dead' THEN clock_now() END,
          history = jsonb_build_array(jsonb_build_object('attempt', 1, 'at', '2026-01-01T00:00:00.000Z', 'error', ${error}::text))
      WHERE task_id = ${taskId}::uuid`
  })

it.live("lists are pages, the newest first, by state, type and age; equal failures are one cause", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const report = yield* TaskReport
    const ids: Array<string> = []
    for (const number of [1, 2, 3, 4, 5]) ids.push((yield* enqueue(foreign, { number })).taskId)
    yield* failed(ids[0]!, "dead", "SMTP 550: mailbox 01890a5d-ac96-774b-bcce-b302099a8057 is full\nand more")
    yield* failed(ids[1]!, "dead", "SMTP 551: mailbox 01890a5d-ac96-774b-bcce-b302099a8058 is full")
    yield* failed(ids[2]!, "failed", "connect ECONNREFUSED 127.0.0.1:25")
    yield* sql`UPDATE outbox_tasks SET enqueued_at = clock_now() - interval '3 hours' WHERE task_id = ${ids[0]}::uuid`

    const idsOf = (...args: Parameters<typeof report.list>) =>
      Effect.map(report.list(...args), ({ items }) => items.map(({ taskId }) => ids.indexOf(taskId)))
    const all = ["pending", "processing", "retrying", "dead"] as const
    assert.deepStrictEqual(yield* idsOf(all, {}, { limit: 10 }), [4, 3, 2, 1, 0])
    assert.deepStrictEqual(yield* idsOf(all, {}, { limit: 2 }), [4, 3])
    const { nextCursor } = yield* report.list(all, {}, { limit: 2 })
    assert.deepStrictEqual(yield* idsOf(all, {}, { limit: 2, cursor: nextCursor! }), [2, 1])
    assert.isNull((yield* report.list(all, {}, { limit: 5 })).nextCursor)
    assert.deepStrictEqual(yield* idsOf(["dead"], {}, { limit: 10 }), [1, 0])
    assert.deepStrictEqual(yield* idsOf(["dead"], { sinceSeconds: 3_600 }, { limit: 10 }), [1])
    const words = Effect.map(report.list(["failed", "retrying"], {}, { limit: 10 }), ({ items }) =>
      items.map(({ state }) => state)
    )
    assert.deepStrictEqual(yield* words, ["retrying", "retrying"])
    assert.deepStrictEqual(yield* idsOf(all, { type: "email" }, { limit: 10 }), [])
    const counts = yield* report.counts
    assert.deepStrictEqual(
      counts.map(({ count, sinceSeconds, state, type }) => [type, state, count, sinceSeconds === null]),
      [
        ["foreign", "dead", 2, false],
        ["foreign", "pending", 2, true],
        ["foreign", "retrying", 1, false]
      ]
    )
    const causes = yield* report.causes({}, 10)
    assert.deepStrictEqual(
      causes.map(({ cause, count, state }) => `${count} ${state}: ${cause}`),
      ["2 dead: SMTP …: mailbox … is full", "1 retrying: connect ECONNREFUSED …"]
    )

    assert.deepStrictEqual(yield* report.retryAll({ sinceSeconds: 3_600 }, { actor: "ada", reason: "space" }), {
      retried: 1,
      skipped: 0
    })
    assert.deepStrictEqual(
      (yield* rows).map(({ state }) => state),
      ["dead", "pending", "failed", "pending", "pending"]
    )
    const operator = { actor: "ada", reason: "sent before the restore" }
    assert.strictEqual(yield* report.cancelAll({ type: "email" }, operator), 0)
    assert.strictEqual(yield* report.cancelAll({ type: "foreign" }, operator), 4)
    assert.deepStrictEqual(
      (yield* rows).map(({ state }) => state),
      ["dead", "cancelled", "cancelled", "cancelled", "cancelled"]
    )
  }).pipe(Effect.provide(world))
)

it.live(
  "a dead task: found, shown, run anew and cancelled; each decision is audited, and a wrong word is refused",
  () =>
    Effect.gen(function* () {
      const { taskId } = yield* enqueue(foreign, { number: 1 })
      yield* failed(taskId, "dead", "no\npaper")
      const listed = yield* run("list")
      assert.strictEqual(listed.code, 0, listed.stderr)
      assert.match(listed.stdout, new RegExp(`${taskId}\\s+dead\\s+foreign\\s+1\\s+no paper`))
      assert.include((yield* run("list", "--by-cause")).stdout, "no")
      const status = commandOf("status", environment)
      const needed = yield* status()
      assert.strictEqual(needed.code, 1)
      assert.match(
        needed.stdout,
        /task foreign +1 dead[^]*Needs a decision:\n {2}1 dead task, for \d+ s: paid-once tasks list --by-cause\n$/
      )

      for (const [args, message] of [
        [["list", "--type", "emial"], "there is no task type emial: they are email, report, payment.recover"],
        [["list", "--since", "soon"], '"soon". Expected a time like 90s, 30m, 2h or 1d'],
        [["pause", "emial", "--reason", "x"], "there is no task type emial"],
        [["retry", "--reason", "x"], "retry takes a task id, or else --all"]
      ] as const) {
        const refused = yield* run(...args)
        assert.strictEqual(refused.code, 2, args.join(" "))
        assert.include(refused.stderr, message)
      }

      assert.include((yield* run("retry", taskId, "--reason", "paper has come")).stdout, "due now")
      assert.include((yield* run("cancel", taskId, "--reason", hostile, "--by", "ada")).stdout, "is cancelled.")
      assert.include((yield* run("cancel", taskId, "--reason", "too late")).stdout, "is cancelled already.")
      assert.include((yield* run("cancel", "--type", "email", "--reason", "all")).stdout, "Cancelled 0 tasks.")
      for (const words of [[], [taskId, "--type", "email"], [taskId, "--since", "1h"], ["--since", "1h"]]) {
        const refused = yield* run("cancel", ...words, "--reason", "x")
        assert.strictEqual(refused.code, 2)
        assert.include(refused.stderr, "cancel takes a task id, or else --type, which --since narrows down")
      }
      const shown = (yield* run("show", taskId)).stdout
      for (const part of [
        "run 1: no paper",
        "retry by ",
        ": paper has come",
        "cancel by ada: too late\uFFFD[2J\uFFFD\uFFFD"
      ]) {
        assert.include(shown, part)
      }
      const auditCommand = commandOf("audit", environment)
      const decisions = yield* auditCommand("list", "--id", taskId, "--limit", "1", "--json")
      const { items, nextCursor } = JSON.parse(decisions.stdout)
      assert.deepInclude(items[0], {
        actor: "ada",
        action: "cancel",
        subject: "task",
        subjectId: taskId,
        reason: hostile
      })
      const rest = yield* auditCommand("list", "--id", taskId, "--cursor", nextCursor)
      assert.match(rest.stdout, new RegExp(`retry +task ${taskId} .* paper has come`))
      assert.notInclude(rest.stdout, "too late")
      assert.include((yield* auditCommand("list", "--actor", "nobody")).stdout, "None.")
      const asJson = (yield* run("show", taskId, "--json")).stdout
      for (const character of hostile.slice("too late".length).replaceAll(/[ -~]/g, "")) {
        assert.notInclude(asJson + shown, character)
      }
      const { audit } = JSON.parse(asJson) as { readonly audit: ReadonlyArray<{ readonly reason: string }> }
      assert.strictEqual(audit.at(-1)?.reason, hostile)
      const calm = yield* status("--json")
      assert.strictEqual(calm.code, 0)
      assert.deepInclude(JSON.parse(calm.stdout), { decisions: [], tasks: [], paused: [] })
      const unknown = yield* run("show", "01890a5d-ac96-774b-bcce-b302099a8057", "--json")
      assert.strictEqual(unknown.code, 1)
      assert.include(unknown.stderr, "there is no task")
    }).pipe(Effect.provide(world))
)

it.live("a pause by command holds in a service that starts later, is shown in its health, and ends by command", () =>
  Effect.gen(function* () {
    const consumers = commandOf("consumers", environment)
    const paused = yield* run("pause", emailType.name, "--reason", "the mail server moves")
    assert.include(paused.stdout, "The task type email is paused.")
    assert.include((yield* consumers("pause", "billing", "--reason", "audit", "--by", "ada")).stdout, "is paused.")
    assert.include(
      (yield* commandOf("dispatcher", environment)("pause", "orders", "--reason", "x")).stdout,
      "is paused."
    )
    assert.match((yield* consumers("list")).stdout, /billing .* since .* by ada: audit/)

    const service = yield* ServiceProcess.start({ env: yield* environment })
    const pauses = Effect.promise(async () => {
      const { parts, status } = (await (await fetch(`${service.url}/health/ready`)).json()) as {
        readonly status: string
        readonly parts: { readonly pauses: { readonly paused: ReadonlyArray<Record<string, string>> } }
      }
      return { status, names: parts.pauses.paused.map(({ kind, name }) => `${kind} ${name}`) }
    })
    assert.deepStrictEqual(yield* pauses, {
      status: "ready",
      names: ["consumer billing", "task type email", "topic orders"]
    })
    for (const resume of [
      run("resume", emailType.name, "--reason", "it has moved"),
      consumers("resume", "billing", "--reason", "done"),
      commandOf("dispatcher", environment)("resume", "orders", "--reason", "x")
    ]) {
      assert.strictEqual((yield* resume).code, 0)
    }
    yield* eventually(
      "the service to hear of it",
      Effect.map(pauses, ({ names }) => names.length === 0)
    )
  }).pipe(Effect.scoped, Effect.provide(world))
)
