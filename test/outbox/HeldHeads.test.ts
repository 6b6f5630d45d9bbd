/** Heads of held aggregates whose next attempt is due, beside the lanes' other events: how many in a round, when, and in which order. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { MessageRejected } from "../../src/brokers/Broker.ts"
import * as Dispatching from "../../src/Dispatching.ts"
import { dueLimit, Holds } from "../../src/outbox/holds/Holds.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Counters.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const lanes = Array.from({ length: 20 }, (_, lane) => lane)
const ids = Array.from({ length: 5_000 }, (_, index) => `counter-${index}`)
const idsIn = (lane: number) => ids.filter((id) => laneOf(id) === lane)
/** The held aggregates of a lane: one, and in the first lane more than there are heads in a round. */
const heldIn = (lane: number) => idsIn(lane).slice(1, lane === 0 ? 2 + dueLimit : 2)
const held = lanes.flatMap(heldIn)

it.live("due heads are sent eight at most a round, behind the healthy events, and in turns of the lanes", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    for (const id of held) yield* Refusals.append(id, 1, 1)
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* Layer.build(
          TestProcess.dispatcherOver(
            TestProcess.publishing(({ partition, topic }) =>
              Effect.fail(new MessageRejected({ topic, partition, reason: "too large" }))
            )
          )
        )
        yield* Counters.eventually(
          "all to be held",
          Effect.map(sql`SELECT 1 AS one FROM outbox_holds`, (rows) => rows.length === held.length)
        )
      })
    )
    yield* Refusals.dueNow
    for (const lane of lanes) yield* Refusals.append(idsIn(lane)[0]!, 1, 1)

    const rounds: Array<{ readonly lanes: ReadonlyArray<number>; readonly heads: number }> = []
    const sends: Array<string> = []
    const steps = Layer.merge(
      // The lanes are fetched when their heads are due, and not before.
      Layer.effect(
        Queue,
        Effect.map(Queue, (queue) => Queue.of({ ...queue, ready: () => Effect.succeed([]) }))
      ),
      Layer.effect(
        Holds,
        Effect.map(Holds, (holds) =>
          Holds.of({
            ...holds,
            due: (views) =>
              Effect.tap(holds.due(views), (heads) =>
                Effect.sync(() => rounds.push({ lanes: views.map(({ lane }) => lane), heads: heads.length }))
              )
          })
        )
      )
    ).pipe(
      Layer.provideMerge(
        TestProcess.dispatcherStepsOver(
          TestProcess.publishing((batch, broker) => {
            sends.push(...batch.records.map(({ key }) => key))
            return broker.publish(batch)
          })
        )
      )
    )
    yield* Layer.build(
      Dispatching.over(steps).pipe(Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 })))
    )
    yield* Counters.eventually(
      "all of them",
      Effect.map(Counters.published, (records) => records.length === held.length + lanes.length)
    )
    for (const round of rounds) {
      assert.isAtMost(round.lanes.length, dueLimit)
      assert.isAtMost(round.heads, dueLimit)
    }
    const turns = rounds.flatMap((round) => round.lanes)
    // A lane that is in flight is passed over, so a free one may come again before it.
    const untilAllHadOne = turns.slice(0, Math.max(...lanes.map((lane) => turns.indexOf(lane))))
    for (const lane of lanes) {
      assert.isAtMost(untilAllHadOne.filter((one) => one === lane).length, 3, `of the turns ${turns.join()}`)
    }
    for (const lane of lanes) {
      const [healthy, head] = [idsIn(lane)[0]!, heldIn(lane)[0]!]
      assert.isBelow(sends.indexOf(healthy), sends.indexOf(head), `lane ${lane}`)
    }
  }).pipe(Effect.scoped, Effect.provide(writer))
)
