import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { OneInFlight } from "../../../src/outbox/Dispatcher.ts"
import { Queue, type QueuedEvent } from "../../../src/outbox/Queue.ts"
import { Publisher } from "../../../src/outbox/Publisher.ts"
import { eventColumns } from "../../../src/outbox/EventRows.ts"
import { eachLane } from "./fetching.ts"
import type { Mistake } from "./Mistake.ts"

export const twoInFlight: Mistake = {
  name: "two-in-flight",
  what: "A dispatcher does not wait for the ack of a batch before it sends the lane's next one: two workers, and a list of what is under way.",
  why: "The list keeps both from taking the same event, and pipelining doubles the throughput. But when the first send fails, the second has overtaken it.",
  rule: "One batch is in flight per lane and topic.",
  read: "src/outbox/Pipeline.ts",
  plant: (real) => ({
    batchSize: 1,
    workersPerLane: 2,
    dispatcher: Layer.unwrap(
      Effect.sync(() => {
        // One set for each process, which dies with it.
        const inFlight = new Set<bigint>()
        return real.dispatcher.pipe(
          Layer.provide(
            Layer.mergeAll(queueWithout(inFlight), publisherOf(inFlight), Layer.succeed(OneInFlight, false))
          )
        )
      })
    )
  })
}

/** Fetches events that are not in flight, and adds them to the set. */
const queueWithout = (inFlight: Set<bigint>) =>
  Layer.effect(
    Queue,
    Effect.gen(function* () {
      const queue = yield* Queue
      const sql = yield* SqlClient.SqlClient
      return Queue.of({
        ...queue,
        fetch: eachLane(
          Effect.fnUntraced(function* (lane) {
            const rows = yield* sql<QueuedEvent>`
              SELECT ${sql.literal(eventColumns("outbox_events"))} FROM outbox_events
              WHERE lane = ${lane}::int2 AND seq <> ALL (${[...inFlight]}::int8[]) ORDER BY seq LIMIT 1`
            for (const { seq } of rows) inFlight.add(seq)
            return rows
          })
        ),
        mark: (runs) =>
          Effect.tapCause(queue.mark(runs), () =>
            Effect.sync(() => {
              for (const { events } of runs) forget(inFlight, events)
            })
          )
      })
    })
  )

/** Events that were refused or got no answer leave the set. */
const publisherOf = (inFlight: Set<bigint>) =>
  Layer.effect(
    Publisher,
    Effect.map(Publisher, (publisher) =>
      Publisher.of({
        ...publisher,
        publish: (batch) =>
          Effect.tapError(publisher.publish(batch), () => Effect.sync(() => forget(inFlight, batch.events)))
      })
    )
  )

const forget = (inFlight: Set<bigint>, events: ReadonlyArray<QueuedEvent>) => {
  for (const { seq } of events) inFlight.delete(seq)
}
