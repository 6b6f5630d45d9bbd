/**
 * A deploy under load: this release migrates beside the former one, both serve, dispatch and consume, processes of both come and go, and nothing is
 * lost, doubled or reordered.
 */
import { assert, it } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber, Redacted, Schedule, Schema, Scope } from "effect"
import { PgClient } from "@effect/sql-pg"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import * as Path from "node:path"
import * as Sums from "../../src/cli/drill/Sums.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { consumerNames } from "../../src/main/Names.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { formerRelease } from "../support/FormerRelease.ts"
import { commandOf } from "../support/OperatorCommand.ts"
import { scrape, seriesOf } from "../support/Scrape.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

/** Customers who act at once: enough that all lanes and partitions have work. */
const customers = 6

/** Orders that are done while a phase lasts. */
const ordersOfPhase = 40

const short = {
  GATEWAY_TIMEOUT_MILLIS: "2000",
  PAYMENT_RECOVER_DELAYS: "200ms,1s,2s,5s,10s,20s",
  // Another process soon takes over the tasks of a killed one.
  TASK_LEASE_MILLIS: "5000",
  TASK_HEARTBEAT_MILLIS: "1000",
  // A task that the killed process has lost counts as failed, and comes again after the first of these.
  TASK_RETRY_DELAYS: "1s,1s,2s,2s,5s,5s,10s,10s",
  // A session of a process that is merely slow stays: an event that is sent twice would be the deploy's fault.
  OUTBOX_SESSION_TIMEOUT_MILLIS: "60000",
  CONSUMER_SESSION_TIMEOUT_MILLIS: "60000"
}

class Unreachable extends Schema.TaggedError<Unreachable>()("Unreachable", {}) {}

/** The answer that is final. A customer asks again where the connection broke, a process stops, or the outcome is not known. */
const insist = (door: () => string, path: string, key: string, body?: unknown) =>
  Effect.tryPromise({
    try: async (signal) => {
      const response = await fetch(`${door()}${path}`, {
        method: "POST",
        signal,
        headers: { "idempotency-key": key, ...(body === undefined ? {} : { "content-type": "application/json" }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) })
      })
      return { status: response.status, text: await response.text() }
    },
    catch: () => new Unreachable()
  }).pipe(
    Effect.filterOrFail(
      ({ status, text }) =>
        !(
          status === 503 ||
          (status === 202 && path.endsWith("/pay")) ||
          (status === 409 && text.includes("still being processed"))
        ),
      () => new Unreachable()
    ),
    Effect.retry(Schedule.spaced("100 millis")),
    Effect.timeout("60 seconds")
  )

const ofLevel = (output: string, level: string) => output.split("\n").filter((line) => line.includes(`level=${level}`))

it.live(
  "two releases share a database through a deploy under load: both serve, publish and apply, and the books agree",
  () =>
    Effect.gen(function* () {
      const { commit, entry } = yield* formerRelease
      const { url: database } = yield* TestDatabase.make("template0")
      const directory = yield* TestDatabase.dataDirectory
      const variables = {
        ...short,
        DATABASE_URL: Redacted.value(database),
        DATA_DIRECTORY: directory,
        PORT: "0",
        LOG_LEVEL: "Warn"
      }
      console.info(`the former release is ${commit}`)
      /** The doors that customers choose from. */
      let doors: ReadonlyArray<string> = []
      /** A process, and the way to end it before the test ends. */
      const start = (release: "former" | "new") =>
        Effect.gen(function* () {
          const scope = yield* Scope.fork(yield* Effect.scope)
          const process = yield* ServiceProcess.start({
            script: release === "former" ? entry : Path.join(root, "src/paid-once.js"),
            env: { ...variables, ...(release === "former" ? {} : plantedEnv()) }
          }).pipe(Effect.provideService(Scope.Scope, scope))
          doors = [...doors, process.url!]
          const close = Effect.sync(() => void (doors = doors.filter((door) => door !== process.url)))
          return {
            ...process,
            /** No new request goes there, and then it ends by SIGTERM. */
            stop: Effect.andThen(close, Scope.close(scope, Exit.void)),
            kill: Effect.andThen(Effect.andThen(process.signal("SIGKILL"), process.exit), close)
          }
        })

      const orders: Array<string> = []
      const unexpected: Array<string> = []
      let done = 0
      const customer = (number: number) =>
        Effect.gen(function* () {
          const way = done++ % 8
          let asked = number
          /** Each request goes to the next door: so one order's requests go to both releases. */
          const door = () => doors[asked++ % doors.length]!
          const expect = Effect.fnUntraced(function* (status: number, path: string, key: string, body?: unknown) {
            const answer = yield* insist(door, path, key, body)
            if (answer.status !== status) unexpected.push(`${path}: ${answer.status} ${answer.text}`)
            return answer.text
          })
          const key = randomUUID()
          const order = {
            customerId: `customer-${number}`,
            currency: "EUR",
            lines: [{ sku: "book", quantity: 1 + way, unitAmountMinor: 1_000 }]
          }
          const placed = yield* expect(201, "/orders", key, order)
          // The answer that one release has stored is the other one's, byte for byte.
          const again = yield* expect(201, "/orders", key, order)
          if (placed !== again) unexpected.push(`placed twice: ${placed} ${again}`)
          const { id } = JSON.parse(placed) as { readonly id: string }
          orders.push(id)
          if (way === 1) return yield* expect(200, `/orders/${id}/cancel`, `${key}-cancel`)
          if (way === 2) yield* expect(402, `/orders/${id}/pay`, `${key}-no`, { paymentMethod: "pm_declined" })
          const pay = expect(200, `/orders/${id}/pay`, `${key}-pay`, { paymentMethod: "pm_ok" })
          const [paid, paidAgain] = [yield* pay, yield* pay]
          if (paid !== paidAgain) unexpected.push(`paid twice: ${paid} ${paidAgain}`)
          if (way === 3) yield* expect(202, `/orders/${id}/refund`, `${key}-refund`)
          return undefined
        })

      /** The sum of a counter of a process. */
      const counted = (process: ServiceProcess.ServiceProcess, name: string) =>
        Effect.map(scrape(process), (text) =>
          seriesOf(text).reduce((sum, series) => (series.name === name ? sum + series.value : sum), 0)
        )
      /** Customers go on until each of these processes has published and applied some events of this phase. */
      const phase = Effect.fnUntraced(function* (
        name: string,
        processes: ReadonlyArray<ServiceProcess.ServiceProcess>
      ) {
        const from = done
        const read = Effect.forEach(processes, (process) =>
          Effect.all([counted(process, "outbox_events_published_total"), counted(process, "inbox_events_total")])
        )
        const before = yield* read
        yield* eventually(
          `${name}: orders, and each process to publish and to apply`,
          Effect.map(
            read,
            (now) =>
              done >= from + ordersOfPhase &&
              now.every((figures, index) => figures.every((figure, which) => figure > before[index]![which]! + 3))
          ),
          60
        )
      })

      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const first = yield* start("former")
        const traffic = yield* Effect.forkChild(
          Effect.forEach(
            Array.from({ length: customers }, (_, number) => number),
            (number) => Effect.forever(customer(number)),
            { concurrency: customers, discard: true }
          )
        )
        yield* phase("the former release alone", [first])

        const migrated = yield* commandOf("migrate", Effect.succeed(variables))("--json")
        assert.strictEqual(migrated.code, 0, migrated.stderr)
        const { applied } = JSON.parse(migrated.stdout) as { readonly applied: ReadonlyArray<string> }
        console.info(`this release has applied ${applied.join(", ") || "none but those of the sandbox"}`)
        yield* phase("the former release on the new schema", [first])

        const next = yield* start("new")
        yield* phase("both releases", [first, next])
        // A process of the former release that starts while the deploy is under way, as after a crash or a rollback.
        const late = yield* start("former")
        yield* first.stop
        yield* phase("a process of the former release that came later", [late, next])
        const [copies] = yield* sql<{ readonly copies: number }>`
          SELECT (count(*) - count(DISTINCT record_headers ->> 'event-id'))::int4 AS copies FROM broker_log`
        assert.strictEqual(copies!.copies, 0, "while nobody dies, no event is sent twice")

        yield* late.kill
        yield* phase("this release alone", [next])
        yield* Fiber.interrupt(traffic)

        // If the kill comes between the send of a notice of a refund and its end, nobody knows whether it was taken: it waits for a person.
        const held = sql`
          SELECT task_id FROM outbox_tasks JOIN mail_deliveries AS m USING (task_id)
          WHERE state = 'dead' AND m.kind = 'refund-notice' AND m.status = 'uncertain'`
        const unfinished = sql`
          SELECT task_id FROM outbox_tasks WHERE state NOT IN ('completed', 'cancelled') AND task_id NOT IN (${held})`
        yield* eventually(
          "all tasks to be done",
          Effect.map(unfinished, (tasks) => tasks.length === 0),
          90
        )
        const failing = Effect.map(
          Effect.flatMap(sql<{ readonly id: string }>`SELECT id FROM orders`, (all) =>
            Sums.of(
              all.map(({ id }) => id),
              consumerNames
            )
          ),
          (checks) => checks.flatMap(([what, holds]) => (holds ? [] : [what]))
        )
        yield* eventually(
          "all sums to agree",
          Effect.map(failing, (wrong) => wrong.length === 0),
          60
        ).pipe(
          Effect.catchCause((cause) =>
            Effect.flatMap(failing, (wrong) => Effect.die(`${wrong.join("\n")} ${Cause.pretty(cause)}`))
          )
        )
        const reconciled = yield* commandOf("reconcile", Effect.succeed(variables), 100_000)()
        assert.strictEqual(reconciled.code, 0, reconciled.stdout)
        assert.deepStrictEqual(unexpected, [])
        assert.isAbove(orders.length, 4 * ordersOfPhase)
        const errors = [first, next, late].flatMap((process) => ofLevel(process.output(), "ERROR"))
        const ofHeld = errors.filter((line) => line.includes("an earlier run ended without a word of whether the mail"))
        assert.deepStrictEqual([errors, ofHeld.length], [ofHeld, (yield* held).length])
      }).pipe(Effect.provide(PgClient.layer({ url: database, maxConnections: 2 }), { local: true }))
    }).pipe(Effect.scoped),
  400_000
)
