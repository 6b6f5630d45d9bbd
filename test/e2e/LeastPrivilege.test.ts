/** A whole service under the service's role: the owner migrates, and is not seen again. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { execFile, spawn } from "node:child_process"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"
import { make, on } from "../support/TwoRoles.ts"

/** The fields that are read here. */
interface Answer {
  readonly id: string
  readonly status: string
  readonly taskId: string
  readonly state: string
}

/** Runs a command to its end. */
const run = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>>) =>
  Effect.callback<{ readonly code: unknown; readonly stdout: string; readonly stderr: string }>((resume) => {
    const child = execFile(
      process.execPath,
      [Path.join(root, "src/paid-once.js"), ...args],
      { env: { PATH: process.env["PATH"], ...env }, timeout: 100_000 },
      (error, stdout, stderr) => resume(Effect.succeed({ code: error === null ? 0 : error.code, stdout, stderr }))
    )
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

it.live(
  "a service whose role owns nothing does all of its work: orders, payments, refunds, reports, upkeep, commands",
  () =>
    Effect.gen(function* () {
      const two = yield* make
      const directory = yield* TestDatabase.dataDirectory
      const env = {
        DATABASE_URL: Redacted.value(two.serviceUrl),
        DATA_DIRECTORY: directory,
        PORT: "0",
        LOG_LEVEL: "Warn"
      }
      const migrated = yield* run(["migrate"], { ...env, DATABASE_OWNER_URL: Redacted.value(two.ownerUrl) })
      assert.strictEqual(migrated.code, 0, migrated.stderr)
      // A day that is past its retention. The first round of upkeep comes with the start.
      const past = yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`SELECT make_daily_partition('event_log', (clock_now() AT TIME ZONE 'UTC')::date - 9, 0)`
        const [row] = yield* sql<{ readonly past: string }>`
        SELECT 'event_log_' || to_char((clock_now() AT TIME ZONE 'UTC')::date - 9, 'YYYYMMDD') AS past`
        return row!.past
      }).pipe(on(two.ownerUrl))

      const service = yield* ServiceProcess.start({ env })
      const call = (path: string, body?: unknown) =>
        Effect.promise(async () => {
          const response = await fetch(`${service.url}${path}`, {
            method: body === undefined ? "GET" : "POST",
            headers: { "content-type": "application/json", "idempotency-key": path },
            ...(body === undefined ? {} : { body: JSON.stringify(body) })
          })
          const text = await response.text()
          assert.isBelow(response.status, 400, text)
          return JSON.parse(text) as Answer
        })
      const becomes = (path: string, isDone: (answer: Answer) => boolean) =>
        eventually(`${path} to be done`, Effect.map(call(path), isDone))

      const { id } = yield* call("/orders", {
        customerId: "ada",
        currency: "EUR",
        lines: [{ sku: "book", quantity: 2, unitAmountMinor: 1_250 }]
      })
      yield* call(`/orders/${id}/pay`, { paymentMethod: "pm_ok" })
      yield* becomes(`/orders/${id}`, ({ status }) => status === "paid")
      yield* call(`/orders/${id}/refund`, {})
      yield* becomes(`/orders/${id}`, ({ status }) => status === "refunded")
      yield* becomes(`/orders/${id}/timeline`, (timeline) => {
        const text = JSON.stringify(timeline)
        return text.includes("OrderRefunded") && !text.includes("queued") && !text.includes("pending")
      })
      const today = new Date().toISOString().slice(0, 10)
      const report = yield* call("/reports", { from: today, to: today })
      yield* becomes(`/reports/${report.taskId}`, ({ state }) => state === "completed")
      yield* eventually(
        "the past day to be dropped",
        SqlClient.SqlClient.use(
          (sql) => sql<{ readonly gone: boolean }>`SELECT to_regclass(${past}::text) IS NULL AS gone`
        ).pipe(
          on(two.serviceUrl),
          Effect.map(([row]) => row!.gone)
        )
      )

      yield* eventually(
        "both mails to be sent",
        SqlClient.SqlClient.use(
          (sql) =>
            sql<{ readonly sent: number }>`SELECT count(*)::int4 AS sent FROM mail_deliveries WHERE status = 'sent'`
        ).pipe(
          on(two.serviceUrl),
          Effect.map(([row]) => row!.sent === 2)
        )
      )
      for (const command of [
        ["customer", "erase", "--customer", "ada", "--reason", "request 7"],
        ["outbox", "status"],
        ["outbox", "list"],
        ["inbox", "list"],
        ["rebuild", "analytics", "--reason", "a test"],
        ["maintenance", "run", "--dry-run"],
        ["maintenance", "run"],
        ["migrate"]
      ]) {
        const done = yield* run(command, env)
        assert.strictEqual(done.code, 0, `${command.join(" ")}: ${done.stderr}`)
      }
      // Events of an order whose customer is erased: they are filled in under its lock.
      yield* SqlClient.SqlClient.use((sql) => sql`DELETE FROM event_log`).pipe(on(two.ownerUrl))
      const refilled = yield* run(["archive", "refill", "--since", "1d", "--reason", "a test"], env)
      assert.strictEqual(refilled.code, 0, refilled.stderr)
      assert.match(refilled.stdout, /^Filled 3 events into the archive/)
      assert.notMatch(service.output(), /permission denied|must be owner/)
    }).pipe(Effect.scoped)
)

it.live("the gateway alone has its books made by the owner, also in a shell with the service's GATEWAY_URL", () =>
  Effect.gen(function* () {
    const two = yield* make
    const answers = yield* Deferred.make<string>()
    let output = ""
    const collect = (chunk: Buffer) => {
      output += chunk.toString()
      const url = /answers at (http:\S+)/.exec(output)?.[1]
      if (url !== undefined) Deferred.doneUnsafe(answers, Effect.succeed(url))
    }
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        const child = spawn(process.execPath, [Path.join(root, "src/paid-once.js"), "gateway"], {
          env: {
            PATH: process.env["PATH"],
            ...plantedEnv(),
            DATABASE_URL: Redacted.value(two.serviceUrl),
            DATABASE_OWNER_URL: Redacted.value(two.ownerUrl),
            GATEWAY_URL: "http://127.0.0.1:1",
            GATEWAY_PORT: "0"
          }
        })
        child.stdout.on("data", collect)
        child.stderr.on("data", collect)
        // "close" of one that refuses ends the wait, too.
        child.on("close", () => Deferred.doneUnsafe(answers, Effect.succeed("none")))
        return child
      }),
      (child) => Effect.sync(() => void child.kill("SIGKILL"))
    )
    const url = yield* Deferred.await(answers)
    assert.notStrictEqual(url, "none", output)
    const { status } = yield* Effect.promise(() => fetch(`${url}/charges/${crypto.randomUUID()}`))
    assert.strictEqual(status, 404)
  }).pipe(Effect.scoped)
)
