/** Which batches are refused without a send, for how long, and which refusals teach nothing. */
import { assert, it } from "@effect/vitest"
import { Array, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { BrokerUnavailable, MessageRejected, type PublishError } from "../../src/brokers/Broker.ts"
import * as SizeLimits from "../../src/guards/SizeLimits.ts"
import { Lane } from "../../src/outbox/Lane.ts"
import { Publisher } from "../../src/outbox/Publisher.ts"
import type { QueuedEvent } from "../../src/outbox/Queue.ts"

const event = (recordBytes: number): QueuedEvent => ({
  lane: Lane.make(0),
  seq: 1n,
  recordBytes,
  eventId: "0199e2a0-0000-7000-8000-000000000000",
  topic: "orders",
  eventType: "Happened",
  schemaVersion: 1,
  aggregateType: "Order",
  aggregateId: "a",
  aggregateVersion: 1,
  occurredAt: "2026-01-01T00:00:00.000Z",
  traceId: "4bf92f3577b34da6a3ce929d0e0e4736",
  spanId: "00f067aa0ba902b7",
  data: "{}"
})
const tooLarge = new MessageRejected({ topic: "orders", partition: 0, reason: "too large", isTooLarge: true })

/** Sends batches through the guard, to a broker that answers with `answer`. `send` tells whether a batch reached the broker. */
const make = Effect.gen(function* () {
  const broker = { answer: tooLarge as PublishError | undefined, sends: 0 }
  const inner = Layer.succeed(Publisher, {
    prepare: () => Effect.succeed(8),
    partitionsOf: () => 8,
    publish: () =>
      Effect.suspend(() => {
        broker.sends++
        return broker.answer === undefined
          ? Effect.succeed({ partition: 0, baseOffset: 0n })
          : Effect.fail(broker.answer)
      })
  })
  const { publish } = yield* Effect.provide(Publisher, Layer.provide(SizeLimits.layer, inner))
  return {
    broker,
    send: Effect.fnUntraced(function* (bytes: Array.NonEmptyArray<number>, topic = "orders") {
      const before = broker.sends
      const outcome = yield* Effect.result(
        publish({ topic, partition: 0, partitions: 8, events: Array.map(bytes, event) })
      )
      const isSent = broker.sends > before
      if (!isSent) assert.isTrue(outcome._tag === "Failure" && outcome.failure._tag === "MessageRejected")
      return isSent
    })
  }
})

it.effect("a batch of the size that was refused is refused without a send, and a smaller one is sent", () =>
  Effect.gen(function* () {
    const { broker, send } = yield* make
    assert.isTrue(yield* send([500, 500]))
    broker.answer = undefined
    assert.isFalse(yield* send([500, 500]))
    assert.isFalse(yield* send([1_000, 1, 1]))
    assert.isTrue(yield* send([500, 499]))
    assert.isTrue(yield* send([500, 500], "others"), "another topic has its own limit")
  })
)

it.effect("the smallest refusal counts", () =>
  Effect.gen(function* () {
    const { broker, send } = yield* make
    yield* send([500, 500])
    assert.isTrue(yield* send([200, 200]))
    assert.isFalse(yield* send([300, 200]))
    broker.answer = undefined
    assert.isTrue(yield* send([200, 199]))
  })
)

it.effect("an event alone is always sent, and its refusal says nothing about batches", () =>
  Effect.gen(function* () {
    const { send } = yield* make
    assert.isTrue(yield* send([300]))
    assert.isTrue(yield* send([500, 500]))
    assert.isTrue(yield* send([5_000]))
    assert.isFalse(yield* send([1_000, 1]))
  })
)

it.effect("a refusal is believed for ten seconds: a limit that was raised is noticed after that", () =>
  Effect.gen(function* () {
    const { broker, send } = yield* make
    yield* send([500, 500])
    broker.answer = undefined
    yield* TestClock.adjust("9999 millis")
    assert.isFalse(yield* send([500, 500]))
    yield* TestClock.adjust("1 millis")
    assert.isTrue(yield* send([500, 500]))
    assert.isTrue(yield* send([5_000, 500]))
  })
)

it.effect("a refusal for another reason, or no answer, teaches no limit", () =>
  Effect.gen(function* () {
    const { broker, send } = yield* make
    for (const answer of [
      new MessageRejected({ topic: "orders", partition: 0, reason: "not allowed" }),
      new BrokerUnavailable({ operation: "publish", cause: "away" })
    ]) {
      broker.answer = answer
      for (let turn = 0; turn < 2; turn++) assert.isTrue(yield* send([500, 500]))
    }
  })
)
