/** Health of a dispatcher that can't send everything: each reason by itself, and health's recovery. */
import { it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { isDeepStrictEqual } from "node:util"
import * as DispatcherHealth from "../../src/http/DispatcherHealth.ts"
import { Health, HealthParts, Readiness } from "../../src/http/Health.ts"
import { PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { HoldSettings } from "../../src/outbox/holds/Parking.ts"
import { laneOf, partitionOf } from "../../src/outbox/Lane.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as Refusals from "../support/Refusals.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** A service with a dispatcher over the broker that `change` makes of the embedded one. */
const serviceOver = (change: (layer: typeof TestProcess.broker) => typeof TestProcess.broker) =>
  Layer.mergeAll(Health.layer, DispatcherHealth.layer, Readiness.layerWorking).pipe(
    Layer.provide(TestProcess.dispatcherOver(change)),
    Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 20 })),
    Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 1, backoffCapMillis: 20 })),
    Layer.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 1, maxAttempts: 1, skipTopics: [] })),
    Layer.provideMerge(TestProcess.outbox),
    Layer.provideMerge(Layer.mergeAll(TestDatabase.layer, HealthParts.layer, Readiness.layer, TestProcess.quiet))
  )

const well = {
  status: "ready",
  lanesOwned: 64,
  reachesBroker: true,
  stoppedLanes: [],
  misorderedAggregates: 0,
  pausedTopics: [],
  parkedEvents: 0,
  deadLetters: 0
}

/** Stands for a number of consecutive failures, and for a number of seconds, in health's answer. */
const some = "some"

const unreachable = {
  topic: Counters.topic,
  attempt: some,
  partitions: [partitionOf(laneOf("a"), 8)],
  sinceSeconds: some,
  nextTrySeconds: some
}

/** Waits until the dispatcher's part equals `well` except for these fields, and the whole service has the same status. */
const untilItSays = (what: string, fields: Partial<Record<keyof typeof well, unknown>>) =>
  Effect.gen(function* () {
    const { report } = yield* Health
    const expected = { ...well, ...fields }
    yield* Counters.eventually(
      what,
      Effect.map(report, ({ parts, status }) => {
        const part: unknown = JSON.parse(
          JSON.stringify(parts["dispatcher"])
            .replaceAll(/"attempt":[1-9]\d*/g, `"attempt":"${some}"`)
            .replaceAll(/"(sinceSeconds|nextTrySeconds)":[\d.e-]+/g, `"$1":"${some}"`)
        )
        return status === expected.status && isDeepStrictEqual(part, expected)
      })
    )
  })

it.live("a topic that can't be reached degrades the service, and is named until a send succeeds", () => {
  const topic = Refusals.makeTopic()
  return Effect.gen(function* () {
    yield* untilItSays("nothing wrong", {})
    topic.down = true
    yield* Refusals.append("a", 1, 1)
    yield* untilItSays("the topic", { status: "degraded", pausedTopics: [unreachable] })
    topic.down = false
    yield* untilItSays("that it is back", {})
  }).pipe(Effect.provide(serviceOver(Refusals.over(topic))))
})

it.live("a lane that ends in a defect degrades the service, and is named until a turn of it succeeds", () => {
  let isBroken = true
  const service = serviceOver(
    TestProcess.publishing((batch, broker) =>
      isBroken ? Effect.die(new Error("broken on purpose")) : broker.publish(batch)
    )
  )
  return Effect.gen(function* () {
    yield* Refusals.append("a", 1, 1)
    yield* untilItSays("the lane", { status: "degraded", stoppedLanes: [{ lane: laneOf("a"), attempt: some }] })
    isBroken = false
    yield* untilItSays("that it goes on", {})
  }).pipe(Effect.provide(service))
})

it.live("aggregates with out-of-order versions degrade the service, and are counted until they are repaired", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    // In one transaction, or the first aggregate would be repaired before the second one breaks.
    yield* Transaction.run(
      Effect.forEach(["a", "b"], (id) => Effect.andThen(Refusals.append(id, 7, 1), Refusals.append(id, 1, 1)))
    )
    yield* untilItSays("both of them", { status: "degraded", misorderedAggregates: 2 })
    yield* sql`DELETE FROM outbox_events WHERE aggregate_version = 1`
    yield* untilItSays("that they are repaired", {})
  }).pipe(Effect.provide(serviceOver((layer) => layer)))
)

it.live("a refused event and the events parked behind it are counted, and do not degrade the service", () => {
  const topic = Refusals.makeTopic()
  topic.refused.add("poison/1")
  return Effect.gen(function* () {
    yield* Refusals.append("poison", 1, 3)
    yield* untilItSays("a dead letter with two behind it", { parkedEvents: 2, deadLetters: 1 })
  }).pipe(Effect.provide(serviceOver(Refusals.over(topic))))
})
