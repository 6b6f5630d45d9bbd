/** What happens to ready lanes and acknowledgements while sends are in flight. Every part is real, and the broker waits where a test says so. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Latch, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { MessageRejected } from "../../src/brokers/Broker.ts"
import * as Gathering from "../../src/outbox/Gathering.ts"
import { allLanes } from "../../src/outbox/Lane.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import { LowWaterMarks } from "../../src/postgres/fast/LowWaterMarks.ts"
import * as Counters from "../support/Counters.ts"
import { append, countPolls, start, writer } from "../support/Dispatchers.ts"
import * as Ledger from "../support/Ledger.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** A dispatcher whose sends wait for the gate of their partition, and the lanes of its fetches and marks. */
const gated = Effect.fnUntraced(function* (
  settings: Partial<Context.Service.Shape<typeof Gathering.GatheringSettings>> = {},
  beforeMark: Effect.Effect<void> = Effect.void
) {
  /** The partitions of the sends that are written. As with kafkajs, that takes a promise or two. */
  const writes: Array<number> = []
  const gates = yield* Effect.forEach([0, 1, 2], () => Deferred.make<void>())
  const begun = yield* Effect.forEach([0, 1, 2], () => Deferred.make<void>())
  const fetches: Array<ReadonlyArray<number>> = []
  const marks: Array<ReadonlyArray<number>> = []
  /** The number of events in each send. */
  const sends: Array<number> = []
  const polls = countPolls()
  const dispatcher = start(
    (batch, broker) =>
      Effect.promise(() => Promise.resolve().then(() => writes.push(batch.partition))).pipe(
        Effect.andThen(Deferred.succeed(begun[batch.partition]!, undefined)),
        Effect.andThen(Deferred.await(gates[batch.partition]!)),
        Effect.andThen(Effect.sync(() => sends.push(batch.records.length))),
        Effect.andThen(broker.publish(batch))
      ),
    (queue) => ({
      ready: polls.counted(queue),
      fetch: (parts) =>
        Effect.tap(queue.fetch(parts), (fetched) =>
          Effect.sync(() => {
            const found = fetched.filter(({ events }) => events.length > 0).map(({ lane }) => lane)
            if (found.length > 0) fetches.push(found.toSorted((one, other) => one - other))
          })
        ),
      mark: (runs) =>
        Effect.andThen(
          Effect.sync(() => {
            marks.push(runs.map(({ lane }) => lane).toSorted((one, other) => one - other))
          }),
          Effect.andThen(beforeMark, queue.mark(runs))
        )
    })
  )
  yield* Effect.provideService(dispatcher, Gathering.GatheringSettings, {
    longestMillis: 5,
    apartMillis: { busy: 0, calm: 0 },
    markMillis: 0,
    ...settings
  })
  yield* Effect.addFinalizer(() => Effect.forEach(gates, (gate) => Deferred.succeed(gate, undefined)))
  return {
    fetches,
    marks,
    sends,
    writes,
    afterPolls: polls.ended,
    begun: (partition: number) => Deferred.await(begun[partition]!),
    open: (partition: number) => Deferred.succeed(gates[partition]!, undefined)
  }
})

const published = (count: number) =>
  Counters.eventually(
    `${count} events`,
    Effect.map(Ledger.countEmbedded, (found) => found === count)
  )

/** Longer than a test: whatever waits goes on because the sends have ended. */
const longestMillis = 600_000

it.live("lanes that become ready during a send are fetched together after it", () =>
  Effect.gen(function* () {
    const { begun, fetches, open } = yield* gated({ longestMillis })
    yield* append(0)
    yield* begun(0)
    for (const lane of [8, 16, 24]) yield* append(lane)
    yield* open(0)
    yield* Counters.drained
    assert.deepStrictEqual(fetches, [[0], [8, 16, 24]])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("acknowledgements of sends that end one after the other are marked together", () =>
  Effect.gen(function* () {
    const { begun, marks, open } = yield* gated({ longestMillis })
    yield* append(2)
    yield* begun(2)
    yield* append(0)
    yield* append(1)
    yield* open(2)
    yield* begun(0)
    yield* begun(1)
    yield* open(0)
    yield* published(2)
    yield* open(1)
    yield* Counters.drained
    assert.deepStrictEqual(marks, [[2], [0, 1]])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("what a turn has fetched is sent before its mark", () =>
  Effect.gen(function* () {
    const marked = yield* Deferred.make<void>()
    const written: Array<ReadonlyArray<number>> = []
    const { begun, marks, open, writes } = yield* gated(
      { longestMillis },
      Effect.suspend(() => {
        written.push([...writes])
        return Deferred.await(marked)
      })
    )
    yield* append(0)
    yield* begun(0)
    yield* append(1)
    yield* open(0)
    yield* published(1)
    // The mark of the first event hangs.
    yield* begun(1)
    yield* Counters.eventually(
      "the mark",
      Effect.sync(() => marks.length > 0)
    )
    assert.deepStrictEqual(marks, [[0]])
    assert.deepStrictEqual(written, [[0, 1]])
    yield* Deferred.succeed(marked, undefined)
    yield* open(1)
    yield* Counters.drained
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a send without an answer delays the other partitions by the longest wait, and no more", () =>
  Effect.gen(function* () {
    const { begun, open } = yield* gated()
    yield* open(1)
    yield* append(0)
    yield* begun(0)
    yield* append(1)
    yield* published(1)
    yield* open(0)
    yield* Counters.drained
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("lanes that become ready soon after a fetch are fetched together, though nothing is being sent", () =>
  Effect.gen(function* () {
    // Far longer than two small transactions take on a busy machine.
    const { afterPolls, fetches, open } = yield* gated({ apartMillis: { busy: 2_000, calm: 2_000 } })
    yield* afterPolls
    yield* open(0)
    yield* append(0)
    yield* published(1)
    yield* append(8)
    yield* append(16)
    yield* published(3)
    assert.deepStrictEqual(fetches, [[0], [8, 16]])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("acknowledgements wait while fetches go on", () =>
  Effect.gen(function* () {
    const { afterPolls, fetches, marks, open } = yield* gated({ markMillis: 600_000 })
    yield* afterPolls
    yield* open(0)
    for (const [index, lane] of [0, 8, 16].entries()) {
      yield* append(lane)
      yield* published(index + 1)
    }
    // Longer than a mark takes that waits for nothing.
    yield* Effect.sleep(100)
    assert.deepStrictEqual(fetches, [[0], [8], [16]])
    assert.deepStrictEqual(marks, [])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("an acknowledgement that comes at once waits for others, too", () =>
  Effect.gen(function* () {
    const markMillis = 500
    const polls = countPolls()
    const [sends, marks]: [Array<number>, Array<number>] = [[], []]
    yield* start(
      () => Effect.promise(() => Promise.resolve({ baseOffset: BigInt(sends.push(performance.now())) })),
      (queue) => ({
        ready: polls.counted(queue),
        mark: (runs) =>
          Effect.andThen(
            Effect.sync(() => marks.push(performance.now())),
            queue.mark(runs)
          )
      })
    ).pipe(
      Effect.provideService(Gathering.GatheringSettings, {
        longestMillis: 5,
        apartMillis: { busy: 0, calm: 0 },
        markMillis
      })
    )
    yield* polls.ended
    // The partitions of the topic are unknown before the first event. Its acknowledgement is older than the longest wait when the second one comes.
    for (let count = 1; count <= 2; count++) {
      yield* append(0)
      yield* Counters.drained
      yield* Effect.sleep(markMillis)
    }
    assert.lengthOf(sends, 2)
    assert.isAbove(marks[1]! - sends[1]!, 0.9 * markMillis)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("what waits for its mark is passed over by a fetch through all decorators", () =>
  Effect.gen(function* () {
    const context = yield* Layer.build(TestProcess.dispatcherStepsOver((broker) => broker))
    const [queue, lowWaterMarks] = [Context.get(context, Queue), Context.get(context, LowWaterMarks)]
    for (const lane of [0, 8]) yield* append(lane)
    // One round proposes the marks, and the next one raises them.
    for (let round = 0; round < 2; round++) yield* lowWaterMarks.raise(allLanes)
    const parts = allLanes.map((lane) => ({ lane, events: 10, bytes: 10_000 }))
    const fetched = (without?: ReadonlySet<bigint>) =>
      Effect.map(queue.fetch(parts, without), (all) => all.flatMap(({ events }) => events.map(({ seq }) => seq)))
    const [first, ...others] = yield* fetched()
    assert.lengthOf(others, 1)
    assert.deepStrictEqual(yield* fetched(new Set([first!])), others)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("what waits for its mark is not sent again", () =>
  Effect.gen(function* () {
    const { afterPolls, marks, open, sends } = yield* gated({ markMillis: 600_000 })
    yield* afterPolls
    yield* open(0)
    for (let count = 1; count <= 3; count++) {
      yield* append(0)
      yield* published(count)
    }
    assert.deepStrictEqual(sends, [1, 1, 1])
    assert.deepStrictEqual(marks, [])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("acknowledgements that have waited long enough are marked with the next fetch", () =>
  Effect.gen(function* () {
    const { marks, open } = yield* gated({ apartMillis: { busy: 2_000, calm: 2_000 }, markMillis: 1_000 })
    yield* open(0)
    yield* append(0)
    yield* published(1)
    yield* append(8)
    yield* published(2)
    assert.deepStrictEqual(marks.slice(0, 1), [[0]])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("the wait begins with the first of them, though others follow", () =>
  Effect.gen(function* () {
    const { afterPolls, marks, open } = yield* gated({ markMillis: 500 })
    yield* afterPolls
    yield* open(0)
    for (let count = 1; count <= 12; count++) {
      yield* append(8 * (count % 8))
      yield* published(count)
      yield* Effect.sleep(100)
    }
    assert.isNotEmpty(marks)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("acknowledgements that waited during the last fetch are marked soon after it", () =>
  Effect.gen(function* () {
    const { afterPolls, open } = yield* gated({ markMillis: 500 })
    yield* afterPolls
    yield* open(0)
    yield* append(0)
    yield* published(1)
    yield* append(8)
    yield* published(2)
    // Well before the next stamp.
    yield* Effect.timeout(Counters.drained, "3 seconds")
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("many acknowledgements don't wait", () =>
  Effect.gen(function* () {
    const { afterPolls, fetches, marks, open } = yield* gated({ markMillis: 600_000 })
    yield* afterPolls
    yield* open(0)
    yield* append(0, 62)
    yield* published(62)
    yield* append(8)
    yield* published(63)
    assert.deepStrictEqual(marks, [])
    yield* append(16)
    yield* published(64)
    assert.deepStrictEqual(fetches, [[0], [8], [16]])
    assert.deepStrictEqual(marks, [[0, 8]])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a refused event is held at once, however long the mark of an earlier one waits", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    let sends = 0
    const polls = countPolls()
    const publish: Parameters<typeof start>[0] = (batch, broker) => {
      const { partition, topic } = batch
      return sends++ === 0
        ? broker.publish(batch)
        : Effect.fail(new MessageRejected({ topic, partition, reason: "too large", isTooLarge: true }))
    }
    yield* start(publish, (queue) => ({ ready: polls.counted(queue) })).pipe(
      Effect.provideService(Gathering.GatheringSettings, {
        longestMillis: 5,
        apartMillis: { busy: 0, calm: 0 },
        markMillis: 600_000
      })
    )
    yield* polls.ended
    yield* append(0)
    yield* published(1)
    yield* append(0)
    yield* Counters.eventually(
      "the hold",
      Effect.map(sql`SELECT FROM outbox_parked`, (parked) => parked.length === 1)
    )
    assert.lengthOf(yield* sql`SELECT FROM outbox_events`, 0)
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("a refused batch's pieces don't wait beside the mark of another one", () =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>()
    const begun = yield* Deferred.make<void>()
    const polls = countPolls()
    const publish: Parameters<typeof start>[0] = (batch, broker) => {
      const { partition, topic } = batch
      return batch.records.length === 1
        ? broker.publish(batch)
        : Deferred.succeed(begun, undefined).pipe(
            Effect.andThen(Deferred.await(gate)),
            Effect.andThen(new MessageRejected({ topic, partition, reason: "two are too many", isTooLarge: false }))
          )
    }
    yield* start(publish, (queue) => ({ ready: polls.counted(queue) })).pipe(
      Effect.provideService(Gathering.GatheringSettings, {
        longestMillis: 5,
        apartMillis: { busy: 0, calm: 0 },
        markMillis: 600_000
      })
    )
    yield* polls.ended
    yield* append(0, 2)
    yield* Deferred.await(begun)
    yield* append(1)
    yield* published(1)
    yield* Deferred.succeed(gate, undefined)
    // Well before the next stamp.
    yield* Effect.timeout(published(3), "3 seconds")
  }).pipe(Effect.scoped, Effect.provide(writer))
)

it.live("the archive has the time of an acknowledgement, however long its mark waits", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    let began: string | undefined
    yield* start(
      (batch, broker) => broker.publish(batch),
      (queue) => ({
        mark: (runs) =>
          Effect.gen(function* () {
            const [clock] = yield* Effect.orDie(sql<{ readonly now: string }>`SELECT clock_now()::text AS now`)
            began = clock?.now
            yield* Effect.sleep("1 second")
            yield* queue.mark(runs)
          })
      })
    )
    yield* append(0)
    yield* Counters.drained
    const rows = yield* sql`
      SELECT published_at < ${began}::timestamptz + interval '900 ms' AS "isOfTheAck", published_at > occurred_at AS "isLater" FROM event_log`
    assert.deepStrictEqual(rows, [{ isOfTheAck: true, isLater: true }])
  }).pipe(Effect.scoped, Effect.provide(writer))
)

/** The waits alone, under the test's clock. `waiting` waits in a fiber of its own. */
const waits = Effect.fnUntraced(function* (settings: Context.Service.Shape<typeof Gathering.GatheringSettings>) {
  const gathering = yield* Effect.provideService(Gathering.make, Gathering.GatheringSettings, settings)
  const isReady = yield* Latch.make(true)
  const pause = Effect.suspend(() => gathering.pause(isReady))
  return { ...gathering, isReady, pause, waiting: Effect.forkChild(pause, { startImmediately: true }) }
})

it.effect(
  "a send that outlasts the distance of two fetches is waited for, but no longer than without that distance",
  () =>
    Effect.gen(function* () {
      const { begin, end, fetches, waiting } = yield* waits({
        longestMillis: 5,
        apartMillis: { busy: 4, calm: 4 },
        markMillis: 20
      })
      fetches()
      begin()
      const longest = yield* waiting
      yield* TestClock.adjust("4 millis")
      assert.isUndefined(longest.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.isDefined(longest.pollUnsafe())
      fetches()
      const shorter = yield* waiting
      yield* TestClock.adjust("4 millis")
      assert.isUndefined(shorter.pollUnsafe())
      end()
      yield* TestClock.adjust("0 millis")
      assert.isDefined(shorter.pollUnsafe())
    })
)

it.effect("a fetch after a pause begins at once, and the next one the whole distance after it", () =>
  Effect.gen(function* () {
    const { fetches, pause, waiting } = yield* waits({
      longestMillis: 5,
      apartMillis: { busy: 4, calm: 4 },
      markMillis: 20
    })
    yield* TestClock.adjust("1 second")
    yield* pause
    fetches()
    yield* TestClock.adjust("1 millis")
    // A turn that only marks begins meanwhile.
    const second = yield* waiting
    yield* TestClock.adjust("2 millis")
    assert.isUndefined(second.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    assert.isDefined(second.pollUnsafe())
    yield* pause
    fetches()
    yield* TestClock.adjust("4 millis")
    yield* pause
  })
)

it.effect("less than a millisecond is not waited for", () =>
  Effect.gen(function* () {
    const { fetches, pause, waiting } = yield* waits({
      longestMillis: 5,
      apartMillis: { busy: 4, calm: 2 },
      markMillis: 20
    })
    fetches()
    yield* TestClock.adjust("900 micros")
    const early = yield* waiting
    assert.isUndefined(early.pollUnsafe())
    yield* TestClock.adjust("1100 micros")
    assert.isDefined(early.pollUnsafe())
    fetches()
    yield* TestClock.adjust("1100 micros")
    yield* pause
  })
)

it.effect("after a fetch that found many events the next one is farther away", () =>
  Effect.gen(function* () {
    const { fetches, found, waiting } = yield* waits({
      longestMillis: 5,
      apartMillis: { busy: 4, calm: 2 },
      markMillis: 20
    })
    for (const [count, distance] of [
      [3, 2],
      [4, 4],
      [0, 2]
    ] as const) {
      fetches()
      found(count)
      const next = yield* waiting
      yield* TestClock.adjust(distance - 1)
      assert.isUndefined(next.pollUnsafe())
      yield* TestClock.adjust(1)
      assert.isDefined(next.pollUnsafe())
    }
  })
)

it.effect("acknowledgements wait for a lane that is ready, but not for ever", () =>
  Effect.gen(function* () {
    const { acknowledged, areMany, areMarksDue, isReady, waiting } = yield* waits({
      longestMillis: 5,
      apartMillis: { busy: 4, calm: 4 },
      markMillis: 20
    })
    yield* isReady.close
    yield* TestClock.adjust("1 minute")
    acknowledged()
    const longest = yield* waiting
    yield* TestClock.adjust("19 millis")
    assert.isUndefined(longest.pollUnsafe())
    assert.isFalse(areMarksDue())
    assert.isFalse(areMany(0.06))
    assert.isTrue(areMany(1 / 16))
    yield* TestClock.adjust("1 millis")
    assert.isDefined(longest.pollUnsafe())
    assert.isTrue(areMarksDue())
    acknowledged()
    const shorter = yield* waiting
    yield* TestClock.adjust("1 millis")
    assert.isUndefined(shorter.pollUnsafe())
    yield* isReady.open
    yield* TestClock.adjust("0 millis")
    assert.isDefined(shorter.pollUnsafe())
  })
)
