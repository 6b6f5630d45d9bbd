/** The overview and the lanes, over HTTP, with dispatchers in processes of their own. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { hostname } from "node:os"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import type { Leg } from "../../src/application/views/JourneyView.ts"
import type { LaneView } from "../../src/operations/reports/LaneReport.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { newOrder, send } from "./Service.ts"

const adminToken = "a-token-of-sixteen-and-more"
const headers = { authorization: `Bearer ${adminToken}` }

const start = Effect.fnUntraced(function* (roles: string, variables: Readonly<Record<string, string>> = {}) {
  const { url } = yield* TestDatabase
  return yield* ServiceProcess.start({
    roles,
    env: {
      DATABASE_URL: Redacted.value(url),
      DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
      LOG_LEVEL: "Error",
      ADMIN_TOKEN: adminToken,
      INBOX_MAX_ATTEMPTS: "1",
      ...(roles.includes("http") ? { PORT: "0" } : {}),
      ...plantedEnv(),
      ...variables
    }
  })
})

const get = (url: string, path: string) => Effect.map(send(`${url}/admin/${path}`, { headers }), ({ json }) => json)

/** The number of lanes of each owner. */
const owners = (lanes: ReadonlyArray<LaneView>) => {
  const counts: Record<string, number> = {}
  for (const { owner } of lanes) counts[String(owner)] = (counts[String(owner)] ?? 0) + 1
  return counts
}

it.live("the lanes of two processes are told apart, and those of a killed one go to the other", () =>
  Effect.gen(function* () {
    const { url } = yield* start("http")
    const lanes = Effect.map(get(url!, "lanes"), ({ items }) => owners(items))
    assert.deepStrictEqual(yield* lanes, { null: 64 })
    const one = yield* start("dispatcher")
    const other = yield* start("dispatcher")
    const nameOf = ({ pid }: ServiceProcess.ServiceProcess) => `${pid}@${hostname()}`
    yield* eventually(
      "halves",
      Effect.map(lanes, (now) => now[nameOf(one)] === 32 && now[nameOf(other)] === 32)
    )
    yield* one.signal("SIGKILL")
    yield* eventually(
      "all lanes at the other",
      Effect.map(lanes, (now) => now[nameOf(other)] === 64)
    )
    // No topic is used before an event was sent.
    yield* send(`${url}/orders`, { body: newOrder })
    yield* eventually(
      "partitions",
      Effect.map(get(url!, "lanes"), ({ items }) =>
        items.every(({ lane, partition }: LaneView) => partition === lane % 8)
      )
    )
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live(
  "without a dispatcher the verdict says what waits, for how long and what frees it, and then that nothing waits",
  () =>
    Effect.gen(function* () {
      const { url } = yield* start("http,consumers,workers")
      const quiet = yield* get(url!, "overview")
      assert.deepInclude(quiet.verdict, { sentence: "Nothing waits; nobody has paid in the last minute.", waits: [] })
      const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
      const key = { "idempotency-key": "pay-1" }
      yield* send(`${url}/orders/${order.id}/pay`, { body: { paymentMethod: "pm_ok" }, headers: key })
      yield* eventually(
        "the wait",
        Effect.map(get(url!, "overview"), ({ verdict }) =>
          /^Orders are taken; 2 events wait: no process sends the events of 1 lane, for \d+ s; nothing is lost; a process with the role dispatcher\.$/.test(
            verdict.sentence
          )
        )
      )
      const waiting = yield* get(url!, "overview")
      assert.strictEqual(waiting.verdict.status, "degraded")
      assert.deepInclude(waiting.verdict.waits[0], { runbook: "OutboxOldestEventTooOld" })
      assert.lengthOf(
        waiting.lanes.filter(({ ready }: LaneView) => ready === 2),
        1
      )
      yield* start("dispatcher")
      yield* eventually(
        "money to move",
        Effect.map(
          get(url!, "overview"),
          ({ outbox, verdict }) => outbox.queued === 0 && verdict.sentence === "Money is moving."
        )
      )
      yield* eventually(
        "every consumer at the end of its partitions, each with an owner",
        Effect.map(get(url!, "overview"), ({ consumers }) =>
          consumers.every(
            ({
              lag,
              partitions
            }: {
              readonly lag: number
              readonly partitions: ReadonlyArray<{ readonly owner: string | null }>
            }) => lag === 0 && partitions.length === 8 && partitions.every(({ owner }) => owner?.includes("@") === true)
          )
        )
      )
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("an event that a consumer retries is told everywhere, with its age and its cause, and needs no decision", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    const database = yield* TestDatabase
    // The next attempt is minutes away: the test ends the wait.
    const slow = { INBOX_MAX_ATTEMPTS: "10", INBOX_RETRY_BASE_MILLIS: "600000" }
    const { url } = yield* start("http,dispatcher,consumers,workers", slow)
    yield* sql`ALTER TABLE billing_ledger RENAME TO billing_ledger_away`
    const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
    const key = { "idempotency-key": "pay-1" }
    yield* send(`${url}/orders/${order.id}/pay`, { body: { paymentMethod: "pm_ok" }, headers: key })
    yield* send(`${url}/orders/${order.id}/refund`, { method: "POST", headers: { "idempotency-key": "refund-1" } })
    const billing = Effect.map(get(url!, "overview"), ({ consumers }) =>
      consumers.find(({ consumer }: { readonly consumer: string }) => consumer === "billing")
    )
    yield* eventually(
      "an event that is retried, and one behind it",
      Effect.map(billing, ({ parked, retrying }) => retrying === 1 && parked === 1)
    )
    const { retryingCause, retryingSeconds, ...counts } = yield* billing
    assert.deepInclude(counts, { dead: 0, gaps: 0 })
    assert.include(retryingCause, "billing_ledger")
    assert.isBelow(retryingSeconds, 120)
    const { decisions, verdict } = yield* get(url!, "overview")
    assert.deepStrictEqual(decisions, [])
    assert.match(verdict.sentence, /^Money is moving, but billing retries 1 event, for \d+ s\.$/)
    assert.strictEqual(verdict.status, "degraded")
    const { legs } = yield* get(url!, `orders/${order.id}/journey`)
    const states = legs.map(({ hops, state }: typeof Leg.Type) => [
      state,
      hops.find(({ title }) => title === "billing")?.state
    ])
    assert.deepStrictEqual(states, [
      ["done", "done"],
      ["retrying", "retrying"],
      ["parked", "parked"]
    ])
    const told = yield* commandOf("status", Effect.succeed({ DATABASE_URL: Redacted.value(database.url) }))()
    assert.strictEqual(told.code, 0, told.stdout + told.stderr)
    assert.match(told.stdout, /\nbilling .* 1 retrying, 1 parked, 0 dead, 0 gaps\n/)
    assert.match(
      told.stdout,
      /\nRetrying: billing, 1 event, for \d+ s: .*billing_ledger.*\n\nNothing needs a decision\.\n/
    )

    yield* sql`ALTER TABLE billing_ledger_away RENAME TO billing_ledger`
    const { eventId } = legs[1]
    const now = { body: { reason: "the table is back" }, headers }
    assert.strictEqual((yield* send(`${url}/admin/inbox/dead-letters/billing/${eventId}/retry`, now)).status, 200)
    yield* eventually(
      "billing to be healthy",
      Effect.map(billing, ({ parked, retrying }) => retrying + parked === 0)
    )
    assert.strictEqual((yield* get(url!, "overview")).verdict.status, "ready")
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("what needs a decision is counted once, with its age, its page and its command", () =>
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    const { url } = yield* start("http,dispatcher,consumers,workers")
    assert.deepStrictEqual((yield* get(url!, "overview")).decisions, [])
    yield* sql`ALTER TABLE billing_ledger RENAME TO billing_ledger_away`
    const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
    const key = { "idempotency-key": "pay-1" }
    yield* send(`${url}/orders/${order.id}/pay`, { body: { paymentMethod: "pm_ok" }, headers: key })
    // A mail that nobody sends any more is a dead task, too.
    yield* eventually(
      "the mail",
      Effect.map(sql`SELECT FROM mail_deliveries WHERE status = 'sent'`, (rows) => rows.length === 1)
    )
    yield* sql`UPDATE mail_deliveries SET status = 'uncertain', sent_at = NULL, uncertain_sends = 1`
    yield* sql`
      UPDATE outbox_tasks SET state = 'dead', finished_at = clock_now() - interval '1 hour' WHERE task_type = 'email'`
    yield* eventually(
      "both decisions",
      Effect.map(get(url!, "overview"), ({ decisions }) => decisions.length === 2)
    )
    const { decisions, mail, tasks } = yield* get(url!, "overview")
    assert.deepInclude(decisions[0], {
      kind: "mail",
      count: 1,
      page: "mail?status=dead",
      command: "paid-once mail list --status dead"
    })
    assert.approximately(decisions[0].sinceSeconds, 3_600, 60)
    assert.deepInclude(decisions[1], {
      kind: "inbox event",
      consumer: "billing",
      count: 1,
      page: "dead-letters?side=inbox&consumer=billing"
    })
    assert.isBelow(decisions[1].sinceSeconds, 120)
    assert.deepInclude(mail, { dead: 1, uncertain: 1 })
    assert.lengthOf(tasks, 1)
    assert.deepInclude(tasks[0], { type: "email", state: "dead", count: 1 })
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)

it.live("nobody reads it without a credential", () =>
  Effect.gen(function* () {
    const { url } = yield* start("http")
    for (const path of ["overview", "lanes", "stream"]) {
      assert.strictEqual((yield* send(`${url}/admin/${path}`)).status, 401, path)
    }
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)
