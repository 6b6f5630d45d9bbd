/** Each contender of the benchmark, at a load that any machine takes. Its figures say nothing here: the test keeps the peers from rotting. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { inject } from "vitest"
import { Environment, Side } from "../../bench/Environment.ts"
import { backlog, together } from "../../bench/outside/Backlog.ts"
import { type Contender, ours, simplest } from "../../bench/outside/Contenders.ts"
import * as Peers from "../../bench/outside/Peers.ts"
import { recovery } from "../../bench/outside/Recovery.ts"
import { steady } from "../../bench/outside/Steady.ts"
import { setUp, topicOf } from "../../bench/outside.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const brokers = inject("kafkaBrokers")
const missing =
  brokers === null ? inject("kafkaMissing") : Peers.areAllInstalled() ? null : "npm ci --prefix bench/peers"
if (missing !== null) process.stderr.write(`SKIPPED: e2e/Peers.test.ts did not run (the contenders): ${missing}\n`)

const environment = Layer.provideMerge(
  Side.layer,
  Layer.effect(
    Environment,
    Effect.map(TestDatabase, ({ url }) => ({ databaseUrl: url, brokers: brokers ?? "" }))
  )
)

const withContenders = <A, E, R>(
  contenders: ReadonlyArray<Contender>,
  work: (setting: Effect.Success<ReturnType<typeof setUp>>) => Effect.Effect<A, E, R>
) =>
  Effect.flatMap(setUp(contenders), work).pipe(
    Effect.scoped,
    Effect.provide(environment),
    Effect.provide(TestDatabase.layer)
  )

// Replication needs a server with another wal_level than the tests have.
const peers = Peers.all.filter((peer) => peer !== Peers.libraryReplication)

describe.skipIf(missing !== null)("the contenders", () => {
  for (const contender of peers) {
    it.live(`${contender.name} sends a load and a backlog, each event once, in order where nothing goes wrong`, () =>
      withContenders([contender], (setting) =>
        Effect.gen(function* () {
          const load = yield* steady(contender, setting, topicOf(contender), { rate: 20, seconds: 2, warmUpSeconds: 0 })
          assert.deepStrictEqual([load.cold.late, load.warm.late, load.duplicates], [0, 0, 0])
          assert.isAbove(load.warm.fromCommit.p50, 0)
          const drained = yield* backlog(contender, setting, topicOf(contender), 1_000)
          assert.strictEqual(drained.duplicates, 0)
          assert.isAbove(drained.eventsPerSecond, 0)
        })
      )
    )
  }

  it.live("four dispatchers drain a backlog together, and one aggregate's large events keep their order", () => {
    const contender = ours("on")
    return withContenders([contender], (setting) =>
      Effect.gen(function* () {
        const run = yield* together(contender, setting, topicOf(contender), { events: 2_000, relays: 4 })
        assert.strictEqual(run.overtaken, 0)
        const load = yield* steady(contender, setting, topicOf(contender), {
          rate: 20,
          seconds: 2,
          warmUpSeconds: 0,
          relays: 2,
          shape: { aggregates: 1, connections: 4, dataBytes: 4_096 }
        })
        assert.strictEqual(load.cold.events, 40)
      })
    )
  })

  for (const contender of [ours("on"), simplest("on", "on")]) {
    it.live(`${contender.name}: another relay takes over from one that was killed, and the wait is measured`, () =>
      withContenders([contender], (setting) =>
        Effect.gen(function* () {
          const run = yield* recovery(contender, setting, topicOf(contender), "kill", {
            rate: 20,
            freezeSeconds: 0,
            seconds: 4
          })
          assert.isAtLeast(run.goneMillis, run.backMillis)
          assert.strictEqual(run.overtaken, 0)
        })
      )
    )
  }
})
