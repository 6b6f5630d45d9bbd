/** A dispatcher with every part real, over a queue and a broker that fail or wait where a test says so. */
import { Effect, Layer } from "effect"
import * as Dispatching from "../../src/Dispatching.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { type LaneView, Queue, type QueueService } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "./Counters.ts"
import * as Ledger from "./Ledger.ts"
import { TestDatabase } from "./TestDatabase.ts"
import * as TestProcess from "./TestProcess.ts"

/** The append side on a database of its own. */
export const writer = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

/** An aggregate of the lane. Lane and partition are equal modulo 8. */
export const idIn = (lane: number, name = "ledger") => {
  for (let index = 0; ; index++) if (laneOf(`${name}-${index}`) === lane) return `${name}-${index}`
}

/** Appends events to that aggregate. */
export const append = (lane: number, count = 1) => Transaction.run(Ledger.append(idIn(lane), count))

/** A dispatcher without polls but those after its start ({@link countPolls}). `change` and `publish` decorate its queue and its broker. */
export const start = (
  publish: Parameters<typeof TestProcess.publishing>[0],
  change: (queue: QueueService) => Partial<QueueService> = () => ({})
) => {
  const steps = Layer.effect(
    Queue,
    Effect.map(Queue, (queue) => Queue.of({ ...queue, ...change(queue) }))
  ).pipe(Layer.provideMerge(TestProcess.dispatcherStepsOver(TestProcess.publishing(publish))))
  return Layer.build(
    Dispatching.over(steps).pipe(
      Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 })),
      Layer.provide(Dispatching.turnConnection)
    )
  )
}

/** The polls after the start. A later poll would find the lanes, and begin a turn. So does the stamp for health, each five seconds. */
export const countPolls = () => {
  let polls = 0
  return {
    counted: (queue: QueueService) => (views: ReadonlyArray<LaneView>) =>
      Effect.andThen(
        Effect.sync(() => polls++),
        queue.ready(views)
      ),
    /** Waits until the last of them has come: half a second after the lanes (LaneWatch.ts), and then none for minutes. */
    ended: Counters.eventually(
      "the polls after the start",
      Effect.suspend(() => {
        const before = polls
        return Effect.map(Effect.sleep(600), () => before > 0 && polls === before)
      })
    )
  }
}
