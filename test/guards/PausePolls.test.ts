/** Every topic is tried when its pause ends, however late the poll comes. */
import { it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { BrokerUnavailable } from "../../src/brokers/Broker.ts"
import * as Dispatching from "../../src/Dispatching.ts"
import { PauseSettings } from "../../src/guards/PartitionPauses.ts"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import * as Ledger from "../support/Ledger.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const writer = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(TestProcess.quiet)
)

it.live("topics that failed at the same time are each tried when their pauses end, without a poll", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    for (let index = 0; index < 20; index++) yield* Transaction.run(Ledger.append(`ledger-${index}`))
    yield* sql`UPDATE outbox_events SET topic = 'topic-' || aggregate_id`
    const failed = new Set<string>()
    yield* Layer.build(
      Dispatching.over(
        TestProcess.dispatcherStepsOver(
          TestProcess.publishing((batch, broker) => {
            if (failed.has(batch.topic)) return broker.publish(batch)
            failed.add(batch.topic)
            // All topics fail before the first pause ends.
            return Effect.andThen(
              Effect.sleep("1 second"),
              Effect.fail(new BrokerUnavailable({ operation: "publish", cause: "away" }))
            )
          })
        )
      ).pipe(
        Layer.provide(Layer.succeed(LaneWorkersSettings, { pollMillis: 600_000 })),
        Layer.provide(Layer.succeed(PauseSettings, { backoffBaseMillis: 1_000, backoffCapMillis: 2_000 }))
      )
    )
    yield* Counters.drained
  }).pipe(Effect.scoped, Effect.provide(writer))
)
