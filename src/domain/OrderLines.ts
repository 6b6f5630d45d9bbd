/** The lines of an order, with their bounds. */
import { Result, Schema } from "effect"
import { totalOf } from "./Money.ts"
import { shortText } from "./Text.ts"

/** A stock keeping unit, by the caller's own code. */
export const Sku = shortText(100).pipe(Schema.brand("Sku"))
export type Sku = typeof Sku.Type

/** A whole number within bounds. One message covers every other input: a fraction, a string, a missing value. */
const wholeNumber = (minimum: number, maximum: number) => {
  const message = `must be a whole number between ${minimum} and ${maximum}`
  return Schema.Int.annotate({ message }).check(Schema.isBetween({ minimum, maximum }, { message }))
}

/** One line: a sku, a quantity and a price. The bounds exclude every overflow. */
export const OrderLine = Schema.Struct({
  sku: Sku,
  quantity: wholeNumber(1, 1_000_000),
  unitAmountMinor: wholeNumber(1, 100_000_000_000)
})
export type OrderLine = typeof OrderLine.Type

/** A thousand lines make an event of some 150 kB, well below a topic's limit. */
export const maxLines = 1_000

/** The lines of an order: 1 to {@link maxLines}, with a total that a JSON number carries exactly. */
export const OrderLines = Schema.Array(OrderLine).check(
  Schema.isMinLength(1, { message: "must have at least one line" }),
  Schema.isMaxLength(maxLines, { message: `must have at most ${maxLines} lines` }),
  Schema.makeFilter((lines: ReadonlyArray<OrderLine>) => {
    // All checks run, to name all errors. The total is checked only where the count of lines is valid.
    if (lines.length === 0 || lines.length > maxLines) return true
    const total = totalOf(lines)
    return Result.isSuccess(total) || total.failure
  })
)
