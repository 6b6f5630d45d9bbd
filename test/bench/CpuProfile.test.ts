/** The table of CPU by step, from a profile that is written by hand. */
import { assert, it } from "@effect/vitest"
import * as CpuProfile from "../../bench/profile/CpuProfile.ts"

const frame = (functionName: string, url = "") => ({ functionName, url })

it("each function belongs to one step", () => {
  const stepOf = (functionName: string, url = "") => CpuProfile.stepOf(frame(functionName, url))
  assert.isUndefined(stepOf("(idle)"))
  assert.strictEqual(stepOf("(garbage collector)"), "garbage collector")
  assert.strictEqual(stepOf("writev"), "sockets")
  assert.strictEqual(stepOf("onStreamRead", "node:internal/stream_base_commons"), "sockets")
  assert.strictEqual(stepOf("mark", "file:///a/src/outbox/Queue.ts"), "ours: outbox")
  assert.strictEqual(stepOf("run", "file:///a/node_modules/effect/src/internal/effect.ts"), "effect")
  assert.strictEqual(stepOf("run", "file:///a/node_modules/effect/dist/sql/Statement.js"), "effect, SQL")
  assert.strictEqual(stepOf("read", "file:///a/node_modules/@effect/sql-pg/dist/PgClient.js"), "driver")
  assert.strictEqual(stepOf("encode", "/a/node_modules/kafkajs/src/protocol/encoder.js"), "kafkajs")
  assert.strictEqual(stepOf("nextTick", "node:internal/process/task_queues"), "other parts of Node")
})

it("only the samples of the window count, each until the next one, and none while the process waits", () => {
  const profile: CpuProfile.CpuProfile = {
    startTime: 1_000_000,
    nodes: [
      { id: 1, callFrame: frame("(idle)") },
      { id: 2, callFrame: frame("writev") },
      { id: 3, callFrame: frame("(garbage collector)") }
    ],
    // At 1,000.1, 1,000.2 … milliseconds.
    samples: [2, 2, 1, 3, 2],
    timeDeltas: [100, 100, 100, 100, 100]
  }
  const steps = CpuProfile.steps(profile, { from: 1_000.15, to: 1_000.45 })
  assert.deepStrictEqual(
    [...steps],
    [
      ["sockets", 100],
      ["garbage collector", 100]
    ]
  )
})
