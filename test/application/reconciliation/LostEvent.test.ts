/** An event that nobody can tell again: what a repair's refusal says is done, and the books agree. */
import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { HoldRetries } from "../../../src/inbox/holds/HoldRetries.ts"
import { bind } from "../../../src/inbox/Subscriber.ts"
import { InboxDeadLetters } from "../../../src/operations/InboxDeadLetters.ts"
import { Wakeups } from "../../../src/platform/Wakeups.ts"
import { pay, place } from "../World.ts"
import { brokenIn, deliver, look, repair, subscribers, test } from "./Books.ts"

/** `paid-once inbox skip CONSUMER EVENT`, for each event that `paid-once inbox list` names as a gap. */
const skipAll = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const letters = yield* InboxDeadLetters
  const { retryHeld } = yield* HoldRetries
  for (const subscriber of subscribers) {
    const held = yield* sql<{ readonly id: string }>`
      SELECT event_id AS id FROM inbox_holds WHERE consumer_name = ${subscriber.name} AND status = 'gap'`
    assert.strictEqual(held.length, 1, subscriber.name)
    yield* letters.skip(subscriber.name, held[0]!.id, { actor: "ada", reason: "its event is lost" })
    yield* retryHeld(bind(subscriber as never, (yield* Effect.context<never>()) as never))
  }
}).pipe(Effect.provide(InboxDeadLetters.layer.pipe(Layer.provide(Wakeups.layerDirect))))

const lost = /^(event-missing) .*paid-once inbox skip CONSUMER EVENT/
const refusals = Effect.map(repair, ({ items }) =>
  items.flatMap(({ repair, rule }) => (repair?.outcome === "manual" ? [`${rule} ${repair.why}`] : []))
)
const saysSkip = Effect.gen(function* () {
  const [refusal, ...more] = yield* refusals
  assert.match(refusal ?? "nothing was refused", lost)
  assert.deepStrictEqual(more, [])
})
const agreesAfterSkip = Effect.gen(function* () {
  yield* deliver
  yield* skipAll
  yield* repair
  assert.deepStrictEqual(brokenIn(yield* look), {})
})

test(
  "OrderPlaced is lost before a later event, or with it",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    for (const isBoth of [false, true]) {
      const orderId = yield* place
      if (!isBoth) yield* sql`DELETE FROM outbox_events`
      yield* pay(orderId, orderId)
      if (isBoth) yield* sql`DELETE FROM outbox_events`
      yield* saysSkip
      yield* agreesAfterSkip
    }
  })
)

test(
  "the event of a declined payment is lost",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const orderId = yield* place
    yield* deliver
    yield* pay(orderId, "declined", "pm_declined")
    yield* sql`DELETE FROM outbox_events`
    yield* saysSkip
    yield* pay(orderId, "again")
    yield* agreesAfterSkip
  })
)
