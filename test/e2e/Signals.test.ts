/** Signals at awkward moments: before anything runs, while a task runs, and while a request hangs. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import * as Path from "node:path"
import { pathToFileURL } from "node:url"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const start = Effect.fnUntraced(function* (env: Readonly<Record<string, string>>) {
  const { url } = yield* TestDatabase
  return yield* ServiceProcess.start({
    env: {
      DATABASE_URL: Redacted.value(url),
      DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
      PORT: "0",
      LOG_LEVEL: "Error",
      // Short, so that other processes soon take over from a lost one.
      TASK_LEASE_MILLIS: "3000",
      TASK_HEARTBEAT_MILLIS: "500",
      GATEWAY_TIMEOUT_MILLIS: "1000",
      PAYMENT_RECOVER_DELAYS: "500ms,500ms,1s,1s,1s,1s,1s",
      ...env
    }
  })
})

const place = (url: string) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}/orders`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        customerId: "ada",
        currency: "EUR",
        lines: [{ sku: "book", quantity: 1, unitAmountMinor: 100 }]
      })
    })
    return ((await response.json()) as { readonly id: string }).id
  })

const pay = (url: string, id: string) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}/orders/${id}/pay`, {
      method: "POST",
      headers: { "content-type": "application/json", "idempotency-key": "k" },
      body: JSON.stringify({ paymentMethod: "pm_ok" })
    }).catch(() => undefined)
    return response?.status
  })

/** The task of the receipt's mail, and the mail itself. */
const mail = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly state: string; readonly attempts: number; readonly sends: number | null }>`
    SELECT state, attempts, sends FROM outbox_tasks LEFT JOIN mail_deliveries USING (task_id) WHERE task_type = 'email'`
  return row
})

/** Prints a line when Node is about to read the program's file: no code of the service has run yet. */
const announcing = `
import { registerHooks } from "node:module"
registerHooks({
  load(url, context, next) {
    if (url.endsWith("/src/cli/PaidOnce.ts")) process.stdout.write("reading\\n")
    return next(url, context)
  }
})`

/** A command of the service, which nothing waits for yet. */
const command = (words: ReadonlyArray<string>, env: Readonly<Record<string, string>>, hook?: string) => {
  const child = spawn(
    process.execPath,
    [
      ...(hook === undefined ? [] : ["--import", pathToFileURL(hook).href]),
      Path.join(root, "src/paid-once.js"),
      ...words
    ],
    { env: { PATH: process.env["PATH"], ...plantedEnv(), ...env }, stdio: ["ignore", "pipe", "pipe"] }
  )
  let stderr = ""
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()))
  const ended = new Promise<{ readonly status: number | string | null; readonly stderr: string }>((resolve) =>
    child.on("close", (code, killer) => resolve({ status: code ?? killer, stderr }))
  )
  return { child, ended: Effect.promise(() => ended) }
}

const unfinished = (name: string, signal: string) =>
  `paid-once: ${name} was interrupted by ${signal}: it has not finished, run it again`

it.live("a signal while the program is read is a clean stop of a service", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const hook = Path.join(directory, "announcing.mjs")
    writeFileSync(hook, announcing)
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      const { child, ended } = command(["serve"], { DATA_DIRECTORY: directory, PORT: "0" }, hook)
      child.stdout.once("data", () => child.kill(signal))
      assert.strictEqual((yield* ended).status, 0)
    }
  }).pipe(Effect.scoped)
)

/** As `announcing`, and Node never gets the file: whatever the process does then, it does before the program runs. */
const withholding = `
import { register } from "node:module"
register("data:text/javascript," + encodeURIComponent(${JSON.stringify(`
import { writeSync } from "node:fs"
export const load = (url, context, next) => {
  if (!url.endsWith("/src/cli/PaidOnce.ts")) return next(url, context)
  writeSync(1, "reading")
  return new Promise(() => {})
}`)}))
setInterval(() => {}, 60_000)`

it.live("a signal before anything has begun is a clean stop of a service, and the end of an unfinished command", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const hook = Path.join(directory, "withholding.mjs")
    writeFileSync(hook, withholding)
    for (const [words, signal, status, line] of [
      [["serve"], "SIGTERM", 0, ""],
      [["--log-level", "error", "serve"], "SIGINT", 0, ""],
      [["gateway"], "SIGTERM", 0, ""],
      [["demo"], "SIGINT", 0, ""],
      [["reconcile"], "SIGTERM", 143, unfinished("reconcile", "SIGTERM")],
      [["--log-level", "error", "doctor"], "SIGINT", 130, unfinished("doctor", "SIGINT")]
    ] as const) {
      const { child, ended } = command(words, { DATA_DIRECTORY: directory }, hook)
      child.stdout.once("data", () => child.kill(signal))
      const { status: found, stderr } = yield* ended
      assert.deepStrictEqual([found, stderr.trim()], [status, line], words.join(" "))
    }
  }).pipe(Effect.scoped)
)

it.live("an interrupted command exits with 130 or 143, and says that it has not finished", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const sql = yield* SqlClient.SqlClient
    const env = { DATABASE_URL: Redacted.value(url), DATA_DIRECTORY: yield* TestDatabase.dataDirectory }
    const waiting = sql`SELECT 1 FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
    for (const [signal, status] of [
      ["SIGTERM", 143],
      ["SIGINT", 130]
    ] as const) {
      const { status: found, stderr } = yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql`LOCK payments, outbox_tasks`
          const { child, ended } = command(["status"], env)
          yield* eventually(
            "the command to wait for a table",
            Effect.map(waiting, (rows) => rows.length > 0)
          )
          child.kill(signal)
          return yield* ended
        })
      )
      assert.strictEqual(found, status, stderr)
      assert.strictEqual(stderr.trim().split("\n").at(-1), unfinished("status", signal))
    }
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("a task that does not end within the grace is given back, not counted, and run by the next process", () =>
  Effect.gen(function* () {
    // No lease may expire in this test, even if the machine stands still.
    const patient = { TASK_LEASE_MILLIS: "60000", TASK_HEARTBEAT_MILLIS: "10000", GATEWAY_TIMEOUT_MILLIS: "30000" }
    const first = yield* start({ ...patient, FAULTS: "task.during-run=delay:1:600000", SHUTDOWN_GRACE_MILLIS: "300" })
    assert.strictEqual(yield* pay(first.url!, yield* place(first.url!)), 200)
    yield* eventually(
      "the mail's task to run",
      Effect.map(mail, (task) => task?.state === "processing")
    )
    yield* first.signal("SIGTERM")
    assert.strictEqual(yield* first.exit, 0, first.output())
    assert.deepStrictEqual(yield* mail, { state: "pending", attempts: 0, sends: null })
    yield* start(patient)
    yield* eventually(
      "the mail to be sent",
      Effect.map(mail, (task) => task?.state === "completed")
    )
    assert.deepStrictEqual(yield* mail, { state: "completed", attempts: 1, sends: 1 })
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("the hard limit ends a stop that hangs, with 1, and the next start finishes the interrupted work", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const first = yield* start({
      FAULTS: "pay.after-intent=delay:1:600000",
      SHUTDOWN_GRACE_MILLIS: "300",
      SHUTDOWN_HARD_MILLIS: "2000"
    })
    const id = yield* place(first.url!)
    const paying = yield* Effect.forkChild(pay(first.url!, id))
    yield* eventually(
      "the payment to hang",
      Effect.map(sql`SELECT 1 FROM payments WHERE status = 'charging'`, (rows) => rows.length === 1)
    )
    yield* first.signal("SIGTERM")
    assert.strictEqual(yield* first.exit, 1)
    paying.interruptUnsafe()
    assert.include(first.output(), "SHUTDOWN_HARD_MILLIS")
    yield* start({})
    yield* eventually(
      "the order to be paid, and its receipt sent",
      Effect.map(mail, (task) => task?.state === "completed")
    )
    assert.deepStrictEqual(
      yield* sql`SELECT orders.status, captured_minor::int4 AS captured FROM orders JOIN payments ON order_id = orders.id`,
      [{ status: "paid", captured: 100 }]
    )
    assert.deepStrictEqual(yield* sql`SELECT count(*)::int4 AS charges FROM sandbox_gateway.charges`, [{ charges: 1 }])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)
