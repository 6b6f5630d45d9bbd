/** A time is read from the database as the stored instant, in UTC, whatever the sessions' time zone is. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { InboxReport } from "../../src/operations/reports/InboxReport.ts"
import { HoldSettings } from "../../src/inbox/holds/ParkedHolds.ts"
import * as Deliveries from "../support/Deliveries.ts"

it.live("the times of a held event's failures and of its next attempt are reported", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { broken, subscriber } = Deliveries.makeSubscriber("one")
    broken.set("a/1", Effect.fail(new Error("out of paper")))
    const millis = Effect.map(
      sql<{ readonly millis: number }>`SELECT (extract(epoch FROM clock_now()) * 1000)::float8 AS millis`,
      ([row]) => row!.millis
    )
    const before = yield* millis
    yield* Deliveries.deliver(subscriber, Deliveries.makePartition().slice([Deliveries.record("a", 1)]))
    const after = yield* millis
    const [hold] = yield* sql<{ readonly dueMillis: number; readonly at: string }>`
      SELECT (extract(epoch FROM next_attempt_at) * 1000)::float8 AS "dueMillis", history -> 0 ->> 'at' AS at FROM inbox_holds`
    const failedMillis = Date.parse(hold!.at)
    assert.isTrue(Math.floor(before) <= failedMillis && failedMillis <= after, hold!.at)
    const { items } = yield* (yield* InboxReport).list(["retrying"], {}, { limit: 1 })
    assert.strictEqual(Date.parse(items[0]!.nextAttemptAt!), Math.floor(hold!.dueMillis))
  }).pipe(
    Effect.provide(Deliveries.process),
    Effect.provide(Layer.succeed(HoldSettings, { retryBaseMillis: 60_000, maxAttempts: 3 }))
  )
)
