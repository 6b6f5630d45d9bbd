import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as JsonBounds from "../../src/http/JsonBounds.ts"

const bytes = (text: string) => new TextEncoder().encode(text)
const exceededBy = (text: string) => JsonBounds.exceededBy(bytes(text))

/** The values of a decoded text, and how deep it is nested. */
const sizeOf = (value: Schema.Json): { readonly values: number; readonly depth: number } => {
  if (typeof value !== "object" || value === null) return { values: 1, depth: 0 }
  const inner = Object.values(value as Record<string, Schema.Json>).map(sizeOf)
  return {
    values: inner.reduce((sum, { values }) => sum + values, 1),
    depth: Math.max(0, ...inner.map(({ depth }) => depth)) + 1
  }
}

describe("JsonBounds", () => {
  it("a text at its bounds passes, and one value or bracket more does not", () => {
    const { maxDepth, maxValues } = JsonBounds
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth)
    assert.isUndefined(exceededBy(nested(maxDepth)))
    assert.strictEqual(exceededBy(nested(maxDepth + 1)), "must be nested at most 32 deep")
    const list = (length: number) => JSON.stringify(Array.from({ length }, () => 0))
    // The list itself is a value, and so is the whole text.
    assert.isUndefined(exceededBy(list(maxValues - 1)))
    assert.strictEqual(exceededBy(list(maxValues)), "must have at most 10000 values")
  })

  it("what stands in a string counts nothing, whatever is escaped there", () => {
    const noise = "[{,".repeat(20_000)
    for (const text of [noise, `\\"${noise}`, `${noise}\\`, `\\\\"${noise}\\"`, `\u2028é${noise}😀`]) {
      assert.isUndefined(exceededBy(JSON.stringify({ [text]: text, after: [text] })), text.slice(0, 10))
    }
    // The string ends at the second quote: an even number of backslashes escapes each other.
    assert.strictEqual(exceededBy(`["\\\\",${"[".repeat(40)}`), "must be nested at most 32 deep")
  })

  it.prop("no text within the bounds has more values, or is nested deeper", [Schema.Json], ([value]) => {
    const { depth, values } = sizeOf(value)
    const wide = Array.from({ length: Math.ceil(JsonBounds.maxValues / values) }, () => value)
    const deep = Array.from({ length: JsonBounds.maxDepth + 1 - depth }).reduce<Schema.Json>((inner) => [inner], value)
    assert.isDefined(exceededBy(JSON.stringify(wide)))
    assert.strictEqual(exceededBy(JSON.stringify(deep)), "must be nested at most 32 deep")
  })
})
