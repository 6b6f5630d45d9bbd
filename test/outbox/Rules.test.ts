/**
 * Each of the four rules of order (Dispatcher.ts) is broken on purpose, and the comparison of topic and ledger must report it. This shows
 * that the rule is needed, and that the tests that find no problem are able to find one.
 */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Broker, BrokerUnavailable } from "../../src/brokers/Broker.ts"
import { Dispatcher, OneInFlight } from "../../src/outbox/Dispatcher.ts"
import { PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { type Lane, laneOf } from "../../src/outbox/Lane.ts"
import { Queue, type QueuedEvent, type QueueService } from "../../src/outbox/Queue.ts"
import { Publisher } from "../../src/outbox/Publisher.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Ledger from "../support/Ledger.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import * as Lanes from "../support/Lanes.ts"

const writer = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

type BrokerService = Broker["Service"]

/** A broker that does not answer the first send of each aggregate's first event, and does not store the event. */
const losesTheFirst = Effect.map(Broker, (broker): BrokerService => {
  const lost = new Set<string>()
  return {
    ...broker,
    publish: (batch) => {
      const { key, value } = batch.records[0]
      const isFirst = new TextDecoder().decode(value).includes(`"aggregateVersion":1,`)
      if (!isFirst || lost.has(key)) return broker.publish(batch)
      lost.add(key)
      return Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "lost on purpose" }))
    }
  }
})

const dispatcherOf = (plant: (steps: ReturnType<typeof stepsOf>) => ReturnType<typeof stepsOf>) =>
  Dispatcher.layer.pipe(
    Layer.provideMerge(plant(stepsOf())),
    // The next attempt comes at once.
    Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 0, backoffCapMillis: 0 }))
  )
const stepsOf = () =>
  TestProcess.dispatcherStepsOver((layer) => Layer.effect(Broker, losesTheFirst).pipe(Layer.provide(layer)))

const aggregates = ["a", "b", "c"]
const versions = 6

/** Far more rounds than six events in batches of any size need. */
const rounds = 40

/** Six events for each of three aggregates, sent by `drain`, one lane after the other. Returns the result of the comparison. */
const verdictOf = (
  plant: (steps: ReturnType<typeof stepsOf>) => ReturnType<typeof stepsOf>,
  drain: (dispatcher: Dispatcher["Service"], lane: Lane) => Effect.Effect<unknown> = ({ drainOnce }, lane) =>
    drainOnce([lane])
) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    for (const id of aggregates) yield* Transaction.run(Ledger.append(id, versions))
    const dispatcher = yield* Dispatcher
    for (let round = 0; round < rounds; round++) {
      if ((yield* sql`SELECT 1 AS one FROM outbox_events LIMIT 1`).length === 0) break
      yield* Effect.forEach(aggregates, (id) => drain(dispatcher, laneOf(id)), { discard: true })
    }
    return Ledger.check(yield* Ledger.deliveredEmbedded, yield* Ledger.committed)
  }).pipe(Effect.provide(dispatcherOf(plant).pipe(Layer.provideMerge(writer))))

it.live("with all rules kept, a lost answer only causes a repetition", () =>
  Effect.gen(function* () {
    const verdict = yield* verdictOf((steps) => steps)
    assert.deepStrictEqual(verdict.problems, [])
    assert.strictEqual(verdict.committed, aggregates.length * versions)
  })
)

it.live("red when a batch is no version-prefix: a fetch that skips an event lets the next ones overtake it", () =>
  Effect.gen(function* () {
    const skipped = new Set<string>()
    const verdict = yield* verdictOf((steps) =>
      overQueue(steps, (queue) => ({
        ...queue,
        // As SKIP LOCKED does while another dispatcher has locked the row.
        fetch: overEvents(queue, (events) =>
          events.filter(({ aggregateId, aggregateVersion }) => {
            if (aggregateVersion !== 1 || skipped.has(aggregateId)) return true
            skipped.add(aggregateId)
            return false
          })
        )
      }))
    )
    assert.match(verdict.problems.join("\n"), /overtook v1/)
  })
)

it.live("red when an event is marked before its ack: a send that fails then loses it", () =>
  Effect.gen(function* () {
    const verdict = yield* verdictOf((steps) =>
      overQueue(steps, (queue) => ({
        ...queue,
        fetch: (parts) =>
          Effect.tap(queue.fetch(parts), (fetched) =>
            Effect.forEach(
              fetched,
              ({ events, lane }) => Lanes.mark(queue, lane, events, { partition: 0, baseOffset: 0n }),
              { discard: true }
            )
          )
      }))
    )
    assert.match(verdict.problems.join("\n"), /a v1 is missing/)
  })
)

it.live("red when two batches of a lane are in flight: the second arrives, and the first is sent again behind it", () =>
  Effect.gen(function* () {
    const inFlight = new Set<bigint>()
    const verdict = yield* verdictOf(
      (steps) =>
        overQueue(steps, (queue) => ({
          ...queue,
          fetch: overEvents(queue, (events) => {
            const next = events.filter(({ seq }) => !inFlight.has(seq)).slice(0, 2)
            for (const { seq } of next) inFlight.add(seq)
            return next
          })
        })),
      ({ drainOnce }, lane) =>
        Effect.andThen(
          Effect.all([drainOnce([lane]), drainOnce([lane])], { concurrency: 2 }),
          Effect.sync(() => inFlight.clear())
        )
    )
    assert.match(verdict.problems.join("\n"), /overtook v1/)
  }).pipe(Effect.provideService(OneInFlight, false))
)

it.live("a second batch of a lane beside the first is a defect, and nothing of it is sent", () =>
  Effect.gen(function* () {
    const fetched = yield* Deferred.make<void>()
    const go = yield* Deferred.make<void>()
    yield* Effect.gen(function* () {
      yield* Transaction.run(Ledger.append("a"))
      const { drainOnce, retryHeld } = yield* Dispatcher
      const first = yield* Effect.forkChild(drainOnce([laneOf("a")]))
      yield* Deferred.await(fetched)
      const beside: ReadonlyArray<Effect.Effect<unknown>> = [drainOnce([laneOf("a")]), retryHeld([laneOf("a")])]
      for (const second of beside) {
        assert.match(String(yield* Effect.exit(second)), /lane \d+ has a batch in flight already/)
      }
      assert.strictEqual(yield* Ledger.countEmbedded, 0)
      // Another lane can be sent meanwhile, and this lane after its batch has ended.
      assert.strictEqual(yield* drainOnce([laneOf("b")]), "idle")
      yield* Deferred.succeed(go, undefined)
      yield* Fiber.join(first)
      assert.strictEqual(yield* drainOnce([laneOf("a")]), "idle")
      assert.strictEqual(yield* Ledger.countEmbedded, 1)
    }).pipe(
      Effect.provide(
        dispatcherOf((steps) =>
          overQueue(steps, (queue) => ({
            ...queue,
            fetch: (parts) =>
              Effect.tap(queue.fetch(parts), () =>
                Effect.flatMap(Deferred.succeed(fetched, undefined), (isFirst) =>
                  isFirst ? Deferred.await(go) : Effect.void
                )
              )
          }))
        ).pipe(Layer.provideMerge(writer))
      )
    )
  })
)

it.live(
  "red when an aggregate's part is not appended whole: a piece that arrives without the previous one overtakes it",
  () =>
    Effect.gen(function* () {
      const verdict = yield* verdictOf((steps) =>
        overPublisher(steps, (publisher) => ({
          ...publisher,
          publish: (batch) =>
            Effect.map(
              // Each piece is sent, whatever the result of the others; the first failure is the answer.
              Effect.partition(batch.events, (event) => publisher.publish({ ...batch, events: [event] }), {
                concurrency: 3
              }),
              ([[receipt], [failure]]) => ({ failure, receipt })
            ).pipe(
              Effect.flatMap(({ failure, receipt }) =>
                failure === undefined ? Effect.succeed(receipt!) : Effect.fail(failure)
              )
            )
        }))
      )
      assert.match(verdict.problems.join("\n"), /overtook v1/)
    })
)

/** A fetch whose events are changed lane by lane. */
const overEvents =
  (
    queue: QueueService,
    change: (events: ReadonlyArray<QueuedEvent>) => ReadonlyArray<QueuedEvent>
  ): QueueService["fetch"] =>
  (parts) =>
    Effect.map(queue.fetch(parts), (fetched) => fetched.map((ofLane) => ({ ...ofLane, events: change(ofLane.events) })))

const overQueue = <A, E, R>(steps: Layer.Layer<A | Queue, E, R>, change: (queue: QueueService) => QueueService) =>
  Layer.effect(Queue, Effect.map(Queue, change)).pipe(Layer.provideMerge(steps))

const overPublisher = <A, E, R>(
  steps: Layer.Layer<A | Publisher, E, R>,
  change: (publisher: Publisher["Service"]) => Publisher["Service"]
) => Layer.effect(Publisher, Effect.map(Publisher, change)).pipe(Layer.provideMerge(steps))
