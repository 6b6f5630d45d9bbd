/** The cost of a refused event: no other aggregate waits for its sends or its delays, and the log names it. */
import { assert, it } from "@effect/vitest"
import { Effect, Latch, Layer, Logger, References, Tracer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { MessageRejected } from "../../src/brokers/Broker.ts"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import * as HoldRetries from "../../src/outbox/holds/HoldRetries.ts"
import { HoldSettings } from "../../src/outbox/holds/Parking.ts"
import { laneCount, laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Outbox } from "../../src/outbox/Outbox.ts"
import { QueueSettings } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const candidates = Array.from({ length: 5_000 }, (_, index) => `other-${index}`)
const idsIn = (lane: number, count: number) => candidates.filter((id) => laneOf(id) === lane).slice(0, count)

/** Waits until each of the aggregates has that many events in the topic. */
const untilEach = (what: string, ids: ReadonlyArray<string>, count: number) =>
  Counters.eventually(
    what,
    Effect.map(Counters.published, (records) => {
      const deliveries = Counters.firstDeliveries(records)
      return ids.every((id) => deliveries.get(id)?.length === count)
    })
  )

it.live(
  "no other partition waits for a send of a refused event, and the lanes of its own wait only for the answer",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const lane = laneOf("poison")
      const neighbours = idsIn(lane, 4)
      const partitions = 8
      const elsewhere = Array.from({ length: laneCount }, (_, other) => other)
        .filter((other) => other % partitions !== lane % partitions)
        .flatMap((other) => idsIn(other, 1))
      assert.strictEqual(elsewhere.length, laneCount - laneCount / partitions)
      // One send is in flight for each partition, so the partition's other lanes wait for the answer as well.
      const besides = Array.from({ length: laneCount }, (_, other) => other)
        .filter((other) => other !== lane && other % partitions === lane % partitions)
        .flatMap((other) => idsIn(other, 1))

      /** The broker answers a send of this event alone only when the gate opens. */
      const gate = yield* Latch.make(false)
      let asked = 0
      const topic = Refusals.makeTopic()
      topic.refused.add("poison/2")
      const dispatcher = TestProcess.dispatcherOver((layer) =>
        Refusals.over(topic)(layer).pipe(
          TestProcess.publishing((batch, broker) =>
            batch.records.length === 1 && Refusals.nameOf(batch.records[0].value) === "poison/2"
              ? Effect.andThen(
                  Effect.andThen(
                    Effect.sync(() => asked++),
                    gate.await
                  ),
                  broker.publish(batch)
                )
              : broker.publish(batch)
          )
        )
      ).pipe(Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })))
      const appendAll = (ids: ReadonlyArray<string>, version: number) =>
        Effect.forEach(ids, (id) => Refusals.append(id, version, 1), { discard: true })
      const atTheGate = (sends: number) =>
        Counters.eventually(
          `send ${sends} of the event by itself`,
          Effect.sync(() => asked >= sends)
        )

      // In the middle of its lane's first batch.
      yield* appendAll(neighbours.slice(0, 2), 1)
      yield* Refusals.append("poison", 1, 3)
      yield* appendAll([...neighbours.slice(2), ...besides, ...elsewhere], 1)
      yield* Layer.build(dispatcher)
      // A stop does not interrupt a send, also at the end of a failed test.
      yield* Effect.addFinalizer(() => gate.open)

      yield* atTheGate(1)
      yield* untilEach("every other partition's events, while the broker is at the refused one", elsewhere, 1)
      yield* appendAll(elsewhere, 2)
      yield* untilEach("what those lanes were given meanwhile", elsewhere, 2)
      yield* gate.open
      // The next attempt may be a day away.
      yield* untilEach("the rest of the batch, behind the refusal", [...neighbours, ...besides], 1)
      yield* appendAll(neighbours, 2)
      yield* untilEach("what the lane was given since", neighbours, 2)

      // Each further attempt behaves in the same way.
      yield* gate.close
      yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now()`
      yield* HoldRetries.announce(lane)
      yield* atTheGate(2)
      yield* appendAll([...elsewhere, ...neighbours], 3)
      yield* untilEach("the other lanes' events, while it is tried again", elsewhere, 3)
      yield* gate.open
      yield* untilEach("the lane's events, behind the second refusal", neighbours, 3)
      assert.deepStrictEqual(
        (yield* Refusals.statesOf("poison")).map(({ status }) => status),
        ["published", "retrying", "parked"]
      )
    }).pipe(
      Effect.scoped,
      Effect.provide(writer),
      Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 86_400_000, maxAttempts: 10, skipTopics: [] }))
    )
)

it.effect("a topic's limit is remembered for a while, and a backlog is sent below it without further refusals", () =>
  Effect.gen(function* () {
    const lane = laneOf("poison")
    const [well, large] = idsIn(lane, 2) as [string, string]
    const limit = 4
    const sends: Array<number> = []
    let refusals = 0
    const steps = TestProcess.dispatcherStepsOver(
      TestProcess.publishing((batch, broker) => {
        const { partition, records, topic } = batch
        sends.push(records.length)
        if (records.length <= limit && !records.some(({ key }) => key === large)) return broker.publish(batch)
        refusals++
        return Effect.fail(new MessageRejected({ topic, partition, reason: "too large", isTooLarge: true }))
      })
    )
    yield* Effect.gen(function* () {
      const { drainOnce } = yield* Dispatcher
      const outbox = yield* Outbox
      yield* Refusals.append(well, 1, 32)
      yield* Transaction.run(
        outbox.append({ topic: Counters.topic, aggregateType: "Counter", aggregateId: large }, 1, [
          { eventType: "Counted", schemaVersion: 1, data: { by: 1, why: "x".repeat(20_000) } }
        ])
      )
      yield* Refusals.append(well, 33, 95)
      assert.strictEqual(yield* drainOnce([lane]), "more")
      // 64, 32, 16, 8 and then fours. Only the part with the too large event is halved down to one event.
      assert.isAtLeast(refusals, 5)
      const before = refusals
      sends.length = 0
      yield* drainOnce([lane])
      assert.strictEqual(refusals, before)
      assert.deepStrictEqual(new Set(sends), new Set([limit]))
      assert.strictEqual((yield* Refusals.statesOf(well)).filter(({ status }) => status === "published").length, 127)
      assert.deepStrictEqual(
        (yield* Refusals.statesOf(large)).map(({ status }) => status),
        ["retrying"]
      )
      // A raised limit is noticed once the remembered one has expired.
      yield* TestClock.adjust("11 seconds")
      sends.length = 0
      yield* Refusals.append(well, 128, 8)
      yield* drainOnce([lane])
      assert.strictEqual(sends[0], 8)
    }).pipe(
      Effect.provide(
        Dispatcher.layer.pipe(
          Layer.provideMerge(steps),
          Layer.provide(Layer.succeed(QueueSettings, { archive: true, batchSize: 64, batchBytes: 900_000 }))
        )
      )
    )
  }).pipe(Effect.provide(writer))
)

it.live("each refusal leaves a line in the log with the event's names, its trace, and the number of the attempt", () =>
  Effect.gen(function* () {
    const lines: Array<{
      readonly level: string
      readonly message: string
      readonly fields: Readonly<Record<string, unknown>>
    }> = []
    const logger = Logger.make(({ fiber, logLevel, message }) => {
      const fields = fiber.getRef(References.CurrentLogAnnotations)
      if ("event_id" in fields) lines.push({ level: logLevel, message: String(message), fields })
    })
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/2")
    const traceId = "4bf92f3577b34da6a3ce929d0e0e4736"
    yield* Refusals.append("poison", 1, 3).pipe(
      Effect.withParentSpan(Tracer.externalSpan({ traceId, spanId: "00f067aa0ba902b7" }))
    )
    yield* Layer.build(
      TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 })),
        Layer.provide(Logger.layer([logger]))
      )
    ).pipe(Effect.provideService(References.MinimumLogLevel, "Warn"))
    yield* Counters.eventually(
      "a line for each of three attempts",
      Effect.sync(() => lines.length >= 3)
    )
    const names = {
      topic: Counters.topic,
      event_id: yield* Refusals.idOf("poison", "dead"),
      event_type: "Counted",
      aggregate_id: "poison",
      trace_id: traceId
    }
    assert.strictEqual(lines.length, 3)
    // A dead letter waits for a person.
    assert.deepStrictEqual(
      lines.map(({ level }) => level),
      ["Warn", "Warn", "Error"]
    )
    for (const [index, { fields, message }] of lines.entries()) {
      assert.deepInclude(fields, { ...names, attempt: index + 1 })
      assert.include(String(fields["detail"]), "too large")
      assert.include(message, index < 2 ? "it is tried again" : "it is a dead letter")
    }
  }).pipe(
    Effect.scoped,
    Effect.provide(writer),
    Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 0.02, maxAttempts: 3, skipTopics: [] }))
  )
)
