/** An operator's decision about a held event wakes the consumer, once the change is visible to it. */
import { assert, it } from "@effect/vitest"
import { Effect, Latch, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { forkLoop, HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import { Holds } from "../../src/inbox/holds/Holds.ts"
import type { Subscriber } from "../../src/inbox/Subscriber.ts"
import * as Consumer from "../../src/inbox/Consumer.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import * as Counters from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"
import * as Wakeups from "../support/Wakeups.ts"

const { deliver, effectsOf, holdOn, idOf, makePartition, makeSubscriber, record } = Deliveries

const operator = { actor: "ada", reason: "the printer has paper again" }
const outOfPaper = Effect.fail(new Error("out of paper"))
/** Without a decision the next attempt is a day away. */
const settings = (maxAttempts: number) => Layer.succeed(HoldSettings, { retryBaseMillis: 86_400_000, maxAttempts })

const audited = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly action: string }>`SELECT action FROM operator_audit ORDER BY audit_id`
  return rows.map(({ action }) => action).join(" ") || "nothing"
})

/** The operator's decisions, and the event that each concerns: version 2 of `a`, or version 3 if version 2 has not come. */
const decisions = [
  {
    what: "a retry of an event that is being retried",
    action: "retry",
    isGap: false,
    maxAttempts: 3,
    decide: InboxDeadLetters.use((letters) => letters.retry("one", idOf("a", 2), operator)),
    effects: [1, 2, 3]
  },
  {
    what: "a retry of a dead letter",
    action: "retry",
    isGap: false,
    maxAttempts: 1,
    decide: InboxDeadLetters.use((letters) => letters.retry("one", idOf("a", 2), operator)),
    effects: [1, 2, 3]
  },
  {
    what: "a retry of all dead letters",
    action: "retry",
    isGap: false,
    maxAttempts: 1,
    decide: InboxDeadLetters.use((letters) => letters.retryAll({}, operator)),
    effects: [1, 2, 3]
  },
  {
    what: "a discard of a dead letter",
    action: "discard",
    isGap: false,
    maxAttempts: 1,
    decide: InboxDeadLetters.use((letters) => letters.discard("one", idOf("a", 2), operator)),
    effects: [1, 3]
  },
  {
    what: "a skip of a version that has not come",
    action: "skip",
    isGap: true,
    maxAttempts: 1,
    decide: InboxDeadLetters.use((letters) => letters.skip("one", idOf("a", 3), operator)),
    effects: [1, 3]
  }
]

/** A consumer `one` that has applied version 1 of `a`, and none of the later ones. */
const hold = Effect.fnUntraced(function* (isGap: boolean) {
  const { broken, subscriber } = makeSubscriber("one")
  broken.set("a/2", outOfPaper)
  const records = isGap ? [record("a", 1), record("a", 3)] : [record("a", 1), record("a", 2), record("a", 3)]
  yield* deliver(subscriber, makePartition().slice(records))
  assert.deepStrictEqual(yield* effectsOf("one", "a"), [1])
  broken.clear()
  return subscriber
})

for (const { action, decide, effects, isGap, maxAttempts, what } of decisions) {
  it.live(`the consumer is woken after the commit of ${what}`, () =>
    Effect.gen(function* () {
      yield* hold(isGap)
      const heard = yield* Wakeups.listen(["inbox"], audited)
      yield* decide
      assert.deepStrictEqual(yield* heard, [`inbox one: ${action}`])
    }).pipe(Effect.scoped, Effect.provide(Deliveries.process), Effect.provide(settings(maxAttempts)))
  )

  it.live(`a consumer that never polls goes on after ${what}`, () =>
    Effect.gen(function* () {
      const subscriber = yield* hold(isGap)
      const retries = yield* HoldRetries
      const hasLooked = yield* Latch.make(false)
      const watched = {
        ...retries,
        nextDueMillis: (consumer: string) => Effect.tap(retries.nextDueMillis(consumer), hasLooked.open)
      }
      const holds = {
        ...(yield* Holds),
        forkRetries: (given: Subscriber) => Effect.provideService(forkLoop(given), HoldRetries, watched)
      }
      yield* Layer.build(
        Consumer.layer(subscriber).pipe(Layer.provide(Wakeups.withoutPolls), Layer.provide(Layer.succeed(Holds, holds)))
      )
      // Its first round would find the decision without a wake-up.
      yield* hasLooked.await
      assert.isAbove((yield* retries.nextDueMillis("one")) ?? Infinity, 0, "nothing is due by itself")
      yield* decide
      yield* Counters.eventually(
        "the parked events to be applied",
        Effect.map(effectsOf("one", "a"), (found) => found.length === effects.length)
      )
      assert.deepStrictEqual(yield* effectsOf("one", "a"), effects)
      yield* Counters.eventually(
        "the hold to end",
        Effect.map(holdOn("one", "a"), (found) => found === undefined)
      )
    }).pipe(Effect.scoped, Effect.provide(Deliveries.process), Effect.provide(settings(maxAttempts)))
  )
}
