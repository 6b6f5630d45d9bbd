/**
 * Records that no table can store unchanged, and events with equal ids. None of them stops its partition, and an operator can handle each
 * of them.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { SqlClient } from "effect/sql"
import * as Envelope from "../../src/brokers/Envelope.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import { PermanentFailure } from "../../src/inbox/Subscriber.ts"
import * as Deliveries from "../support/Deliveries.ts"

const { deliver, effectsOf, garbage, holdOn, idOf, makePartition, makeSubscriber, parkedOf, record, retryAll, topic } =
  Deliveries

const operator = { actor: "test", reason: "it is a test" }
const soon = Layer.succeed(HoldSettings, { retryBaseMillis: 60_000, maxAttempts: 3 })
const run = <A, E>(
  test: Effect.Effect<A, E, Layer.Success<typeof Deliveries.process>>
): Effect.Effect<A, E | Layer.Error<typeof Deliveries.process>> =>
  test.pipe(Effect.provide(Deliveries.process), Effect.provide(soon))

/** An event with some wrong fields. */
const altered = (key: string, change: Readonly<Record<string, unknown>>, version = 1): Deliveries.Sent => {
  const event = JSON.parse(new TextDecoder().decode(record(key, version).value)) as Readonly<Record<string, unknown>>
  return { key, headers: {}, value: new TextEncoder().encode(JSON.stringify({ ...event, ...change })) }
}

const broken = garbage("k")
const unstorable = /[\0\p{Cs}]/gu
const lettersOf = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly id: string }>`SELECT event_id AS id FROM inbox_dead_letters ORDER BY broker_offset`
  return rows.map(({ id }) => id)
})

for (const [what, bad] of [
  ["a NUL in a header", { ...broken, headers: { bin: "A\0B" } }],
  ["a NUL in a header's name", { ...broken, headers: { "a\0b": "x" } }],
  ["a lone surrogate in a header", { ...broken, headers: { "\udc00": "\ud800" } }],
  ["a lone surrogate in its type", altered("k", { eventType: "X\ud800" })],
  ["a lone surrogate in its aggregate's id", altered("k", { aggregateId: "a\ud800", schemaVersion: 2 })],
  ["a lone surrogate in its aggregate's type", altered("k", { aggregateType: "a\ud800" })],
  ["a version that leaves none behind it", altered("k", { aggregateVersion: 2_147_483_647 })],
  ["a lone surrogate in its value's error", altered("k", { schemaVersion: "\0\ud800" })]
] as const) {
  it.live(`a record with ${what} is dead at once and can be given up, and its partition goes on`, () =>
    run(
      Effect.gen(function* () {
        const letters = yield* InboxDeadLetters
        const { subscriber } = makeSubscriber("one", "any-version")
        const partition = makePartition(3)
        yield* deliver(subscriber, partition.slice([bad, record("k", 1), record("b", 1)]))
        assert.strictEqual(partition.state.committed, 3n)
        assert.deepStrictEqual(yield* effectsOf("one", "b"), [1])
        assert.include(yield* holdOn("one", "k"), { status: "dead", eventId: `${topic}:3:0` })
        // It is parked unchanged, except for characters that no column can hold. Only records that can't be parked so are stored with key
        // and value alone.
        const sql = yield* SqlClient.SqlClient
        const kept = yield* sql`SELECT record_key AS key, record_headers AS headers FROM inbox_dead_letters`
        const headers = Object.entries(bad.headers).map((pair) =>
          pair.map((text) => text.replaceAll(unstorable, "\uFFFD"))
        )
        assert.deepStrictEqual(kept, [{ key: "k", headers: Object.fromEntries(headers) as unknown }])
        yield* letters.discard("one", `${topic}:3:0`, operator)
        yield* retryAll(subscriber)
        assert.deepStrictEqual(yield* effectsOf("one", "k"), [1])
      })
    )
  )
}

it.live(
  "a record whose key is not valid text holds an aggregate under that key with its invalid characters replaced",
  () =>
    run(
      Effect.gen(function* () {
        const { subscriber } = makeSubscriber("one")
        const partition = makePartition()
        yield* deliver(subscriber, partition.slice([garbage("k\0\ud800"), record("b", 1)]))
        assert.include(yield* holdOn("one", "k\uFFFD\uFFFD"), { status: "dead" })
        assert.strictEqual(partition.state.committed, 2n)
      })
    )
)

it.live(
  "in a topic that was created again, an unreadable record at a used offset is a new one, and stays the same when it is delivered again",
  () =>
    run(
      Effect.gen(function* () {
        const letters = yield* InboxDeadLetters
        const { subscriber } = makeSubscriber("one")
        const place = `${topic}:3:0`
        yield* deliver(subscriber, makePartition(3).slice([garbage("a")]))
        yield* letters.discard("one", place, operator)
        for (const [other, id] of [
          [garbage("b"), "b"],
          [garbage("a", "{other"), "a"],
          [garbage("k\0", "{other"), "k\uFFFD"]
        ] as const) {
          yield* deliver(subscriber, makePartition(3).slice([other]))
          const hold = yield* holdOn("one", id)
          assert.strictEqual(hold?.status, "dead")
          assert.match(hold?.eventId ?? "", new RegExp(`^${place}:[0-9a-f]{8}$`))
          const before = yield* Deliveries.everything
          yield* deliver(subscriber, makePartition(3).slice([other]))
          yield* deliver(subscriber, makePartition(3).slice([garbage("a")]))
          assert.deepStrictEqual(yield* Deliveries.everything, before)
        }
        assert.strictEqual((yield* lettersOf).length, 4)
      })
    )
)

it.live("unreadable records behind the highest version wait in their order", () =>
  run(
    Effect.gen(function* () {
      const { subscriber } = makeSubscriber("one", "any-version")
      const partition = makePartition()
      const last = altered("k", { aggregateVersion: 2_147_483_646 })
      yield* deliver(subscriber, partition.slice([last, broken, broken, broken, record("b", 1)]))
      assert.strictEqual(partition.state.committed, 5n)
      assert.deepStrictEqual(yield* effectsOf("one", "k"), [2_147_483_646])
      assert.include(yield* holdOn("one", "k"), { status: "dead", eventId: `${topic}:0:1` })
      assert.deepStrictEqual(yield* parkedOf("one", "k"), [`${topic}:0:2`, `${topic}:0:3`])
      yield* retryAll(subscriber)
    })
  )
)

it.live("two aggregates whose ids differ only in a lone surrogate are not confused", () =>
  run(
    Effect.gen(function* () {
      const { handled, subscriber } = makeSubscriber("one")
      const partition = makePartition()
      const bad = ["\ud800", "\ud801"].map((half) =>
        altered("k", { eventId: idOf(half.codePointAt(0)!.toString(), 1), aggregateId: `agg${half}h` })
      )
      yield* deliver(subscriber, partition.slice([...bad, record("b", 1)]))
      assert.strictEqual(partition.state.committed, 3n)
      assert.deepStrictEqual([...new Set(handled)], ["b/1"])
      assert.include(yield* holdOn("one", "k"), { status: "dead", eventId: `${topic}:0:0` })
      assert.deepStrictEqual(yield* parkedOf("one", "k"), [`${topic}:0:1`])
    })
  )
)

describe("records that no table takes", () => {
  for (const [what, check, aggregate] of [
    ["headers", "record_headers::text NOT LIKE '%poison%'", "k"],
    ["event", "event_type IS NULL", "k"],
    ["aggregate's id", "aggregate_id <> 'k'", `${topic}:0:0`]
  ] as const) {
    it.live(`a record whose ${what} is refused by the tables is parked with its key and value alone`, () =>
      run(
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const { broken: failing, subscriber } = makeSubscriber("one")
          const partition = makePartition()
          yield* sql.unsafe(`ALTER TABLE inbox_parked ADD CONSTRAINT refuses CHECK (${check})`)
          failing.set("k/1", Effect.fail(new PermanentFailure({ reason: "no reader here" })))
          const bad = { ...record("k", 1), headers: { is: "poison" } }
          yield* deliver(subscriber, partition.slice([bad, record("b", 1)]))
          assert.strictEqual(partition.state.committed, 2n)
          assert.deepStrictEqual(yield* effectsOf("one", "b"), [1])
          assert.include(yield* holdOn("one", aggregate), { status: "dead", eventId: `${topic}:0:0` })
          const [letter] = yield* sql<{ readonly value: Uint8Array; readonly headers: unknown }>`
            SELECT record_value AS value, record_headers AS headers FROM inbox_dead_letters WHERE event_id = ${`${topic}:0:0`}`
          assert.deepStrictEqual(Buffer.from(letter!.value), Buffer.from(bad.value))
          assert.deepStrictEqual(letter!.headers, { "key-base64": "aw==" })
        })
      )
    )
  }
})

describe("when an event happened", () => {
  const decode = (occurredAt: unknown) => Result.isSuccess(Envelope.decode(altered("k", { occurredAt })))
  for (const time of [
    "2026-01-01T12:00:00.000Z",
    "2026-01-01T12:00:00Z",
    "2026-01-01T12:00:00.123456789+05:30",
    "2024-02-29T23:59-08:00",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999Z"
  ]) {
    it(`${time} is a time`, () => assert.isTrue(decode(time)))
  }
  for (const time of [
    ["never", "yesterday", "infinity", "-infinity", "now", "", 0, null],
    ["2026-01-01T12:00:00", "2026-01-01", "2026-01-01 12:00:00Z", "+275760-09-13T00:00:00.000Z"],
    ["0000-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"],
    ["2026-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T25:00:00Z"],
    ["2026-01-01T12:00:00+16:00", "2026-01-01T12:00:60Z", "2026-01-01T12:00:00Z\n"]
  ].flat()) {
    it(`${JSON.stringify(time)} is none`, () => assert.isFalse(decode(time)))
  }

  it.live("an event with another kind of time is dead at once", () =>
    run(
      Effect.gen(function* () {
        const { handled, subscriber } = makeSubscriber("one")
        yield* deliver(subscriber, makePartition().slice([altered("k", { occurredAt: "infinity" })]))
        assert.include(yield* holdOn("one", "k"), { status: "dead", attempts: 1, eventId: `${topic}:0:0` })
        assert.deepStrictEqual(handled, [])
      })
    )
  )
})

describe("an id that several events have", () => {
  const eventId = idOf("twice", 1)

  it.live("dead events of two aggregates with one id are two dead letters, and each can be handled", () =>
    run(
      Effect.gen(function* () {
        const letters = yield* InboxDeadLetters
        const { broken: failing, subscriber } = makeSubscriber("one")
        for (const name of ["a/1", "b/1"])
          failing.set(name, Effect.fail(new PermanentFailure({ reason: "no reader here" })))
        const both = [altered("a", { eventId }), altered("b", { eventId })]
        const partition = makePartition()
        yield* deliver(subscriber, partition.slice([...both, record("a", 2), record("b", 2)]))
        assert.include(yield* holdOn("one", "a"), { status: "dead", eventId })
        assert.include(yield* holdOn("one", "b"), { status: "dead", eventId: `${topic}:0:1` })
        assert.deepStrictEqual(yield* lettersOf, [eventId, `${topic}:0:1`])
        // The same slice again: nothing changes.
        const before = yield* Deliveries.everything
        yield* deliver(subscriber, makePartition().slice([...both, record("a", 2), record("b", 2)]))
        assert.deepStrictEqual(yield* Deliveries.everything, before)

        yield* letters.discard("one", `${topic}:0:1`, operator)
        failing.clear()
        yield* letters.retry("one", eventId, operator)
        yield* retryAll(subscriber)
        assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2])
        assert.deepStrictEqual(yield* effectsOf("one", "b"), [2])
      })
    )
  )

  it.live("events with one id that wait together are all parked, and only the first one has its effect", () =>
    run(
      Effect.gen(function* () {
        const { broken: failing, subscriber } = makeSubscriber("one")
        failing.set("a/1", Effect.fail(new Error("out of paper")))
        const twins = [altered("a", { eventId }, 2), altered("a", { eventId }, 3)]
        yield* deliver(subscriber, makePartition().slice([record("a", 1), ...twins, record("a", 4)]))
        assert.deepStrictEqual(yield* parkedOf("one", "a"), [idOf("a", 1), eventId, `${topic}:0:2`, idOf("a", 4)])
        failing.clear()
        yield* retryAll(subscriber)
        assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2, 4])
        assert.isUndefined(yield* holdOn("one", "a"))
      })
    )
  )

  it.live("an event whose offset belongs to a dead letter, too, gets a third id, and its partition goes on", () =>
    run(
      Effect.gen(function* () {
        const { broken: failing, subscriber } = makeSubscriber("one")
        // The topic before it was created again: the records at these offsets are dead letters.
        yield* deliver(
          subscriber,
          makePartition(3).slice([record("old", 1), garbage("y"), record("old", 2), garbage("z")])
        )
        failing.set("a/1", Effect.fail(new PermanentFailure({ reason: "no reader here" })))
        failing.set("b/1", Effect.fail(new PermanentFailure({ reason: "no reader here" })))
        const partition = makePartition(3)
        const twins = [altered("a", { eventId }), altered("b", { eventId })]
        const behind = altered("b", { eventId }, 2)
        yield* deliver(subscriber, partition.slice([...twins, record("c", 1), behind, record("d", 1)]))
        assert.strictEqual(partition.state.committed, 5n)
        assert.deepStrictEqual(yield* effectsOf("one", "d"), [1])
        const hold = yield* holdOn("one", "b")
        assert.strictEqual(hold?.status, "dead")
        assert.match(hold?.eventId ?? "", new RegExp(`^${topic}:3:1:[0-9a-f]{8}$`))
        const [waiting, ...more] = yield* parkedOf("one", "b")
        assert.match(waiting ?? "", new RegExp(`^${topic}:3:3:[0-9a-f]{8}$`))
        assert.deepStrictEqual(more, [])
      })
    )
  )

  it.live("two versions with one id in one slice: the second is a duplicate, and the aggregate goes on", () =>
    run(
      Effect.gen(function* () {
        const { subscriber } = makeSubscriber("one")
        const partition = makePartition()
        const twins = [altered("a", { eventId }, 2), altered("a", { eventId }, 3)]
        yield* deliver(subscriber, partition.slice([record("a", 1), ...twins, record("a", 4)]))
        assert.deepStrictEqual(yield* effectsOf("one", "a"), [1, 2, 4])
        assert.isUndefined(yield* holdOn("one", "a"))
      })
    )
  )
})
