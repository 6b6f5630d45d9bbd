/** A dispatcher with every part real, over a queue and a broker that fail or wait where a test says so. */
import { Effect, Layer } from "effect"
import * as Dispatching from "../../src/Dispatching.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Queue, type QueueService } from "../../src/outbox/Queue.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
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

/** A dispatcher whose poll never runs within a test. `change` and `publish` decorate its queue and its broker. */
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
