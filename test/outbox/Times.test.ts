/** A time is read from the database as the stored instant, in UTC, whatever the sessions' time zone is. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { OutboxDeadLetters } from "../../src/operations/OutboxDeadLetters.ts"
import { History } from "../../src/operations/History.ts"
import { Holds } from "../../src/outbox/holds/Holds.ts"
import * as Parking from "../../src/outbox/holds/Parking.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import { OutboxReport } from "../../src/operations/reports/OutboxReport.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Lanes from "../support/Lanes.ts"

const process = Layer.mergeAll(Parking.layer, History.layer, OutboxReport.layer, OutboxDeadLetters.layer).pipe(
  Layer.provideMerge(Queue.layer),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** The clock stands still, so every time that is written or read is this one. */
const now = "2026-03-01T00:30:00.123Z"
const stopClock = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(
    `CREATE OR REPLACE FUNCTION clock_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT timestamptz '${now}' $$`
  )
})

it.live("the queue, the history and a replay contain the time of an event", () =>
  Effect.gen(function* () {
    yield* stopClock
    const queue = yield* Queue
    const history = yield* History
    const report = yield* OutboxReport
    const lane = laneOf("fine")
    yield* Refusals.append("fine", 1, 1)
    const events = yield* Lanes.fetch(queue, lane, [])
    assert.strictEqual(events[0]?.occurredAt, now)
    assert.strictEqual((yield* history.of("fine"))[0]?.occurredAt, now)
    yield* Lanes.mark(queue, lane, events, { partition: 0, baseOffset: 0n })
    assert.deepInclude((yield* history.of("fine"))[0]?.delivery, { state: "published", publishedAt: now })
    assert.strictEqual((yield* history.replay({ topic: Counters.topic })).events[0]?.occurredAt, now)
    assert.deepInclude(yield* report.show(events[0]!.eventId, []), { occurredAt: now, publishedAt: now })
  }).pipe(Effect.provide(process), Effect.provide(Refusals.soon()))
)

it.live("a refused event keeps the time that it occurred at; its attempts and an operator's changes have theirs", () =>
  Effect.gen(function* () {
    yield* stopClock
    const queue = yield* Queue
    const holds = yield* Holds
    const report = yield* OutboxReport
    const lane = laneOf("poison")
    yield* Refusals.append("poison", 1, 1)
    const [event] = yield* Lanes.fetch(queue, lane, [])
    yield* holds.hold(lane, event!, Refusals.rejection)
    yield* (yield* OutboxDeadLetters).retry(event!.eventId, { actor: "ada", reason: "it is a test" })
    const [head] = yield* holds.due([{ lane }])
    assert.strictEqual(head?.occurredAt, now)
    const { nextAttemptAt, story } = yield* report.show(event!.eventId, [])
    assert.strictEqual(nextAttemptAt, now)
    assert.deepStrictEqual(
      story.map(({ at, what }) => [at, what.split(" ")[0]]),
      [
        [now, "Counted,"],
        [now, "attempt"],
        [now, "retry:"]
      ]
    )
    yield* holds.published(head!, { partition: 0, baseOffset: 0n, ageMillis: () => 60_000 })
    const { publishedAt } = yield* report.show(event!.eventId, [])
    assert.strictEqual(publishedAt, "2026-03-01T00:29:00.123Z", "the time of its acknowledgement")
  }).pipe(Effect.provide(process), Effect.provide(Refusals.soon({ retryBaseMillis: 50_000_000 })))
)
