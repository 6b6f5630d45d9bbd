/** What the reports of outbox and inbox tell an operator: causes, pages, and the whole story of an event, also when it went well in the end. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { type Entry, InboxReport } from "../../src/operations/reports/InboxReport.ts"
import { OutboxDeadLetters } from "../../src/operations/OutboxDeadLetters.ts"
import { OutboxReport } from "../../src/operations/reports/OutboxReport.ts"
import type { Page } from "../../src/platform/Pages.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import * as Parking from "../../src/outbox/holds/Parking.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as Deliveries from "../support/Deliveries.ts"
import * as Lanes from "../support/Lanes.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const operator = { actor: "ada", reason: "the limit was raised" }

const outbox = Layer.mergeAll(Parking.layer, OutboxReport.layer, OutboxDeadLetters.layer).pipe(
  Layer.provideMerge(Queue.layer),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)
const oneRefusal = Layer.succeed(Parking.HoldSettings, { retryBaseMillis: 50_000_000, maxAttempts: 1, skipTopics: [] })

/** An event that the broker refuses once, which is enough. */
const refused = Effect.fnUntraced(function* (id: string) {
  const lane = laneOf(id)
  yield* Refusals.append(id, 1, 2)
  const [event] = yield* Lanes.fetch(yield* Queue, lane)
  yield* (yield* Holds).hold(lane, event!, Refusals.rejection)
  return event!.eventId
})

it.live(
  "an event that the broker took in the end keeps its refusals, and who had it sent again, in the order of time",
  () =>
    Effect.gen(function* () {
      const holds = yield* Holds
      const report = yield* OutboxReport
      const eventId = yield* refused("poison")
      assert.deepStrictEqual(
        (yield* report.show(eventId)).story.map(({ what }) => what),
        [
          "Counted, version 1, was written",
          "attempt 1 was refused: topic counters, partition 0: message rejected: too large",
          "dead after 1 attempt"
        ]
      )
      yield* (yield* OutboxDeadLetters).retry(eventId, operator)
      const [head] = yield* holds.due([{ lane: laneOf("poison") }])
      yield* holds.published(head!, { partition: 3, baseOffset: 42n })

      const { data, headers, ...event } = yield* report.show(eventId)
      assert.include(event, { status: "published", partition: 3, offset: "42", schemaVersion: 1 })
      assert.deepStrictEqual(data, { by: 1 })
      assert.include(headers, { "event-id": eventId, "event-type": "Counted", "schema-version": "1" })
      assert.include(headers["traceparent"], event.traceId)
      assert.deepStrictEqual(
        event.story.map(({ by, what }) => [what, by]),
        [
          ["Counted, version 1, was written", undefined],
          ["attempt 1 was refused: topic counters, partition 0: message rejected: too large", undefined],
          ["retry: the limit was raised", "ada"],
          ["published to counters, partition 3, offset 42", undefined]
        ]
      )
      const times = event.story.map(({ at }) => at)
      assert.deepStrictEqual(times, times.toSorted())
    }).pipe(Effect.scoped, Effect.provide(outbox), Effect.provide(oneRefusal))
)

it.live("refused events are listed in pages, grouped by cause, and retried by cause", () =>
  Effect.gen(function* () {
    const report = yield* OutboxReport
    const ids: Array<string> = []
    for (const name of ["a", "b", "c"]) ids.push(yield* refused(name))
    const first = yield* report.list(["dead"], {}, { limit: 2 })
    assert.strictEqual(first.items.length, 2)
    const rest = yield* report.list(["dead"], {}, { limit: 2, cursor: first.nextCursor! })
    assert.isNull(rest.nextCursor)
    assert.deepStrictEqual(
      [...first.items, ...rest.items].map(({ eventId }) => eventId),
      ids.toSorted().toReversed()
    )

    const causes = yield* report.causes({}, 10)
    assert.deepStrictEqual(
      causes.map(({ cause, count, eventType, status, topic }) => ({ cause, count, eventType, status, topic })),
      [
        {
          // Its numbers are left out.
          cause: "topic counters, partition …: message rejected: too large",
          count: 3,
          eventType: "Counted",
          status: "dead",
          topic: "counters"
        }
      ]
    )
    const { cause } = causes[0]!
    assert.deepStrictEqual(yield* report.causes({ cause: "another" }, 10), [])
    assert.deepStrictEqual(yield* report.causes({ topic: "another" }, 10), [])
    assert.strictEqual((yield* report.list(["dead"], { cause }, { limit: 10 })).items.length, 3)
    assert.strictEqual((yield* report.list(["dead"], { cause: "another" }, { limit: 10 })).items.length, 0)
    const letters = yield* OutboxDeadLetters
    assert.strictEqual((yield* letters.retryAll({ cause: "another" }, operator)).retried, 0)
    assert.strictEqual((yield* letters.retryAll({ cause, aggregateId: "a", sinceSeconds: 3_600 }, operator)).retried, 1)
    // It is being tried again, and still waits for the same cause.
    assert.deepStrictEqual(
      (yield* report.causes({}, 10)).map(({ count, status }) => [count, status]),
      [
        [2, "dead"],
        [1, "retrying"]
      ]
    )
  }).pipe(Effect.scoped, Effect.provide(outbox), Effect.provide(oneRefusal))
)

const inboxSettings = Layer.succeed(HoldSettings, { retryBaseMillis: 60_000, maxAttempts: 2 })

it.live("an event that a consumer applied in the end keeps its failures, and who had it tried again", () =>
  Effect.gen(function* () {
    const report = yield* InboxReport
    const { broken, subscriber } = Deliveries.makeSubscriber("one")
    broken.set("a/1", Effect.fail(new Error("no such account")))
    const eventId = Deliveries.idOf("a", 1)
    const partition = Deliveries.makePartition(5)
    yield* Deliveries.deliver(subscriber, partition.slice([Deliveries.record("a", 1, { data: { by: 7 } })]))
    const behind = partition.slice([Deliveries.record("a", 2)])
    yield* Deliveries.deliver(subscriber, behind)
    const [tried] = yield* report.status(["one"])
    assert.deepInclude(tried, { retrying: 1, parked: 1, dead: 0, retryingCause: "no such account" })
    assert.isAtLeast(tried!.retryingSeconds!, 0)
    assert.deepStrictEqual(yield* report.counts("one"), { retrying: 1, parked: 1, dead: 0, gaps: 0 })
    yield* Deliveries.retryAll(subscriber, 1)

    const dead = yield* report.show("one", eventId.toUpperCase())
    assert.include(dead, { status: "dead", consumer: "one", eventId, topic: "counters", partition: 5, offset: "0" })
    assert.include(dead, { key: "a", attempts: 2 })
    assert.deepStrictEqual(dead.headers, { "event-id": eventId })
    assert.deepStrictEqual((JSON.parse(dead.payload!) as { readonly data: unknown }).data, { by: 7 })
    const [status, other] = yield* report.status(["one", "other"])
    const { oldestHeldSeconds, ...counts } = status!
    const none = { retrying: 0, retryingSeconds: null, retryingCause: null, gaps: 0, discarded: 0 }
    assert.deepStrictEqual(counts, { consumer: "one", ...none, parked: 1, dead: 1 })
    assert.isAtLeast(oldestHeldSeconds!, 0)
    assert.isNull(other!.oldestHeldSeconds)

    broken.clear()
    yield* (yield* InboxDeadLetters).retry("one", eventId, operator)
    yield* Deliveries.retryAll(subscriber, 1)
    const applied = yield* report.show("one", eventId)
    assert.include(applied, { status: "applied", payload: null })
    assert.deepStrictEqual(
      applied.story.map(({ by, what }) => [what.split("\n")[0], by]),
      [
        ["attempt 1 failed: no such account", undefined],
        ["attempt 2 failed: no such account", undefined],
        ["retry: the limit was raised", "ada"],
        ["one applied it", undefined]
      ]
    )
    // An event that went well at once has a story, too.
    yield* Deliveries.deliver(subscriber, partition.slice([Deliveries.record("b", 1)]))
    const fine = yield* report.show("one", Deliveries.idOf("b", 1))
    assert.deepStrictEqual(
      fine.story.map(({ what }) => what),
      ["one applied it"]
    )
    assert.strictEqual((yield* Effect.flip(report.show("other", eventId)))._tag, "EventUnknown")
  }).pipe(Effect.scoped, Effect.provide(Deliveries.process), Effect.provide(inboxSettings))
)

it.live("events that a consumer could not apply are listed in pages, and grouped by cause, consumer and state", () =>
  Effect.gen(function* () {
    const report = yield* InboxReport
    const partition = Deliveries.makePartition()
    for (const name of ["one", "two"]) {
      const { broken, subscriber } = Deliveries.makeSubscriber(name)
      for (const id of ["a", "b"]) broken.set(`${id}/1`, Effect.fail(new Error(`account 47${id.length} is closed`)))
      yield* Deliveries.deliver(
        subscriber,
        partition.slice([
          Deliveries.record("a", 1),
          Deliveries.record("b", 1),
          Deliveries.record("c", 2),
          Deliveries.garbage("d")
        ])
      )
      yield* Deliveries.retryAll(subscriber, 1)
    }
    const states = ["dead", "gap"] as const
    const all: Array<string> = []
    let cursor: string | undefined
    do {
      const page: Page<Entry> = yield* report.list(states, {}, { limit: 3, cursor })
      all.push(...page.items.map(({ consumer, eventId }) => `${consumer}/${eventId}`))
      cursor = page.nextCursor ?? undefined
    } while (cursor !== undefined)
    assert.strictEqual(all.length, 8)
    assert.strictEqual(new Set(all).size, 8)

    const causes = yield* report.causes({ consumer: "two" }, 10)
    assert.deepStrictEqual(
      causes.map(({ cause, consumer, count, eventType, status }) => ({ cause, consumer, count, eventType, status })),
      [
        { cause: "account … is closed", consumer: "two", count: 2, eventType: "Counted", status: "dead" },
        { cause: causes[1]!.cause, consumer: "two", count: 1, eventType: null, status: "dead" }
      ]
    )
    assert.strictEqual((yield* report.list(states, { cause: "account … is closed" }, { limit: 10 })).items.length, 4)
    // A record that can't be read is shown under its name, with what there is of it.
    const unreadable = yield* report.show("one", "counters:0:3")
    assert.include(unreadable, { status: "dead", eventType: null, payload: "{broken", key: "d" })
    const letters = yield* InboxDeadLetters
    assert.strictEqual(
      (yield* letters.retryAll({ cause: "account … is closed", consumer: "one" }, operator)).retried,
      2
    )
  }).pipe(Effect.scoped, Effect.provide(Deliveries.process), Effect.provide(inboxSettings))
)
