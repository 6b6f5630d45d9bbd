/** The text of an error, whatever was thrown. */
import { assert, it } from "vitest"
import { innermost } from "../../src/platform/Innermost.ts"

const circle = new Error("outer")
circle.cause = circle

it.each([
  [new Error("outer", { cause: new Error("inner") }), "inner"],
  [new AggregateError([new Error("one"), new Error("two")]), "one; two"],
  [circle, "outer"],
  ["a text", "a text"],
  [undefined, "undefined"],
  [Object.create(null), "{}"],
  [{ amount: 1n }, `{"amount":1n}`]
])("the innermost text of case %#", (error, text) => {
  assert.strictEqual(innermost(error), text)
})
