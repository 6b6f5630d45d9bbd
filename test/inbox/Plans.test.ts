/**
 * The rows that a consumer's statements read and lock: the cursors of their own aggregates, and no others. Postgres keeps plans that it
 * made while the table was small, and such a plan could read all cursors of a consumer. Every statement locks marks before cursors.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Latch, Layer } from "effect"
import * as Arrival from "../../src/inbox/Arrival.ts"
import { FastPath } from "../../src/inbox/FastPath.ts"
import { Cursors } from "../../src/inbox/Cursors.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import * as Consumers from "../../src/main/Consumers.ts"
import * as OneStatementClaim from "../../src/postgres/fast/OneStatementClaim.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { eventually } from "../support/Counters.ts"
import * as Deliveries from "../support/Deliveries.ts"

const process = Layer.provideMerge(Deliveries.process, OneStatementClaim.layer)
const aggregateType = "Counter"

const arrivals = (id: string, version: number) => [
  Arrival.make(Deliveries.topic, 0, { ...Deliveries.record(id, version), offset: 0n })
]

/** The rows of the cursors' table that `effect` reads. It runs in one transaction, and so on one connection with its stored plans. */
const readBy = Effect.fnUntraced(function* <E, R>(effect: Effect.Effect<unknown, E, R>) {
  const { sql } = yield* Transaction
  const rows = Effect.map(
    sql<{ readonly read: number }>`
      SELECT (seq_tup_read + coalesce(idx_tup_fetch, 0))::int4 AS read FROM pg_stat_xact_user_tables WHERE relname = 'consumer_cursors'`,
    ([row]) => row?.read ?? 0
  )
  const before = yield* rows
  yield* effect
  return (yield* rows) - before
})

const fill = Effect.gen(function* () {
  const { sql } = yield* Transaction
  yield* sql`
    INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version)
    SELECT 'one', 'other-' || n, ${aggregateType}, 1 FROM generate_series(1, 5000) AS n`
})

it.live("a slice reads the cursors of its own aggregates only, also by plans that were made when there were few", () =>
  Transaction.run(
    Effect.gen(function* () {
      const { sql } = yield* Transaction
      for (const [name, value] of Object.entries(Consumers.plans))
        yield* sql`SELECT set_config(${name}, ${value}, true)`
      const claim = yield* FastPath
      const read = Effect.flatMap(Cursors, (cursors) => cursors.read("one", [{ aggregateId: "b", aggregateType }]))
      const advance = (from: number | undefined, to: number) =>
        Effect.flatMap(Cursors, (cursors) => cursors.advance("one", [{ aggregateId: "b", aggregateType, from, to }]))
      yield* claim("one", arrivals("a", 1))
      yield* read
      yield* advance(undefined, 1)
      yield* fill
      assert.isAtMost(yield* readBy(claim("one", arrivals("a", 2))), 10)
      assert.isAtMost(yield* readBy(read), 10)
      assert.isAtMost(yield* readBy(advance(1, 2)), 10)
    })
  ).pipe(Effect.provide(Cursors.layer), Effect.provide(process))
)

it.live("the fast path waits for a mark without a lock on the cursor, so it can't deadlock with the steps", () =>
  Effect.gen(function* () {
    const claim = yield* FastPath
    yield* Transaction.run(claim("one", arrivals("a", 1)))
    const second = arrivals("a", 2)
    const isMarked = yield* Latch.make()
    const claiming = yield* Effect.forkScoped(Effect.andThen(isMarked.await, Transaction.run(claim("one", second))))
    yield* Transaction.run(
      Effect.gen(function* () {
        const { sql } = yield* Transaction
        const inbox = yield* Inbox
        yield* inbox.markFirst("one", [second[0]!.eventId])
        yield* isMarked.open
        yield* eventually(
          "the claim to wait for the mark",
          Effect.map(
            sql`SELECT 1 AS one FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))`,
            (rows) => rows.length === 1
          )
        )
        yield* sql`SELECT 1 AS one FROM consumer_cursors WHERE consumer_name = 'one' AND aggregate_id = 'a' FOR UPDATE NOWAIT`
      })
    )
    const claimed = yield* Fiber.join(claiming)
    assert.strictEqual(claimed?.first.size, 0)
  }).pipe(Effect.scoped, Effect.provide(process))
)
