/** The journey of an order, over HTTP, in a service with all roles: what is done, what waits for what, and what is for a person. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import type { Hop, JourneyView, Leg } from "../../src/application/views/JourneyView.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { newOrder, send } from "./Service.ts"

const adminToken = "a-token-of-sixteen-and-more"
const headers = { authorization: `Bearer ${adminToken}` }

class Running extends Context.Service<Running, ServiceProcess.ServiceProcess>()("test/http/Running") {
  static readonly layer = Layer.effect(
    Running,
    Effect.gen(function* () {
      const { url } = yield* TestDatabase
      const directory = yield* TestDatabase.dataDirectory
      const env = {
        DATABASE_URL: Redacted.value(url),
        DATA_DIRECTORY: directory,
        PORT: "0",
        LOG_LEVEL: "Error",
        ADMIN_TOKEN: adminToken,
        INBOX_MAX_ATTEMPTS: "1",
        // Far above an answer on a busy machine, and short enough to wait for an unknown outcome.
        GATEWAY_TIMEOUT_MILLIS: "2000",
        ...plantedEnv()
      }
      return Running.of(yield* Effect.orDie(ServiceProcess.start({ env })))
    })
  )
}

const address = Effect.map(Running, ({ url }) => url!)

const place = Effect.gen(function* () {
  const { json } = yield* send(`${yield* address}/orders`, { body: newOrder })
  return json.id as string
})

const pay = Effect.fnUntraced(function* (id: string, paymentMethod = "pm_ok") {
  const key = { "idempotency-key": `key-${id}-${paymentMethod}` }
  return yield* send(`${yield* address}/orders/${id}/pay`, { body: { paymentMethod }, headers: key })
})

const journeyOf = Effect.fnUntraced(function* (id: string) {
  return (yield* send(`${yield* address}/admin/orders/${id}/journey`, { headers })).json as JourneyView
})

/** Waits until the leg of this title is as it should be. */
const untilLeg = Effect.fnUntraced(function* (id: string, title: string, isIt: (leg: Leg) => boolean) {
  let found: Leg | undefined
  yield* eventually(
    `the leg ${title}`,
    Effect.map(journeyOf(id), ({ legs }) => {
      found = legs.find((leg) => leg.title === title)
      return found !== undefined && isIt(found)
    })
  )
  return found!
})

const hopOf = ({ hops }: Leg, id: string): Hop => {
  const found = hops.find((hop) => hop.id === id)
  if (found === undefined) throw new Error(`there is no hop ${id}`)
  return found
}

const act = Effect.fnUntraced(function* (path: string) {
  const answer = yield* send(`${yield* address}/admin/${path}`, { headers, body: { reason: "to see it wait" } })
  assert.strictEqual(answer.status, 200, answer.text)
})

/** Pauses, and waits until the process has heard of it: what is under way ends first. */
const pause = Effect.fnUntraced(function* (path: string, name: string) {
  yield* act(path)
  yield* eventually(
    "the pause to be heard of",
    Effect.map(send(`${yield* address}/health/ready`), ({ json }) =>
      json.parts.pauses.paused.some((paused: { readonly name: string }) => paused.name === name)
    )
  )
})

layer(Layer.provideMerge(Running.layer, TestDatabase.layerPool), { excludeTestServices: true, timeout: "120 seconds" })(
  "Journey",
  (it) => {
    it.effect("a paid order: from the request to the mail, each hop with its trace and its time", () =>
      Effect.gen(function* () {
        const id = yield* place
        assert.strictEqual((yield* pay(id)).status, 200)
        const paid = yield* untilLeg(id, "Paid", ({ state }) => state === "done")
        assert.deepStrictEqual(
          paid.hops.map(({ after, id, kind }) => [id, kind, after]),
          [
            ["request", "request", null],
            ["intent", "intent", "request"],
            ["charge", "charge", "intent"],
            ["commit", "commit", "charge"],
            ["lane", "lane", "commit"],
            ["broker", "broker", "lane"],
            ["consumer receipts", "consumer", "broker"],
            ["mail", "mail", "consumer receipts"],
            ["consumer inventory", "consumer", "broker"],
            ["consumer billing", "consumer", "broker"],
            ["consumer analytics", "consumer", "broker"]
          ]
        )
        // All have one trace, unless the sandbox's report was there before the charge's answer: then the event has that of the report.
        for (const hops of [paid.hops.slice(0, 3), paid.hops.slice(3)]) {
          const [trace, ...others] = new Set(hops.map(({ traceId }) => traceId))
          assert.match(String(trace), /^[0-9a-f]{32}$/)
          assert.deepStrictEqual(others, [])
        }
        for (const hop of paid.hops) {
          assert.match(String(hop.at), /^20.*Z$/, hop.id)
          if (hop.after !== null) assert.isAtLeast(hop.millis!, 0, hop.id)
          assert.strictEqual(hop.process, null, hop.id)
        }
        assert.strictEqual(
          paid.millis,
          Math.max(...paid.hops.flatMap(({ at }) => (at === null ? [] : [Date.parse(at)]))) -
            Date.parse(hopOf(paid, "request").at!)
        )
        const { json: timeline } = yield* send(`${yield* address}/orders/${id}/timeline`)
        const { delivery, eventId, version } = timeline.events.at(-1)
        assert.deepInclude(paid, { version, eventId, eventType: "OrderPaid" })
        assert.deepInclude(hopOf(paid, "broker").facts, { name: "partition", value: String(delivery.partition) })
        assert.deepInclude(hopOf(paid, "broker").facts, { name: "offset", value: delivery.offset })
        const { complete, legs, nextCursor, order } = yield* journeyOf(id)
        assert.deepStrictEqual([complete, nextCursor, order.status], [true, null, "paid"])
        const placed = hopOf(legs[0]!, "request")
        // The order's id is a UUIDv7: it begins with the time at which the request drew it.
        const drawn = Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16)
        assert.strictEqual(placed.at, new Date(drawn).toISOString())
        assert.deepStrictEqual(
          legs.flatMap(({ hops }) => hops).filter(({ at }) => at === null),
          []
        )
        assert.deepStrictEqual(
          legs.map(({ title }) => title),
          ["Placed", "Paid"]
        )
      })
    )

    it.effect("while a topic is paused the lane says who paused it and why, and what comes after it waits", () =>
      Effect.gen(function* () {
        yield* pause("topics/orders/pause", "orders")
        const id = yield* place
        const placed = yield* untilLeg(id, "Placed", ({ hops }) =>
          hops.some(({ why }) => why?.includes("paused") === true)
        )
        assert.deepInclude(hopOf(placed, "lane"), {
          state: "waiting",
          why: "admin has paused the topic orders: to see it wait",
          command: "paid-once dispatcher resume orders"
        })
        assert.match(String(hopOf(placed, "lane").process), /^\d+@/)
        for (const later of ["broker", "consumer billing", "consumer receipts"]) {
          assert.deepInclude(hopOf(placed, later), { state: "waiting", at: null })
        }
        assert.strictEqual(placed.millis, null)
        assert.strictEqual(hopOf(placed, "lane").at, hopOf(placed, "commit").at)
        for (const { frees, id, state, why } of placed.hops) {
          if (state === "waiting") assert.isTrue(why !== null && frees !== null, id)
        }
        yield* act("topics/orders/resume")
        yield* untilLeg(id, "Placed", ({ state }) => state === "done")
      })
    )

    it.effect("a paused consumer, and one that gives an event up: the others are done, and the way out is named", () =>
      Effect.gen(function* () {
        const sql = yield* PgClient.PgClient
        yield* sql`ALTER TABLE billing_ledger RENAME TO billing_ledger_away`
        yield* pause("consumers/analytics/pause", "analytics")
        const id = yield* place
        yield* pay(id)
        const paid = yield* untilLeg(id, "Paid", (leg) =>
          leg.hops.every(({ id, state }) =>
            id === "consumer billing" ? state === "dead" : id === "consumer analytics" || state === "done"
          )
        )
        assert.strictEqual(paid.state, "dead")
        const billing = hopOf(paid, "consumer billing")
        assert.deepInclude(billing, {
          page: "dead-letters?side=inbox&consumer=billing",
          frees: "an operator retries, skips or discards it"
        })
        assert.match(String(billing.why), /failed 1 time: .*billing_ledger/)
        assert.strictEqual(billing.command, `paid-once inbox show billing ${paid.eventId}`)
        const analytics = yield* untilLeg(id, "Paid", (leg) => hopOf(leg, "consumer analytics").state === "waiting")
        assert.include(hopOf(analytics, "consumer analytics").why!, "admin has paused the consumer analytics")
        yield* sql`ALTER TABLE billing_ledger_away RENAME TO billing_ledger`
        yield* act("consumers/analytics/resume")
        yield* act(`inbox/dead-letters/billing/${paid.eventId}/retry`)
        yield* untilLeg(id, "Paid", ({ state }) => state === "done")
      })
    )

    it.effect("a payment without an outcome is a leg without an event: it says when it is looked up", () =>
      Effect.gen(function* () {
        const id = yield* place
        assert.strictEqual((yield* pay(id, "pm_timeout_then_nothing")).status, 202)
        const paying = yield* untilLeg(id, "Paying", () => true)
        assert.deepInclude(paying, { state: "waiting", eventId: null, version: null })
        const charge = hopOf(paying, "charge")
        assert.strictEqual(charge.state, "waiting")
        assert.match(String(charge.frees), /^it is looked up at 20.*Z$/)
        assert.strictEqual(charge.page, `payments/${paying.paymentId}`)
        assert.deepInclude(hopOf(paying, "commit"), { state: "waiting", at: null, frees: "the outcome" })
      })
    )

    it.effect("a declined payment and a refund have their legs, in the order of time", () =>
      Effect.gen(function* () {
        const id = yield* place
        assert.strictEqual((yield* pay(id, "pm_declined")).status, 402)
        yield* pay(id)
        yield* untilLeg(id, "Paid", ({ state }) => state === "done")
        const url = `${yield* address}/orders/${id}/refund`
        yield* send(url, { method: "POST", headers: { "idempotency-key": `refund-${id}` } })
        const refunded = yield* untilLeg(id, "Refunded", ({ state }) => state === "done")
        assert.strictEqual(hopOf(refunded, "mail").state, "done")
        const { legs } = yield* journeyOf(id)
        assert.deepStrictEqual(
          legs.map(({ title }) => title),
          ["Placed", "Payment declined", "Paid", "Refunded"]
        )
        const declined = hopOf(legs[1]!, "charge")
        assert.isTrue(declined.facts.some(({ value }) => value.startsWith("declined: ")))
      })
    )

    it.effect("there is no journey of an order that does not exist, and a cursor is a version", () =>
      Effect.gen(function* () {
        const url = yield* address
        const unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
        assert.strictEqual((yield* send(`${url}/admin/orders/${unknown}/journey`, { headers })).status, 404)
        const id = yield* place
        const past = yield* send(`${url}/admin/orders/${id}/journey?cursor=100`, { headers })
        assert.deepStrictEqual([past.json.legs, past.json.nextCursor], [[], null])
        assert.strictEqual((yield* send(`${url}/admin/orders/${id}/journey?cursor=x`, { headers })).status, 400)
        assert.strictEqual((yield* send(`${url}/admin/orders/${id}/journey`)).status, 401)
      })
    )
  }
)
