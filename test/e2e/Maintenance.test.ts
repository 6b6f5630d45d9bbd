/** `paid-once maintenance run`, as an operator or a cron job runs it. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { execFile } from "node:child_process"
import * as Path from "node:path"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { RetentionSettings } from "../../src/platform/Retention.ts"
import { plantedEnv } from "../mutants/planted.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const run = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>>) =>
  Effect.callback<{ readonly code: number | string; readonly stdout: string; readonly stderr: string }>((resume) => {
    const child = execFile(
      process.execPath,
      [Path.join(root, "src/paid-once.js"), ...args],
      { env: { PATH: process.env["PATH"], ...plantedEnv(), ...env }, timeout: 50_000 },
      (error, stdout, stderr) =>
        resume(Effect.succeed({ code: error === null ? 0 : (error.code ?? "killed"), stdout, stderr }))
    )
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

interface Output {
  readonly dryRun: boolean
  readonly steps: ReadonlyArray<{ readonly table: string; readonly partition: string; readonly outcome: string }>
}

it.live(
  "maintenance run prints what it did, a dry run what it would do, and the exit code is 1 if a lock is in the way",
  () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase
      const sql = yield* PgClient.PgClient
      const env = { DATABASE_URL: Redacted.value(url), LOG_LEVEL: "Warn" }
      yield* DatabaseClock.install
      yield* DatabaseClock.advance("6 days")
      // Nobody knows how long the service keeps things: a dry run and a run make days, and drop none.
      const unknown = yield* run(["maintenance", "run", "--dry-run"], env)
      assert.match(unknown.stdout, /^Nothing old goes: no process of the service has noted/)
      assert.notInclude(unknown.stdout, "drop")
      yield* Maintenance.noteKept

      const dry = yield* run(["maintenance", "run", "--dry-run", "--json"], env)
      assert.strictEqual(dry.code, 0, dry.stderr)
      const told = JSON.parse(dry.stdout) as Output
      assert.isTrue(told.dryRun)
      assert.includeMembers(
        told.steps.map(({ outcome, table }) => `${table} ${outcome}`),
        ["event_log made", "event_log dropped", "processed_events made"]
      )
      const due = told.steps.find(({ outcome }) => outcome === "dropped")
      yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql`SELECT count(*) FROM ${sql(due!.partition)}`
          const kept = yield* run(["maintenance", "run"], env)
          assert.strictEqual(kept.code, 1, kept.stderr)
          assert.match(kept.stdout, new RegExp(`in use, to be tried again later: ${due!.partition}`))
        })
      )

      const again = yield* run(["maintenance", "run", "--json"], env)
      assert.strictEqual(again.code, 0, again.stderr)
      assert.include(
        (JSON.parse(again.stdout) as Output).steps.map(({ outcome, partition }) => `${partition} ${outcome}`),
        `${due!.partition} dropped`
      )
      assert.match((yield* run(["maintenance", "run"], env)).stdout, /Nothing to do/)
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("maintenance run drops nothing that the service keeps, whatever its shell says", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const sql = yield* PgClient.PgClient
    const env = { DATABASE_URL: Redacted.value(url), LOG_LEVEL: "Warn" }
    yield* DatabaseClock.install
    yield* Effect.provideService(Maintenance.noteKept, RetentionSettings, { outboxDays: 0, inboxDays: 9, taskDays: 30 })
    yield* Maintenance.runOnce()
    const days = sql`SELECT child::text FROM time_partitions('event_log') ORDER BY 1`
    const before = yield* days
    yield* DatabaseClock.advance("30 days")
    const dry = yield* run(["maintenance", "run", "--dry-run"], env)
    assert.strictEqual(dry.code, 0, dry.stderr)
    assert.notInclude(dry.stdout, "would drop event_log")
    assert.match(dry.stdout, /the service keeps event_log for ever, processed_events for 9 days/)
    // What the shell does not say is its default, and no warning to every cron job.
    assert.notInclude(dry.stderr, "in this shell")
    const ran = yield* run(["maintenance", "run"], { ...env, OUTBOX_RETENTION_DAYS: "1" })
    assert.strictEqual(ran.code, 0, ran.stderr)
    assert.match(ran.stderr, /OUTBOX_RETENTION_DAYS is 1 in this shell, and does not count/)
    assert.notInclude(ran.stdout, "dropped event_log")
    assert.match(ran.stdout, /dropped processed_events_/)
    assert.includeDeepMembers([...(yield* days)], [...before])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)
