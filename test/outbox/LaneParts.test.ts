/** The number of events that are fetched of each lane, and how fetched events become batches. */
import { assert, it } from "@effect/vitest"
import { toBatches, toRuns } from "../../src/outbox/Batches.ts"
import { allLanes, Lane, laneCount } from "../../src/outbox/Lane.ts"
import { deal } from "../../src/outbox/LaneParts.ts"
import type { QueuedEvent } from "../../src/outbox/Queue.ts"

const bounds = { batchSize: 1_000, batchBytes: 900_000 }
const batches = 8
const none: ReadonlySet<Lane> = new Set()
const eventsOf = (lanes: ReadonlyArray<Lane>, deep: ReadonlySet<Lane> = none, load = 0) =>
  deal(lanes, { ...bounds, batches, deep, load }).map(({ events }) => events)

it("lanes get equal parts of the fetch limit, and none gets more than a batch", () => {
  assert.deepStrictEqual(eventsOf([Lane.make(3)]), [1_000])
  assert.deepStrictEqual(
    eventsOf(allLanes),
    Array.from({ length: laneCount }, () => 125)
  )
  assert.deepStrictEqual(
    eventsOf(allLanes.slice(0, 16)),
    Array.from({ length: 16 }, () => 500)
  )
})

it("the room that fresh lanes leave goes to lanes whose last fetch was cut, within the limit", () => {
  const lanes = allLanes.slice(0, 32)
  const parts = eventsOf(lanes, new Set([Lane.make(5)]))
  assert.strictEqual(parts[5], 1_000)
  for (const [lane, part] of parts.entries()) if (lane !== 5) assert.strictEqual(part, 125)
  const deep = new Set(lanes.slice(0, 16))
  assert.isAtMost(
    eventsOf(lanes, deep).reduce((sum, part) => sum + part, 0),
    batches * bounds.batchSize
  )
})

it("if the limit is used up each lane still has its own part, and waits for no other lane's room", () => {
  assert.deepStrictEqual(eventsOf([Lane.make(0), Lane.make(1)], none, batches), [125, 125])
  assert.deepStrictEqual(
    deal([Lane.make(0)], { batchSize: 2, batchBytes: 10, batches, deep: none, load: batches }).map(
      ({ events }) => events
    ),
    [1]
  )
})

const event = (lane: number, seq: number, topic = "orders", recordBytes = 100) =>
  ({ lane: Lane.make(lane), seq: BigInt(seq), topic, recordBytes }) as QueuedEvent

const shapeOf = (events: ReadonlyArray<QueuedEvent>, batchSize: number, batchBytes = 900_000) =>
  toBatches(events, { batchSize, batchBytes, partitionsOf: (topic) => (topic === "new" ? undefined : 2) }).map(
    ({ events, partition, topic }) =>
      `${topic} ${partition}: ${events.map(({ lane, seq }) => `${lane}/${seq}`).join(" ")}`
  )

it("a batch has lanes of one topic and partition, each as a run in order, and only whole runs", () => {
  assert.deepStrictEqual(shapeOf([event(0, 1), event(0, 2), event(1, 3), event(2, 4), event(2, 5), event(4, 6)], 4), [
    "orders 0: 0/1 0/2 2/4 2/5",
    "orders 0: 4/6",
    "orders 1: 1/3"
  ])
  assert.deepStrictEqual(shapeOf([event(0, 1), event(0, 2, "others"), event(1, 3, "new"), event(2, 4, "new")], 4), [
    "orders 0: 0/1",
    "others 0: 0/2",
    "new undefined: 1/3 2/4"
  ])
})

it("the bytes of its records bound a batch, too, but for one event that is larger by itself", () => {
  assert.deepStrictEqual(
    shapeOf([event(0, 1, "orders", 60), event(2, 2, "orders", 60), event(4, 3, "orders", 200)], 9, 120),
    ["orders 0: 0/1 2/2", "orders 0: 4/3"]
  )
})

it("each lane's run has the offset of its own first event", () => {
  const runs = toRuns("orders", [event(0, 1), event(0, 2), event(2, 3)], { partition: 0, baseOffset: 40n })
  assert.deepStrictEqual(
    runs.map(({ events, lane, receipt }) => [lane, events.length, receipt.baseOffset]),
    [
      [Lane.make(0), 2, 40n],
      [Lane.make(2), 1, 42n]
    ]
  )
})
