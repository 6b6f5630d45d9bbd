/** Turns leave nothing in V8's old heap, however many there are. */
import { assert, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import * as Path from "node:path"
import { plantedEnv } from "../mutants/planted.ts"

/** A turn that makes its generator function anew leaves 1,500 bytes and more: its lanes, marks or events. */
const maxBytesPerTurn = 500

it("a turn leaves nothing in the old heap", () => {
  // A process of its own: other tests fill this one's heap.
  const output = execFileSync(
    process.execPath,
    ["--max-semi-space-size=4", "--heap-growing-percent=2000", Path.join(import.meta.dirname, "manyTurns.ts")],
    { encoding: "utf8", env: { ...process.env, ...plantedEnv() } }
  )
  const { bytesPerTurn, collections, turns } = JSON.parse(output) as Record<string, number>
  assert.isAbove(turns!, 10_000)
  // A collection would hide what the turns have left.
  assert.strictEqual(collections, 0)
  assert.isBelow(bytesPerTurn!, maxBytesPerTurn)
})
