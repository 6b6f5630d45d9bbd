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

  it("fits the terminal: long texts are cut or left out first, then words, and ids last", () => {
    for (const width of [120, 80, 62, 50, 40]) {
      for (const line of table(rows, terminal(width))) assert.isAtMost(line.length, width)
    }
    assert.deepStrictEqual(
      table(rows, terminal(80))[1],
      "0192a000-0000-7000-8000-000000000000  dead    OrderPlaced  the batch takes 14,0…"
    )
    assert.strictEqual(table(rows, terminal(62))[1], "0192a000-0000-7000-8000-000000000000  dead    OrderPlaced")
    // Narrower than its ids.
    assert.match(table(rows, terminal(40))[1]!, /^0192a000-\S*…/)
  })

  it("has its ids whole wherever they stand, as long as there is something else to cut", () => {
    const held = [
      ["CONSUMER", "EVENT", "STATUS"],
      ["warehouse-consumer", "0192a000-0000-7000-8000-000000000000", "retrying"]
    ]
    assert.strictEqual(table(held, terminal(58))[1], "warehouse…  0192a000-0000-7000-8000-000000000000  retrying")
  })

  it("of found events has id, state and type whole at 80 and 110 columns, and their states in colour", () => {
    const id = "0192a000-0000-7000-8000-000000000000"
    const found = [
      ["EVENT", "STATUS", "TYPE", "AGGREGATE", "VERSION", "OCCURRED", "RECORD"],
      [id, "published", "OrderPlaced", `Order ${id}`, "1", "2026-01-01T12:00:00.000Z", "orders/3/1042137"]
    ]
    const [head, row] = table(found, terminal(80))
    assert.match(head!, /^EVENT +STATUS +TYPE +VERSION/)
    assert.match(row!, new RegExp(`^${id}  published  OrderPlaced  1`))
    assert.include(colour(row!, inColour), "  \u001B[32mpublished\u001B[0m  OrderPlaced")
    assert.match(
      table(found, terminal(110))[1]!,
      new RegExp(`^${id}  published  OrderPlaced  Order 0192a000-.*…  1 +orders/3/1042137$`)
    )
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
