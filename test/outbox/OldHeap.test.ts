/** What turns leave in V8's old heap: nothing, however many there are. */
import { assert, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import * as Path from "node:path"
import { plantedEnv } from "../mutants/planted.ts"

/** A turn that made its generator function anew left some 4,000 bytes: its lanes, events and marks. */
const maxBytesPerTurn = 500

it("a turn leaves nothing in the old heap", () => {
  // A process of its own: other tests fill this one's heap. It must not collect the old heap meanwhile.
  const output = execFileSync(
    process.execPath,
    ["--max-semi-space-size=4", "--heap-growing-percent=2000", Path.join(import.meta.dirname, "manyTurns.ts")],
    { encoding: "utf8", env: { ...process.env, ...plantedEnv() } }
  )
  const { bytesPerTurn, turns } = JSON.parse(output) as { readonly bytesPerTurn: number; readonly turns: number }
  assert.isAbove(turns, 10_000)
  assert.isBelow(bytesPerTurn, maxBytesPerTurn)
})
