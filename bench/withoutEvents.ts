/**
 * The service with an outbox that runs the aggregates' own writes and appends nothing: `bench pay` sets what an event costs a request against
 * it. It announces nothing and is good for nothing else.
 */
import { Effect, Layer } from "effect"
import { NothingWritten, Outbox, type OutboxService } from "../src/messaging/outbox/Outbox.ts"
import { Transaction } from "../src/platform/database/Transaction.ts"

const save: OutboxService["save"] = Effect.fnUntraced(function* (stream, _events, write, also = () => []) {
  const { sql } = yield* Transaction
  const ctes = [
    sql`written AS (${write})`,
    ...also(sql`written`).map((statement, index) => sql`${sql(`also_${index}`)} AS (${statement})`)
  ]
  const [row] = yield* Effect.orDie(
    sql<{ readonly version: number }>`WITH ${sql.csv(ctes)} SELECT version FROM written`
  )
  if (row === undefined) return yield* new NothingWritten({ aggregateId: stream.aggregateId })
  return row.version
})

Reflect.set(Outbox, "layer", Layer.succeed(Outbox, { save, append: () => Effect.void }))
await import("../src/paid-once.ts")
