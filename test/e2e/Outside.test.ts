/** The benchmark from outside, at a rate that any machine takes. Its figures say nothing here: the test keeps it from rotting. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { inject } from "vitest"
import { Environment, Side } from "../../bench/Environment.ts"
import * as Outside from "../../bench/outside.ts"
import { areInstalled, prepare, withArchive } from "../../bench/outside/Contenders.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const brokers = inject("kafkaBrokers")
const missing = brokers === null ? inject("kafkaMissing") : null
if (missing !== null) {
  const message = `e2e/Outside.test.ts did not run (the benchmark from outside): ${missing}`
  if (process.env["CI"] === "true") throw new Error(message)
  process.stderr.write(`SKIPPED: ${message}\n`)
}

const environment = Layer.provideMerge(
  Side.layer,
  Layer.effect(
    Environment,
    Effect.map(TestDatabase, ({ url }) => ({ databaseUrl: url, brokers: brokers ?? "" }))
  )
)

// The peers are a package of their own, and a machine without the registry can't install them.
const withoutPeers = () => {
  process.stderr.write("e2e/Outside.test.ts compared nothing: npm ci --prefix bench/peers\n")
  it.live("says how to install them", () =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(prepare([withArchive.peer]))
      assert.include(String(exit), "npm ci --prefix bench/peers")
    }).pipe(Effect.provide(environment), Effect.provide(TestDatabase.layer))
  )
}

const besidePeers = () => {
  it.live("runs both relays as processes, loses no event, and sets each figure beside its limit", () =>
    Effect.gen(function* () {
      const result = yield* Outside.outside({ rates: [50], seconds: 2, warmUpSeconds: 0, rounds: 1, events: 2_000 })
      const [load] = result.loads
      for (const who of ["ours", "peer"] as const) {
        const run = load?.rounds[0]?.[who]
        for (const phase of [run?.cold, run?.warm]) {
          assert.strictEqual(phase?.events, 100)
          assert.isAbove(phase?.fromDue.p50 ?? 0, 0)
          assert.isAtLeast(phase?.fromDue.p99 ?? 0, phase?.fromCommit.p99 ?? Infinity)
        }
        for (const { rounds } of result.drains) assert.isAbove(rounds[0]?.[who].firstMillis ?? 0, 0)
      }
      assert.deepStrictEqual(
        result.verdicts.map(({ what }) => what),
        [
          "p99 at 50/s, cold",
          "CPU at 50/s, cold",
          "p99 at 50/s, warm",
          "CPU at 50/s, warm",
          "drain, ours, archive on over simplest + archive + NOTIFY",
          "drain, ours, archive off over simplest"
        ]
      )
      assert.include(Outside.print(result), "none overtook an earlier one of its aggregate")
    }).pipe(Effect.scoped, Effect.provide(environment), Effect.provide(TestDatabase.layer))
  )
}

describe.skipIf(missing !== null)("the benchmark from outside", areInstalled() ? besidePeers : withoutPeers)
