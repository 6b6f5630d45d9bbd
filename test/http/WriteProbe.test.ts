/** The probe of a long outage, on the test's clock. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import { HealthParts } from "../../src/http/Health.ts"
import * as WriteProbe from "../../src/http/WriteProbe.ts"
import * as OutageLog from "../../src/operations/OutageLog.ts"
import { Fibers } from "../../src/platform/Supervised.ts"

const full = new SqlError.SqlError({
  reason: new SqlError.UnknownError({
    cause: Object.assign(new Error("no space"), { code: "53100" }),
    message: "query"
  })
})

it.effect("an outage is probed until it ends: a line when it begins, one a minute, and one when it ends", () => {
  let isFull = true
  let probes = 0
  const lines: Array<string> = []
  const sql = Object.assign(() => Effect.void, {
    withTransaction: (effect: Effect.Effect<unknown>) => {
      probes++
      return isFull ? Effect.fail(full) : effect
    }
  })
  return Effect.gen(function* () {
    const { doubt } = yield* WriteProbe.WriteProbe
    yield* TestClock.adjust("1 minute")
    assert.strictEqual(probes, 0)
    yield* Effect.repeat(doubt, { times: 9 })
    yield* TestClock.adjust("150 seconds")
    isFull = false
    yield* TestClock.adjust("1 minute")
    assert.deepStrictEqual(lines, [
      "the database is unavailable: no space (53100)",
      "the database is unavailable since 1m: no space (53100)",
      "the database is unavailable since 2m: no space (53100)",
      "the database is available again: nothing waits for it any more, 2m 31s after the first failure; it was: no space (53100)"
    ])
    // One a second, and none any more.
    assert.strictEqual(probes, 152)
  }).pipe(
    Effect.provide(
      WriteProbe.layer.pipe(
        Layer.provide(Layer.succeed(SqlClient.SqlClient, sql as never)),
        Layer.provide(Layer.merge(HealthParts.layer, Fibers.layer)),
        Layer.provide(OutageLog.layer),
        Layer.provide(Logger.layer([Logger.make(({ message }) => void lines.push(...[message].flat().map(String)))]))
      )
    )
  )
})
