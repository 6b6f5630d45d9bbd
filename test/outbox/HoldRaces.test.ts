/** All concurrent actions on a held aggregate, with two dispatchers that both believe to own every lane. */
import { assert, it } from "@effect/vitest"
import { Cause, Effect, Fiber, Layer, Random } from "effect"
import { SqlClient } from "effect/sql"
import { OutboxDeadLetters } from "../../src/operations/OutboxDeadLetters.ts"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { HoldSettings } from "../../src/outbox/holds/Parking.ts"
import { type Lane, laneOf } from "../../src/outbox/Lane.ts"
import { QueueSettings } from "../../src/outbox/Queue.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const process = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(OutboxDeadLetters.layer),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** A dispatcher without ownership: the test gives it any lane. */
const zombie = (topic: Refusals.Topic) =>
  Effect.gen(function* () {
    const database = yield* TestDatabase
    const context = yield* Layer.build(
      Layer.fresh(
        Dispatcher.layer.pipe(
          Layer.provideMerge(TestProcess.dispatcherStepsOver(Refusals.over(topic))),
          Layer.provide(TestProcess.outbox),
          Layer.provide(Layer.succeed(TestDatabase, database))
        )
      )
    )
    return yield* Effect.provideContext(Effect.service(Dispatcher), context)
  })

const aggregates = Array.from({ length: 6 }, (_, index) => `counter-${index}`)
const lanes: ReadonlyArray<Lane> = [...new Set(aggregates.map(laneOf))]

/** Transactions of each aggregate, with one to three events each. At least `writes` of them, and more until an operator has acted. */
const writes = 60
const mostWrites = 10 * writes

const operator = { actor: "test", reason: "a race" }

it.live(
  "writers, refusals, redrives, discards and two dispatchers at every lane: nothing lost, nothing overtaken",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const letters = yield* OutboxDeadLetters
      const topic = Refusals.makeTopic()
      topic.lateMillis = 10
      const dispatchers = [yield* zombie(topic), yield* zombie(topic)]
      /** Defects of the test's fibers, which would otherwise end silently. */
      const defects: Array<Cause.Cause<unknown>> = []
      const note = (cause: Cause.Cause<unknown>) =>
        Effect.sync(() => {
          if (!Cause.hasInterruptsOnly(cause)) defects.push(cause)
        })
      const pause = (millis: number) => Effect.flatMap(Random.next, (random) => Effect.sleep(random * millis))

      yield* Effect.forEach(
        dispatchers.flatMap((dispatcher) => lanes.map((lane) => ({ dispatcher, lane }))),
        ({ dispatcher, lane }) =>
          dispatcher
            .retryHeld([lane])
            .pipe(
              Effect.andThen(dispatcher.drainOnce([lane])),
              Effect.andThen(pause(10)),
              Effect.tapCause(note),
              Effect.forever,
              Effect.forkScoped
            )
      )
      /** The test proves nothing if no operator has acted. */
      const happened = Effect.map(
        sql`SELECT DISTINCT action FROM operator_audit WHERE action IN ('retry', 'discard')`,
        (rows) => rows.length === 2
      )
      const write = Effect.fnUntraced(function* (id: string) {
        let version = 1
        for (let index = 0; index < writes || (index < mostWrites && !(yield* happened)); index++) {
          const count = 1 + Math.floor((yield* Random.next) * 3)
          if ((yield* Random.next) < 0.3) topic.refused.add(`${id}/${version}`)
          yield* Refusals.append(id, version, count)
          version += count
          yield* pause(20)
        }
        return version - 1
      })
      const mend = Effect.gen(function* () {
        for (const name of topic.refused) if ((yield* Random.next) < 0.3) topic.refused.delete(name)
        yield* pause(100)
      })
      /** An operator who decides at random. */
      const decide = Effect.gen(function* () {
        const rows = yield* sql<{ readonly id: string }>`
          SELECT event_id::text AS id FROM outbox_status WHERE status IN ('dead', 'retrying', 'parked')
          ORDER BY (status = 'parked')::int4 * random(), random() LIMIT 4`
        for (const { id } of rows) {
          const random = yield* Random.next
          yield* Effect.exit(random < 0.3 ? letters.discard(id, operator) : letters.retry(id, operator)).pipe(
            Effect.tap((exit) =>
              // A decision may be refused; a defect is a bug.
              exit._tag === "Failure" && exit.cause.reasons.some((reason) => reason._tag === "Die")
                ? Effect.failCause(exit.cause)
                : Effect.void
            )
          )
        }
        yield* pause(15)
      }).pipe(Effect.tapCause(note))
      const mender = yield* Effect.forkScoped(Effect.forever(mend))
      const operators = [
        yield* Effect.forkScoped(Effect.forever(decide)),
        yield* Effect.forkScoped(Effect.forever(decide))
      ]
      const last = yield* Effect.forEach(aggregates, write, { concurrency: "unbounded" })

      yield* Effect.forEach([mender, ...operators], Fiber.interrupt)
      topic.refused.clear()
      yield* letters.retryAll({}, operator)
      yield* Counters.eventually(
        "everything to be published or discarded",
        Effect.map(
          sql`SELECT 1 AS one FROM outbox_status WHERE status NOT IN ('published', 'discarded') LIMIT 1`,
          (rows) => rows.length === 0
        ).pipe(Effect.tap(letters.retryAll({}, operator)))
      )

      const deliveries = Counters.firstDeliveries(yield* Counters.published)
      let discarded = 0
      for (const [index, id] of aggregates.entries()) {
        const states = yield* Refusals.statesOf(id)
        assert.deepStrictEqual(
          states.map((state) => state.version),
          Array.from({ length: last[index]! }, (_, version) => version + 1),
          `${id}: each event is in one place`
        )
        const given = new Set(states.filter((state) => state.status === "discarded").map((state) => state.version))
        discarded += given.size
        assert.deepStrictEqual(
          deliveries.get(id)?.filter((version) => !given.has(version)),
          states.filter((state) => state.status === "published").map((state) => state.version),
          `${id}: in order, without gaps but for what was discarded`
        )
      }
      assert.deepStrictEqual(defects, [])
      assert.isAbove(discarded, 0)
      const [count] = yield* sql<{ readonly retries: number; readonly holds: number }>`
        SELECT (SELECT count(*) FROM operator_audit WHERE action = 'retry')::int4 AS retries,
               (SELECT count(*) FROM outbox_holds)::int4 AS holds`
      assert.isAbove(count?.retries ?? 0, 0)
      assert.strictEqual(count?.holds, 0)
    }).pipe(
      Effect.scoped,
      Effect.provide(process),
      Effect.provide(
        Layer.mergeAll(
          Layer.succeed(HoldSettings, { retryBaseMillis: 2, maxAttempts: 3, skipTopics: [] }),
          Layer.succeed(QueueSettings, { batchSize: 7, batchBytes: 900_000, archive: true }),
          Layer.succeed(PauseSettings, { backoffBaseMillis: 1, backoffCapMillis: 20 })
        )
      )
    ),
  120_000
)
