/** The catalogue of fault points, which `FAULTS` is checked against, has exactly the points of the source. */
import { assert, it } from "vitest"
import { globSync, readFileSync } from "node:fs"
import { faultPoints } from "../../src/FaultPoints.ts"
import { root } from "../support/Postgres.ts"

const pointsOf = (pattern: RegExp) =>
  [
    ...new Set(
      globSync("src/**/*.ts", { cwd: root }).flatMap((file) =>
        [...readFileSync(`${root}/${file}`, "utf8").matchAll(pattern)].map((match) => match[1]!)
      )
    )
  ].toSorted()

it("FAULTS may name each fault point of the source, and no other", () => {
  assert.deepStrictEqual(pointsOf(/faults\s*\.(?:at|around)\(\s*"([^"]+)"/g), [...faultPoints.keys()].toSorted())
})

it("only a point around an operation can repeat it, or lose its answer", () => {
  assert.deepStrictEqual(
    pointsOf(/faults\s*\.around\(\s*"([^"]+)"/g),
    [...faultPoints].flatMap(([point, actions]) => (actions.includes("duplicate") ? [point] : []))
  )
})
