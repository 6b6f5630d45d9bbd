/** Signals at awkward moments: before anything runs, while a task runs, and while a request hangs. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import * as Path from "node:path"
import { pathToFileURL } from "node:url"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
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

it.live("a signal before anything has begun is a clean stop", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const hook = Path.join(directory, "announcing.mjs")
    writeFileSync(hook, announcing)
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      const status = yield* Effect.callback<number | string | null>((resume) => {
        const child = spawn(
          process.execPath,
          ["--import", pathToFileURL(hook).href, Path.join(root, "src/paid-once.ts"), "serve"],
          {
            env: { PATH: process.env["PATH"], DATA_DIRECTORY: directory, PORT: "0" },
            stdio: ["ignore", "pipe", "ignore"]
          }
        )
        child.stdout.once("data", () => child.kill(signal))
        child.on("close", (code, killer) => resume(Effect.succeed(code ?? killer)))
      })
      assert.strictEqual(status, 0)
    }
  }).pipe(Effect.scoped)
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
