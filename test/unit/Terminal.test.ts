/** Lists on a terminal fit its width and have colour; in a pipe nothing is cut, and nothing coloured. */
import { assert, describe, it } from "@effect/vitest"
import { colour, pipe, table } from "../../src/cli/Terminal.ts"

const rows = [
  ["EVENT", "STATUS", "TYPE", "LAST ERROR"],
  [
    "0192a000-0000-7000-8000-000000000000",
    "dead",
    "OrderPlaced",
    "the batch takes 14,000 bytes\nand the topic allows 4,000"
  ],
  ["0192a000-0000-7000-8000-000000000001", "queued", "OrderPaid", ""]
]
const terminal = (width: number) => ({ width, hasColour: false })
const inColour = { width: undefined, hasColour: true }

describe("a list", () => {
  it("in a pipe has each cell whole, however long", () => {
    assert.deepStrictEqual(table(rows, pipe), [
      "EVENT                                 STATUS  TYPE         LAST ERROR",
      "0192a000-0000-7000-8000-000000000000  dead    OrderPlaced  the batch takes 14,000 bytes and the topic allows 4,000",
      "0192a000-0000-7000-8000-000000000001  queued  OrderPaid"
    ])
  })

  it("fits the terminal: the last columns are cut first, and ids last", () => {
    for (const width of [120, 80, 62, 50, 40]) {
      for (const line of table(rows, terminal(width))) assert.isAtMost(line.length, width)
    }
    assert.deepStrictEqual(
      table(rows, terminal(80))[1],
      "0192a000-0000-7000-8000-000000000000  dead    OrderPlaced  the batch takes 14,0…"
    )
    assert.include(table(rows, terminal(62))[1], "0192a000-0000-7000-8000-000000000000  dead    OrderPl…")
    // Narrower than its ids.
    assert.match(table(rows, terminal(40))[1]!, /^0192a000-\S*…/)
  })

  it("has its ids whole wherever they stand, as long as there is something else to cut", () => {
    const held = [
      ["CONSUMER", "EVENT", "STATUS"],
      ["warehouse-consumer", "0192a000-0000-7000-8000-000000000000", "retrying"]
    ]
    assert.strictEqual(table(held, terminal(58))[1], "warehouse-c…  0192a000-0000-7000-8000-000000000000  retry…")
  })

  it("that fits is not changed", () => {
    assert.deepStrictEqual(table(rows, terminal(200)), table(rows, pipe))
  })
})

describe("colour", () => {
  it("is on states alone, and only where the terminal has it", () => {
    const [head, dead, queued] = table(rows, pipe)
    assert.strictEqual(colour(head!, inColour), `\u001B[1m${head}\u001B[0m`)
    assert.include(colour(dead!, inColour), "  \u001B[31mdead\u001B[0m    OrderPlaced")
    assert.strictEqual(colour(queued!, inColour), queued)
    assert.strictEqual(colour(dead!, pipe), dead)
    // Words of a sentence are no cells.
    assert.strictEqual(colour("It is dead already.", inColour), "It is dead already.")
    assert.strictEqual(colour("a  constructor  b", inColour), "a  constructor  b")
  })
})
