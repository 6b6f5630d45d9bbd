/** `paid-once outbox …` as an operator runs it: beside a running service whose topic refuses an event, and after the service was killed. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { SqlClient } from "effect/sql"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

/** Two attempts, with hours between them unless an operator retries. */
const environment = environmentWith({ OUTBOX_MAX_ATTEMPTS: "2", OUTBOX_RETRY_BASE_MILLIS: "86400000" })
const run = commandOf("outbox", environment)

const post = (url: string, path: string, body: unknown, headers: Readonly<Record<string, string>> = {}) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body)
    })
    return { status: response.status, json: (await response.json()) as { readonly id: string } }
  })

/** An order whose first event takes some 14 KB. */
const large = {
  customerId: "ada",
  currency: "EUR",
  lines: Array.from({ length: 100 }, (_, index) => ({
    sku: `${"s".repeat(90)}${index}`,
    quantity: 1,
    unitAmountMinor: 100
  }))
}
const small = { ...large, lines: large.lines.slice(0, 1) }

interface Delivery {
  readonly state: string
  readonly partition: number | null
  readonly offset: string | null
}

const timeline = (url: string, id: string) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}/orders/${id}/timeline`)
    const { events } = (await response.json()) as {
      readonly events: ReadonlyArray<{ readonly eventId: string; readonly delivery: Delivery }>
    }
    return events
  })

const untilStates = (url: string, id: string, ...states: ReadonlyArray<string>) =>
  eventually(
    `order ${id} to be ${states.join(", ")}`,
    Effect.map(timeline(url, id), (events) => events.map((event) => event.delivery.state).join() === states.join())
  )

/** Sets the topic's limit, which the embedded broker reads at every append. */
const setLimit = (bytes: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      INSERT INTO broker_topics (topic, partitions, max_message_bytes) VALUES ('orders', 8, ${bytes})
      ON CONFLICT (topic) DO UPDATE SET max_message_bytes = excluded.max_message_bytes`
    yield* sql`
      INSERT INTO broker_partitions (topic, partition) SELECT 'orders', generate_series(0, 7) ON CONFLICT DO NOTHING`
  })

const world = TestDatabase.layerPool.pipe(Layer.provideMerge(Directory.layer))

/** Delays retries by a day, so that only the operator's decision causes them: their random wait may be short. */
const tomorrow = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`UPDATE outbox_holds SET next_attempt_at = clock_now() + interval '1 day'`
)

it.live(
  "a refused event from its first refusal to its redrive or its end, through the commands and the timeline",
  () =>
    Effect.gen(function* () {
      yield* setLimit(4_000)
      const service = yield* ServiceProcess.start({ env: yield* environment })
      const url = service.url!
      const { json: order } = yield* post(url, "/orders", large)
      yield* untilStates(url, order.id, "retrying")
      yield* tomorrow
      yield* post(url, `/orders/${order.id}/pay`, { paymentMethod: "pm_ok" }, { "idempotency-key": "pay-1" })
      yield* untilStates(url, order.id, "retrying", "parked")
      const [placed, paid] = yield* timeline(url, order.id)
      // Other aggregates are published meanwhile.
      const { json: other } = yield* post(url, "/orders", small)
      yield* untilStates(url, other.id, "published")

      const status = yield* run("status", "--json")
      assert.strictEqual(status.code, 0)
      assert.deepInclude(JSON.parse(status.stdout), { queued: 0, retrying: 1, parked: 1, dead: 0, discarded: 0 })
      const behind = yield* run("retry", paid!.eventId, "--reason", "now")
      assert.strictEqual(behind.code, 1)
      assert.include(behind.stderr, `event ${paid!.eventId} waits behind event ${placed!.eventId} of its aggregate`)

      // Mistakes in the arguments.
      const wrong = [
        ["retry", placed!.eventId],
        ["discard", placed!.eventId],
        ["retry", placed!.eventId, "--reason", " "],
        ["retry", "--reason", "why"],
        ["retry", placed!.eventId, "--all", "--reason", "why"],
        ["retry", "not-an-id", "--reason", "why"],
        ["list", "--status", "lost"]
      ]
      const codes = yield* Effect.forEach(wrong, (args) => run(...args), { concurrency: 2 })
      assert.deepStrictEqual(
        codes.map((answer) => answer.code),
        wrong.map(() => 2)
      )
      const unknown = "0192a000-0000-7000-8000-000000000000"
      const unknowns = yield* Effect.forEach(
        [
          ["retry", unknown, "--reason", "why"],
          ["discard", unknown, "--reason", "why"],
          ["show", unknown]
        ],
        (args) => run(...args),
        { concurrency: 2 }
      )
      for (const answer of unknowns) {
        assert.strictEqual(answer.code, 1)
        assert.strictEqual(
          answer.stderr.trim().split("\n").at(-1),
          `paid-once: no event has the id ${unknown}: it was never written, or retention has dropped it`
        )
      }

      // The second attempt comes now instead of in hours, and is the last.
      const now = yield* run("retry", placed!.eventId, "--reason", "is it mended?", "--by", "ada", "--json")
      assert.deepStrictEqual(JSON.parse(now.stdout), { eventId: placed!.eventId, status: "retrying", changed: true })
      yield* untilStates(url, order.id, "dead", "parked")
      assert.strictEqual((yield* run("status")).code, 1)
      const list = yield* run("list", "--json")
      assert.strictEqual(list.code, 0)
      assert.deepInclude(JSON.parse(list.stdout).items[0], {
        eventId: placed!.eventId,
        status: "dead",
        eventType: "OrderPlaced",
        aggregateId: order.id,
        attempts: 2
      })
      assert.strictEqual(
        JSON.parse((yield* run("list", "--status", "parked", "--json")).stdout).items[0].eventId,
        paid!.eventId
      )
      const show = yield* run("show", placed!.eventId)
      assert.include(show.stdout, "attempt 2 was refused")
      assert.include(show.stdout, "retry: is it mended?, by ada")
      assert.include(show.stdout, "and the topic allows 4000")

      // A dead letter is no outage: the dispatcher is ready, and metrics report it. The part `topics` reports that the topic's limit is
      // below the size of an event.
      yield* eventually(
        "health to report it",
        Effect.promise(async () => {
          const { parts } = (await (await fetch(`${url}/health/ready`)).json()) as {
            readonly parts: Readonly<Record<string, { readonly status: string }>>
          }
          // Other parts may not answer in time.
          return parts["dispatcher"]?.status === "ready" && parts["topics"]?.status === "degraded"
        })
      )
      yield* eventually(
        "the metrics to be sampled",
        Effect.promise(async () => {
          const text = await (await fetch(`${url}/metrics`)).text()
          return (
            /^outbox_dead_letters(\{.*\})? 1$/m.test(text) &&
            /^outbox_events_parked(\{.*\})? 1$/m.test(text) &&
            /^outbox_events_failed_total\{.*event_type="OrderPlaced".*\} 2$/m.test(text)
          )
        })
      )

      yield* setLimit(1_000_000)
      const redriven = yield* run("retry", "--all", "--reason", "the limit is raised", "--json")
      assert.deepStrictEqual(JSON.parse(redriven.stdout), { retried: 1, refused: [], refusedCount: 0 })
      yield* untilStates(url, order.id, "published", "published")
      const [first, second] = yield* timeline(url, order.id)
      assert.deepStrictEqual([first!.eventId, second!.eventId], [placed!.eventId, paid!.eventId])
      assert.isBelow(Number(first!.delivery.offset), Number(second!.delivery.offset))

      // Another event is discarded.
      yield* setLimit(4_000)
      const { json: lost } = yield* post(url, "/orders", large)
      yield* untilStates(url, lost.id, "retrying")
      yield* tomorrow
      yield* post(url, `/orders/${lost.id}/pay`, { paymentMethod: "pm_ok" }, { "idempotency-key": "pay-2" })
      yield* untilStates(url, lost.id, "retrying", "parked")
      const [event] = yield* timeline(url, lost.id)
      for (const words of ["discarded.", "is discarded already."]) {
        const discarded = yield* run("discard", event!.eventId, "--reason", "sent by hand")
        assert.strictEqual(discarded.code, 0)
        assert.include(discarded.stdout, words)
      }
      yield* untilStates(url, lost.id, "discarded", "published")
    }).pipe(Effect.scoped, Effect.provide(world)),
  // A dozen commands run here, each in a process of its own.
  300_000
)

it.live(
  "killed after a hold and after a release, the service goes on where it was: nothing lost, nothing twice in the tables",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const env = { ...(yield* environment), OUTBOX_MAX_ATTEMPTS: "100", OUTBOX_RETRY_BASE_MILLIS: "1" }
      yield* setLimit(4_000)
      const ids: Array<string> = []
      for (const point of ["dispatcher.after-hold", "dispatcher.after-release", undefined]) {
        if (point === "dispatcher.after-release") yield* setLimit(1_000_000)
        const started = yield* Effect.result(
          ServiceProcess.start({ env: { ...env, ...(point === undefined ? {} : { FAULTS: `${point}=crash` }) } })
        )
        if (Result.isFailure(started)) {
          // The hold is due at once, so the process may end the hold and crash before HTTP answers.
          assert.deepStrictEqual([point, started.failure.code], ["dispatcher.after-release", "SIGKILL"])
          continue
        }
        const service = started.success
        if (point === "dispatcher.after-hold") {
          const { json } = yield* post(service.url!, "/orders", large)
          ids.push(json.id)
        }
        if (point !== undefined) {
          assert.strictEqual(yield* service.exit, "SIGKILL")
          const holds = yield* sql`SELECT 1 AS one FROM outbox_holds`
          assert.strictEqual(holds.length, point === "dispatcher.after-hold" ? 1 : 0)
        } else {
          yield* post(service.url!, `/orders/${ids[0]}/pay`, { paymentMethod: "pm_ok" }, { "idempotency-key": "k" })
          yield* untilStates(service.url!, ids[0]!, "published", "published")
        }
      }
    }).pipe(Effect.scoped, Effect.provide(world)),
  120_000
)
