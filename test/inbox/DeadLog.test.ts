/** What an operator reads in the log about an event that a consumer can't apply. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import { PermanentFailure } from "../../src/inbox/Subscriber.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import * as Deliveries from "../support/Deliveries.ts"
import { linesOf } from "../support/LogLines.ts"

const { deliver, idOf, makePartition, makeSubscriber, record, retryAll } = Deliveries

/** Two attempts. Due times are far ahead: a test brings them forward, and never waits for one. */
const soon = Layer.succeed(HoldSettings, { retryBaseMillis: 60_000, maxAttempts: 2 })

it.live("a failure that is tried again is a warning; a dead letter, at once or at the limit, is an error", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { broken, subscriber } = makeSubscriber("one")
    const partition = makePartition()
    broken.set("a/1", Effect.fail(new PermanentFailure({ reason: "no reader here" })))
    broken.set("b/1", Effect.fail(new Error("out of paper")))
    assert.deepStrictEqual(yield* linesOf(deliver(subscriber, partition.slice([record("a", 1)]))), [
      "Error one holds an aggregate: its event is dead: no reader here"
    ])
    assert.deepStrictEqual(yield* linesOf(deliver(subscriber, partition.slice([record("b", 1)]))), [
      "Warn one holds an aggregate: its event is retrying: out of paper"
    ])
    assert.deepStrictEqual(yield* linesOf(retryAll(subscriber)), [
      "Error one could not apply an event, which waits for an operator: out of paper"
    ])
    // An operator's decision is a line.
    const retry = letters.retry("one", idOf("a", 1), { actor: "ada\n", reason: "the reader\u001b[31m is back" })
    assert.deepStrictEqual(yield* linesOf(retry), [
      `Info operator ada�: retry of inbox event one ${idOf("a", 1)}: the reader�[31m is back`
    ])
  }).pipe(Effect.provide(Deliveries.process), Effect.provide(soon))
)
