/** Events, consumers and faults through /admin. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import * as FollowedFaults from "../../src/operations/faults/FollowedFaults.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { ask, audited, deadAtConsumer, deadEvents, hostile, pagesOf, service } from "./Admin.ts"
import { newOrder, send } from "./Service.ts"

const unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
const reason = "what happens then?"

const place = (customerId: string) =>
  Effect.flatMap(BoundAddress, ({ url }) =>
    Effect.map(send(`${url}/orders`, { body: { ...newOrder, customerId } }), ({ json }) => String(json.id))
  )

const idsOf = (answer: Effect.Success<ReturnType<typeof ask>>): ReadonlyArray<string> =>
  answer.json.items.map(({ aggregateId }: { readonly aggregateId: string }) => aggregateId)

/** Another process on the database, which runs with FAULTS=on. */
const takingFaults = Effect.flatMap(TestDatabase, (database) =>
  Layer.build(
    Layer.fresh(
      FollowedFaults.layer.pipe(
        Layer.provide(TestProcess.platform),
        Layer.provide(FaultInjection.layer()),
        Layer.provide(Layer.succeed(TestDatabase, database))
      )
    )
  )
)

layer(service, { excludeTestServices: true })((it) => {
  it.effect("events are found by order, customer, id, trace, type and state, wherever they are, in pages", () =>
    Effect.gen(function* () {
      const [one, other] = [yield* place("ada"), yield* place("bob")]
      const [dead] = yield* deadEvents(1, { type: hostile })
      const found = yield* ask(`/events?orderId=${one}`)
      assert.deepStrictEqual(idsOf(found), [one])
      assert.deepInclude(found.json.items[0], { status: "queued", eventType: "OrderPlaced", topic: "orders" })
      const { eventId, traceId } = found.json.items[0]
      assert.deepStrictEqual(idsOf(yield* ask("/events?customerId=bob")), [other])
      assert.deepStrictEqual(idsOf(yield* ask(`/events?customerId=bob&orderId=${one}`)), [])
      assert.deepStrictEqual(idsOf(yield* ask(`/events?eventId=${String(eventId).toUpperCase()}`)), [one])
      assert.deepStrictEqual(idsOf(yield* ask(`/events?traceId=${traceId}&sinceSeconds=600`)), [one])
      const dangerous = yield* ask(`/events?status=dead&sinceSeconds=600`)
      assert.deepStrictEqual(
        dangerous.json.items.map(({ eventId }: { readonly eventId: string }) => eventId),
        [dead]
      )
      const all = yield* pagesOf("/events?sinceSeconds=600&limit=1&topic=orders")
      assert.strictEqual(all.items.length, 3)
      assert.deepStrictEqual(idsOf(yield* ask("/events?sinceSeconds=600&untilSeconds=500")), [])

      const { json: details } = yield* ask(`/events/${eventId}`)
      assert.deepInclude(details, { eventId, aggregateId: one, status: "queued" })
      assert.strictEqual(details.data.customerId, "ada")
      assert.strictEqual((yield* ask(`/events/${unknown}`)).status, 404)
    })
  )

  it.effect(
    "a search that would read the whole archive names the field that is missing, and bad input its fields",
    () =>
      Effect.gen(function* () {
        const wide = yield* ask("/events?type=OrderPlaced")
        assert.strictEqual(wide.status, 400)
        assert.strictEqual(wide.json.errors[0].pointer, "/sinceSeconds")
        assert.strictEqual((yield* ask("/events?topic=order&sinceSeconds=60")).json.errors[0].pointer, "/topic")
        const misspelt = yield* ask("/events?type=OrderPaied&sinceSeconds=60")
        assert.strictEqual(misspelt.json.errors[0].pointer, "/type")
        assert.include(misspelt.json.detail, "OrderPlaced")
        assert.deepStrictEqual(
          (yield* ask("/events?eventId=1&status=lost&untilSeconds=x")).json.errors
            .map(({ pointer }: { readonly pointer: string }) => pointer)
            .toSorted(),
          ["/eventId", "/status", "/untilSeconds"]
        )
      })
  )

  it.effect("a consumer is shown with what waits for it, its pause and its lag; an event at it with its story", () =>
    Effect.gen(function* () {
      const [id] = yield* deadAtConsumer(1)
      yield* deadAtConsumer(2, "gap")
      yield* ask("/consumers/analytics/pause", { reason })
      const { json } = yield* ask("/consumers")
      assert.strictEqual(json.items.length, 1)
      assert.deepInclude(json.items[0], {
        consumer: "analytics",
        topic: "orders",
        isPaused: true,
        dead: 1,
        gaps: 2,
        lag: 1,
        unknown: null,
        partitions: [{ partition: 0, end: "2", committed: "1", lag: 1, owner: "a process" }]
      })
      assert.deepInclude((yield* ask("/inbox")).json.items[0], { consumer: "analytics", dead: 1, gaps: 2 })
      yield* ask(`/inbox/dead-letters/analytics/${id}/discard`, { reason })
      const { json: shown } = yield* ask(`/inbox/dead-letters/analytics/${id}`)
      assert.deepInclude(shown, { consumer: "analytics", eventId: id, status: "discarded" })
      assert.deepInclude(shown.story.at(-1), { what: `discard: ${reason}`, by: "admin" })
      assert.strictEqual((yield* ask(`/inbox/dead-letters/analytics/${unknown}`)).status, 404)
      assert.strictEqual((yield* ask(`/inbox/dead-letters/nobody/${id}`)).status, 404)
    })
  )

  it.effect("without a process that takes faults there is nothing at /admin/faults", () =>
    Effect.gen(function* () {
      const point = "/faults/pay.after-charge"
      for (const answer of [
        yield* ask("/faults"),
        yield* ask(point, { action: "fail", times: 1, reason }, { method: "PUT" }),
        yield* ask(point, { reason }, { method: "DELETE" })
      ]) {
        assert.strictEqual(answer.status, 404)
        assert.include(answer.json.detail, "FAULTS=on")
      }
    })
  )

  it.effect("a fault is armed and cleared, once however often it is asked; an unknown point is not known", () =>
    Effect.gen(function* () {
      yield* takingFaults
      yield* eventually(
        "a process that takes faults",
        Effect.map(ask("/faults"), ({ status }) => status === 200)
      )
      const { json } = yield* ask("/faults")
      assert.deepInclude(json.points, { point: "mail.after-send", actions: ["crash", "fail", "delay"] })
      assert.strictEqual(json.processes.length, 1)
      assert.deepStrictEqual(json.strikes, [])
      const path = "/faults/pay.after-charge"
      const set = { action: "delay", times: 2, delayMillis: 5, reason }
      assert.deepInclude((yield* ask(path, set, { method: "PUT" })).json, { status: "armed", changed: true })
      assert.deepInclude((yield* ask(path, set, { method: "PUT" })).json, { status: "armed", changed: false })
      assert.deepInclude((yield* ask("/faults")).json.faults[0], {
        point: "pay.after-charge",
        actor: "admin",
        reason,
        times: 2
      })
      assert.deepInclude((yield* ask(path, { reason }, { method: "DELETE" })).json, { status: "clear", changed: true })
      assert.deepInclude((yield* ask(path, { reason }, { method: "DELETE" })).json, { status: "clear", changed: false })
      assert.deepStrictEqual(yield* audited("pay.after-charge"), [
        `clear by admin: ${reason}`,
        `arm by admin: ${reason}`
      ])
      const unknownPoint = yield* ask("/faults/pay.after-charg", set, { method: "PUT" })
      assert.strictEqual(unknownPoint.status, 404)
      assert.include(unknownPoint.json.detail, "pay.after-charge?")
      const impossible = yield* ask(path, { ...set, delayMillis: 0 }, { method: "PUT" })
      assert.deepInclude(
        { status: impossible.status, pointer: impossible.json.errors[0].pointer },
        { status: 400, pointer: "/action" }
      )
      const wrong = yield* ask(path, { action: "explode", times: 0 }, { method: "PUT" })
      assert.deepStrictEqual(wrong.json.errors.map(({ pointer }: { readonly pointer: string }) => pointer).toSorted(), [
        "/action",
        "/reason",
        "/times"
      ])
    }).pipe(Effect.scoped)
  )
})
