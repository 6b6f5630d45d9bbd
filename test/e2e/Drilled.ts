/** Drills as a person runs them, and the service beside them. */
import { assert } from "@effect/vitest"
import { Deferred, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import * as Path from "node:path"
import * as Breakages from "../../src/cli/drill/Breakages.ts"
import * as Leftovers from "../../src/cli/drill/Leftovers.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

export const environment = environmentWith({ LOG_LEVEL: "Warn" })

/** A drill waits for two minutes at most before it fails. */
export const run = commandOf("drill", environment, 200_000)

export const world = Layer.provideMerge(Directory.layer, TestDatabase.layerPool)

/** A service that may be broken. */
export const service = Effect.flatMap(environment, (env) => ServiceProcess.start({ env: { ...env, FAULTS: "on" } }))

/** Nothing is broken, armed or paused any more. */
export const isWhole = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const { isBroken, what } of Breakages.all) assert.isFalse(yield* isBroken, what)
  assert.deepStrictEqual(yield* sql`SELECT * FROM armed_faults`, [])
  assert.deepStrictEqual(yield* sql`SELECT * FROM operator_pauses`, [])
})

/** No event of a drill has failed, and none of its payments waits for an outcome. */
export const nothingWaits = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  assert.deepStrictEqual(yield* sql`SELECT id, status FROM payments WHERE status IN ('charging', 'manual')`, [])
  assert.deepStrictEqual(
    yield* sql`
      SELECT event_id::text AS event_id, status FROM outbox_status WHERE status IN ('retrying', 'dead')
      UNION ALL SELECT event_id, status FROM inbox_holds WHERE status IN ('retrying', 'dead')`,
    []
  )
})

/** Starts the drill, sends the signal once it has told this (that it has broken something), and waits for its end. */
export const signalled = (name: string, url: string, signal: NodeJS.Signals, at = "✗ break:") =>
  Effect.gen(function* () {
    const env = yield* environment
    const broken = yield* Deferred.make<void>()
    const ended = yield* Deferred.make<number | string | null>()
    let output = ""
    const child = spawn(process.execPath, [Path.join(root, "src/paid-once.js"), "drill", name, "--url", url], {
      env: { PATH: process.env["PATH"], ...plantedEnv(), ...env },
      stdio: ["ignore", "pipe", "ignore"]
    })
    child.stdout.on("data", (chunk: Buffer) => {
      output += chunk.toString()
      if (output.includes(at)) Effect.runSync(Deferred.succeed(broken, undefined))
    })
    // Not "close": a process that the drill has left may hold its output.
    child.on("exit", (code, by) => Effect.runSync(Deferred.succeed(ended, code ?? by)))
    yield* Effect.raceFirst(Deferred.await(broken), Deferred.await(ended))
    child.kill(signal)
    return { code: yield* Deferred.await(ended), output: () => output }
  })

/** Kills the drill in its broken state, and waits until its session, which holds the lock, has ended. */
export const killed = Effect.fnUntraced(function* (name: string, url: string, at?: string) {
  const sql = yield* SqlClient.SqlClient
  const { code, output } = yield* signalled(name, url, "SIGKILL", at)
  assert.strictEqual(code, "SIGKILL", `${name}: ${output()}`)
  yield* eventually(
    "the end of its session, which holds the lock",
    Effect.map(
      sql`SELECT 1 AS one FROM pg_locks WHERE locktype = 'advisory' AND objid = ${Leftovers.lockKey}`,
      (held) => held.length === 0
    )
  )
  return output()
})
