/** Leftovers of drills that `kill -9` ended: the doctor names them, and `drill --mend` and the next drill mend them. */
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { readFileSync } from "node:fs"
import * as Breakages from "../../src/cli/drill/Breakages.ts"
import { drillNames } from "../../src/cli/drill/DrillNames.ts"
import * as Leftovers from "../../src/cli/drill/Leftovers.ts"
import * as Sums from "../../src/cli/drill/Sums.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { consumerNames } from "../../src/main/Names.ts"
import type { DoctorReport } from "../../src/operations/doctor/Check.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf } from "../support/OperatorCommand.ts"
import { environment, isWhole, killed, nothingWaits, run, service, world } from "./Drilled.ts"

const doctor = Effect.map(
  commandOf("doctor", environment)("--json"),
  ({ stdout }) => JSON.parse(stdout) as DoctorReport
)

/** What the doctor finds of drills. It tells that before anything else. */
const leftovers = Effect.gen(function* () {
  const { checks } = yield* doctor
  const own = checks.find(({ name }) => name === "drill-leftovers")
  assert.isDefined(own)
  if (own.findings.length > 0)
    assert.strictEqual(
      checks.find(({ findings }) => findings.length > 0),
      own
    )
  assert.isTrue(own.findings.every(({ command }) => command === "npm run -s paid-once -- drill --mend"))
  return own.findings.map(({ problem }) => problem)
})

const mend = Effect.gen(function* () {
  const { code, stderr, stdout } = yield* run("--mend")
  assert.strictEqual(code, 0, stderr)
  return stdout
})

/** Waits until the orders of all drills are through, and all their books agree. */
const sumsAgree = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const ids = (yield* sql<{ readonly id: string }>`SELECT id FROM orders WHERE customer_id LIKE 'drill-%'`).map(
    ({ id }) => id
  )
  assert.isNotEmpty(ids)
  let red: ReadonlyArray<string> = []
  yield* eventually(
    "the sums to agree",
    Effect.map(Sums.of(ids, consumerNames), (checks) => {
      red = checks.flatMap(([what, holds]) => (holds ? [] : [what]))
      return red.length === 0
    })
  ).pipe(Effect.onError(() => Effect.logError(red.join("; "))))
})

const isAlive = (pid: number) => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

const pausing = Effect.fnUntraced(function* (action: "pause" | "resume") {
  const { code, stderr } = yield* commandOf("dispatcher", environment)(action, "orders", "--reason", "a test")
  assert.strictEqual(code, 0, stderr)
})

const left: Readonly<Record<(typeof drillNames)[number], ReadonlyArray<string>>> = {
  poison: [Breakages.poisonOf("").what],
  oversize: [Breakages.topicLimit.what],
  "lost-ack": ["a fault is armed at dispatcher.before-publish"],
  manual: [Breakages.gatewayBooks.what, Breakages.gatewayReports.what],
  zombie: [Breakages.dispatcherOf("").what],
  outage: [Breakages.broker.what]
}

/** Above what an event may take, so that the doctor has nothing against it. */
const ownLimit = 2_000_000

const limitIs = (bytes: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    assert.deepStrictEqual(yield* sql`SELECT max_message_bytes AS bytes FROM broker_topics WHERE topic = 'orders'`, [
      { bytes }
    ])
  })

/** The held event has its last attempt now: the drill that would press retry so often is dead. */
const hopeless = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`UPDATE outbox_holds SET attempts = 9, next_attempt_at = clock_now()`
  yield* eventually(
    "a dead letter",
    Effect.map(sql`SELECT 1 AS one FROM outbox_dead_letters WHERE status = 'dead'`, (rows) => rows.length > 0)
  )
})

/** The payment's recovery has its last run now. */
const unsettled = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* eventually(
    "a manual payment",
    Effect.andThen(
      sql`UPDATE outbox_tasks SET attempts = 100, execute_at = clock_now()
          WHERE task_type = 'payment.recover' AND state IN ('pending', 'failed')`,
      Effect.map(sql`SELECT 1 AS one FROM payments WHERE status = 'manual'`, (rows) => rows.length > 0)
    )
  )
})

it.live(
  "what any killed drill has left is named by the doctor, and mended by drill --mend: the service goes on, and the sums agree",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { url } = yield* service
      yield* sql`UPDATE broker_topics SET max_message_bytes = ${ownLimit}`
      for (const name of drillNames.filter((one) => one !== "outage")) {
        // An event that is sent uses the fault up.
        if (name === "lost-ack") yield* pausing("pause")
        const output = yield* killed(name, url!, name === "oversize" ? "Its attempts would take" : undefined)
        if (name === "lost-ack") assert.include(output, "The topic orders is paused.")
        const pid = /as process (\d+)/.exec(output)?.[1]
        if (name === "zombie") assert.match(readFileSync(`/proc/${pid}/stat`, "utf8"), /\) T /)
        if (name === "oversize") yield* hopeless
        if (name === "manual") yield* unsettled
        assert.deepStrictEqual(
          yield* leftovers,
          left[name].map((what) => `a killed drill, or a person on the demo's page, has left this: ${what}`)
        )
        const told = yield* mend
        for (const what of left[name]) assert.include(told, `it is mended: ${what}.`, name)
        if (name === "lost-ack") yield* pausing("resume")
        yield* isWhole
        yield* limitIs(ownLimit)
        assert.deepStrictEqual(yield* leftovers, [])
        if (pid !== undefined)
          yield* eventually(
            "the end of the drill's own dispatcher",
            Effect.sync(() => !isAlive(Number(pid)))
          )
      }
      // It has an order that is paid, so that the sums are not of nothing.
      const { code, stderr, stdout } = yield* run("oversize", "--json", "--url", url!)
      assert.strictEqual(code, 0, `${stderr}${stdout}`)
      yield* limitIs(ownLimit)
      yield* sumsAgree
      assert.include(yield* mend, "No drill has left anything broken.")
      const { checks } = yield* doctor
      assert.deepStrictEqual(
        // The tests' Postgres does without fsync.
        checks.flatMap(({ findings, name }) => (name === "settings" ? [] : findings)),
        []
      )
    }).pipe(Effect.scoped, Effect.provide(world)),
  400_000
)

it.live(
  "a mend that says so has settled the payment of a killed drill; without a service it says that the payment waits",
  () =>
    Effect.gen(function* () {
      const env = yield* environment
      const scope = yield* Scope.make()
      const { url } = yield* Effect.provideService(service, Scope.Scope, scope)
      const payment = "1 payment of its orders without an outcome"
      yield* killed("manual", url!)
      const mended = yield* mend
      assert.include(mended, `it is mended: ${payment}.`)
      assert.include(mended, "Nothing that a drill has broken is left.")
      yield* nothingWaits

      yield* killed("manual", url!)
      yield* Scope.close(scope, Exit.void)
      const told = yield* mend
      assert.include(told, `it waits for the service: ${payment}.`)
      assert.include(told, "What waits goes on once the service runs")
      assert.notInclude(told, "Nothing that a drill has broken is left.")
      yield* ServiceProcess.start({ env })
      yield* sumsAgree
    }).pipe(Effect.scoped, Effect.provide(world)),
  300_000
)

it.live(
  "drill --mend needs no service and no FAULTS, and the next drill mends before it asks the service anything",
  () =>
    Effect.gen(function* () {
      const env = yield* environment
      const scope = yield* Scope.make()
      const { url } = yield* Effect.provideService(service, Scope.Scope, scope)
      assert.strictEqual((yield* run("lost-ack", "--url", url!)).code, 0)
      yield* killed("outage", url!, "customers place and pay")
      yield* Scope.close(scope, Exit.void)
      assert.include(yield* mend, `it is mended: ${Breakages.broker.what}.`)
      yield* isWhole

      yield* Breakages.broker.break
      const { code, stderr, stdout } = yield* run("poison", "--url", "http://127.0.0.1:1")
      assert.strictEqual(code, 1)
      assert.include(stdout, `it is mended: ${Breakages.broker.what}.`)
      assert.include(stderr, "nothing answers at http://127.0.0.1:1")
      yield* isWhole

      yield* ServiceProcess.start({ env })
      yield* sumsAgree
      assert.include(yield* mend, "No drill has left anything broken.")
      assert.strictEqual((yield* run("outage", "--mend")).code, 2)
    }).pipe(Effect.scoped, Effect.provide(world)),
  300_000
)

it.live(
  "a drill that runs is left alone, and a limit that an operator sets after a killed one stays",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const scope = yield* Scope.make()
      yield* service
      yield* Breakages.topicLimit.break
      const connection = yield* Effect.provideService(sql.reserve, Scope.Scope, scope)
      const locking = (call: string) => connection.executeRaw(`SELECT ${call}(${Leftovers.lockKey})`, [])
      yield* locking("pg_advisory_lock")
      assert.deepStrictEqual(yield* leftovers, [])
      const refused = yield* run("--mend")
      assert.strictEqual(refused.code, 1)
      assert.include(refused.stderr, "another drill is running on this database: one at a time")
      assert.isTrue(yield* Breakages.topicLimit.isBroken)

      yield* locking("pg_advisory_unlock")
      yield* Scope.close(scope, Exit.void)
      yield* sql`UPDATE broker_topics SET max_message_bytes = ${ownLimit}`
      yield* mend
      yield* limitIs(ownLimit)
      assert.strictEqual((yield* run("--mend", "--json")).stdout, '{"mended":[],"waiting":[]}\n')
    }).pipe(Effect.scoped, Effect.provide(world)),
  100_000
)
