/** The outbox's gauges report what the tables hold: alerts rely on them. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Metric } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as OutboxMetrics from "../../src/operations/OutboxMetrics.ts"
import { HoldSettings } from "../../src/outbox/holds/Parking.ts"
import { allLanes } from "../../src/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Publisher } from "../../src/outbox/Publisher.ts"
import { type Acknowledged, type Fetched, Queue, type QueuedEvent } from "../../src/outbox/Queue.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const names = {
  pending: "outbox_events_pending",
  oldestSeconds: "outbox_oldest_pending_age_seconds",
  parked: "outbox_events_parked",
  deadLetters: "outbox_dead_letters"
} as const

/** The first samples of a new process with a dispatcher. It takes them when it starts, and the next ones much later. */
const firstSamples = (topic: Refusals.Topic) =>
  Effect.gen(function* () {
    // A separate registry, since in the shared one the gauges have the values of other processes of this test.
    const registry: Metric.MetricRegistry = new Map()
    yield* Layer.build(
      Layer.fresh(
        TestProcess.dispatcherOver(Refusals.over(topic)).pipe(
          Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 50 }))
        )
      )
    ).pipe(Effect.provideService(Metric.MetricRegistry, registry))
    const gauges = Effect.map(
      Effect.provideService(Metric.snapshot, Metric.MetricRegistry, registry),
      (metrics) =>
        new Map(metrics.flatMap((metric) => (metric.type === "Gauge" ? [[metric.id, Number(metric.state.value)]] : [])))
    )
    yield* Counters.eventually(
      "a sample of each gauge",
      Effect.map(gauges, (all) => Object.values(names).every((name) => all.has(name)))
    )
    const all = yield* gauges
    const value = (name: keyof typeof names) => all.get(names[name])!
    return {
      pending: value("pending"),
      oldestSeconds: value("oldestSeconds"),
      parked: value("parked"),
      deadLetters: value("deadLetters")
    }
  })

it.live("the metrics of pending events, their age, parked events and dead letters match the tables", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const topic = Refusals.makeTopic()
    topic.refused.add("poison/1")

    const empty = yield* Effect.scoped(firstSamples(topic))
    assert.deepStrictEqual(empty, { pending: 0, oldestSeconds: 0, parked: 0, deadLetters: 0 })

    // A dead letter with two events behind it. No later process sends them.
    yield* Refusals.append("poison", 1, 3)
    yield* Effect.scoped(Effect.andThen(firstSamples(topic), Refusals.until("poison", "dead")))
    topic.down = true
    yield* Refusals.append("sound", 1, 5)
    yield* Refusals.append("other", 1, 2)
    yield* sql`
      UPDATE outbox_events SET occurred_at = occurred_at - interval '2 hours'
      WHERE aggregate_id = 'sound' AND aggregate_version = 1`
    const oldestSeconds = Effect.map(
      sql<{ readonly seconds: number }>`
        SELECT extract(epoch FROM clock_now() - min(occurred_at))::float8 AS seconds FROM outbox_events`,
      ([row]) => row!.seconds
    )
    const before = yield* oldestSeconds
    const waiting = yield* Effect.scoped(firstSamples(topic))
    const after = yield* oldestSeconds
    assert.deepInclude(waiting, { pending: 7, parked: 2, deadLetters: 1 })
    assert.isAtLeast(before, 7_200)
    assert.isAtLeast(waiting.oldestSeconds, before)
    assert.isAtMost(waiting.oldestSeconds, after)

    // Parked and dead events are older than the queue's, and do not count for its age.
    topic.down = false
    yield* Effect.scoped(Effect.andThen(firstSamples(topic), Counters.drained))
    const drained = yield* Effect.scoped(firstSamples(topic))
    assert.deepStrictEqual(drained, { pending: 0, oldestSeconds: 0, parked: 2, deadLetters: 1 })
  }).pipe(
    Effect.scoped,
    Effect.provide(writer),
    Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 1, maxAttempts: 1, skipTopics: [] }))
  )
)

it.effect("a batch is measured from its own fetch, though it is marked together with a later one", () =>
  Effect.gen(function* () {
    const lane = allLanes[0]!
    const topic = "orders"
    let seq = 0n
    const event = (): QueuedEvent => ({
      lane,
      seq: ++seq,
      recordBytes: 1,
      eventId: "00000000-0000-7000-8000-000000000000",
      topic,
      eventType: "Measured",
      schemaVersion: 1,
      aggregateType: "Order",
      aggregateId: "1",
      aggregateVersion: 1,
      occurredAt: "2026-01-01T00:00:00.000Z",
      traceId: "",
      spanId: "",
      data: "{}"
    })
    const parts = Layer.mergeAll(
      Layer.mock(Queue, {
        fetch: () => Effect.sync(() => [{ lane, events: [event()], isCut: false }]),
        mark: () => Effect.void
      }),
      Layer.mock(Publisher, { partitionsOf: () => 1 })
    )
    const queue = Context.get(yield* Layer.build(Layer.provide(OutboxMetrics.layerCounts, parts)), Queue)
    const fetch = queue.fetch([{ lane, events: 1, bytes: 1 }])
    const run = ([fetched]: ReadonlyArray<Fetched>): Acknowledged => ({
      lane,
      topic,
      events: fetched!.events,
      receipt: { partition: 0, baseOffset: 0n }
    })
    const first = yield* fetch
    yield* TestClock.adjust("2 seconds")
    const second = yield* fetch
    yield* TestClock.adjust("1 second")
    yield* queue.mark([run(first), run(second)])
    const seconds = (yield* Metric.snapshot).find(({ id }) => id === "outbox_batch_duration_seconds")
    assert.deepStrictEqual(
      seconds?.type === "Histogram" && [seconds.state.count, seconds.state.min, seconds.state.max],
      [2, 1, 3]
    )
  }).pipe(Effect.scoped, Effect.provideService(Metric.MetricRegistry, new Map()))
)
