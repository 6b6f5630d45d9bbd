/** Runs many turns of the pipeline, over steps that only wait. Prints how much V8's old heap has grown with each, and how often it was collected. */
import { Effect, Layer } from "effect"
import { getHeapSpaceStatistics, GCProfiler } from "node:v8"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import * as Flights from "../../src/outbox/Flights.ts"
import { GatheringSettings } from "../../src/outbox/Gathering.ts"
import { allLanes, type Lane } from "../../src/outbox/Lane.ts"
import * as Pipeline from "../../src/outbox/Pipeline.ts"
import type { QueuedEvent } from "../../src/outbox/Queue.ts"
import * as StoppedLanes from "../../src/outbox/StoppedLanes.ts"
import * as Supervised from "../../src/platform/Supervised.ts"

/** Of wake-ups, in each of two rounds. Each of them has a turn, as a rule. V8 compiles in the first round. */
const pairs = 12_000

const tick = Effect.callback<void>((resume) => {
  setImmediate(() => resume(Effect.void))
})
let seq = 0n
let fetches = 0
const eventOf = (lane: Lane): QueuedEvent => ({
  lane,
  seq: ++seq,
  eventId: crypto.randomUUID(),
  topic: "orders",
  eventType: "Measured",
  schemaVersion: 1,
  aggregateType: "Order",
  aggregateId: `order-${seq}`,
  aggregateVersion: 1,
  occurredAt: "2026-01-01T00:00:00.000Z",
  traceId: "0".repeat(32),
  spanId: "0".repeat(16),
  recordBytes: 100,
  data: JSON.stringify({ text: "y".repeat(400), seq: String(seq) })
})

const steps = Layer.mock(Dispatcher, {
  enter: () => Effect.void,
  leave: () => undefined,
  fetch: (parts) =>
    Effect.map(tick, () => {
      fetches++
      return {
        batches: parts.map(({ lane }) => ({
          topic: "orders",
          partition: lane % 8,
          partitions: 8,
          events: [eventOf(lane)] as const
        })),
        cut: new Set<Lane>()
      }
    }),
  send: ({ events, partition, topic }) =>
    Effect.map(tick, () => {
      const lanes = new Set(events.map(({ lane }) => lane))
      const receipt = { partition, baseOffset: 0n }
      return {
        acknowledged: [...lanes].map((lane) => ({ lane, topic, events, receipt })),
        moved: lanes,
        returned: new Set<Lane>()
      }
    }),
  mark: () => tick,
  partitionOf: () => 0
})

const oldHeapBytes = () =>
  getHeapSpaceStatistics().find(({ space_name }) => space_name === "old_space")?.space_used_size ?? 0

const program = Effect.gen(function* () {
  const stopped = yield* StoppedLanes.make({ owns: () => true, wakeAfter: () => Effect.void })
  const flights = yield* Flights.make({ owns: () => true, enter: () => true, leave: () => undefined, stopped })
  yield* Pipeline.make({ flights, stopped, heldFailed: () => Effect.void })
  const round = Effect.fnUntraced(function* () {
    const [bytes, before] = [oldHeapBytes(), fetches]
    for (let index = 0; index < pairs; index++) {
      flights.wake([allLanes[index % 64]!])
      flights.wake([allLanes[(index + 32) % 64]!])
      yield* Effect.repeat(tick, { times: 4 })
    }
    return { turns: fetches - before, bytesPerTurn: (oldHeapBytes() - bytes) / (fetches - before) }
  })
  yield* round()
  const profiler = new GCProfiler()
  profiler.start()
  const second = yield* round()
  const collections = profiler.stop().statistics.filter(({ gcType }) => !gcType.includes("Scavenge")).length
  console.log(JSON.stringify({ ...second, collections }))
})

await Effect.runPromise(
  Effect.scoped(program).pipe(
    Effect.provide(Layer.merge(Supervised.Fibers.layer, steps)),
    Effect.provideService(GatheringSettings, { longestMillis: 5, apartMillis: { busy: 0, calm: 0 }, markMillis: 0 })
  )
)
