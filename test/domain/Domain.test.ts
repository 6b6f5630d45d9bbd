import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import type { OrderEvent } from "../../src/domain/Events.ts"
import { CustomerId, OrderId, PaymentId } from "../../src/domain/Ids.ts"
import { AmountMinor, Currency, format, maxTotalMinor, totalOf } from "../../src/domain/Money.ts"
import { declinePayment, markPaid, type Order, place, StoredStatus } from "../../src/domain/Order.ts"
import { OrderLine, OrderLines, Sku, maxLines } from "../../src/domain/OrderLines.ts"
import { shortText } from "../../src/domain/Text.ts"

const id = OrderId.make("01890a5d-ac96-774b-bcce-b302099a8057")
const paymentId = PaymentId.make("01890a5d-b1f4-7a53-9f5e-0d6f8f0c2b11")
const customerId = CustomerId.make("customer-1")
const currency = Currency.make("EUR")
const runs = { arbitrary: { runs: 300 } }

const exactTotal = (lines: ReadonlyArray<{ readonly quantity: number; readonly unitAmountMinor: number }>) =>
  lines.reduce((sum, line) => sum + BigInt(line.quantity) * BigInt(line.unitAmountMinor), 0n)

const SomeLines = Schema.Array(OrderLine).check(Schema.isMinLength(1), Schema.isMaxLength(20))

describe("Money", () => {
  it.effect.prop(
    "a total is exact, or refused because no JSON number carries it",
    [SomeLines],
    ([lines]) =>
      Effect.sync(() => {
        const exact = exactTotal(lines)
        const total = totalOf(lines)
        if (exact > BigInt(maxTotalMinor)) return assert.isTrue(Result.isFailure(total))
        assert.strictEqual(BigInt(Result.getOrThrow(total)), exact)
      }),
    runs
  )

  it("an amount is written as its currency divides it, to the last unit", () => {
    const written = (amountMinor: number, code: string) => format({ amountMinor, currency: code })
    assert.deepStrictEqual(
      [written(2_500, "EUR"), written(5, "EUR"), written(2_500, "JPY"), written(1_250, "KWD"), written(1_250, "IQD")],
      ["25.00 EUR", "0.05 EUR", "2500 JPY", "1.250 KWD", "1.250 IQD"]
    )
    assert.strictEqual(written(12_345, "CLF"), "1.2345 CLF")
    assert.strictEqual(written(maxTotalMinor, "EUR"), "90071992547409.91 EUR")
  })

  it("the largest total is accepted, and one more is refused", () => {
    const line = (unitAmountMinor: number) => ({ quantity: 1, unitAmountMinor })
    assert.strictEqual(Result.getOrThrow(totalOf([line(maxTotalMinor)])), maxTotalMinor)
    assert.isTrue(Result.isFailure(totalOf([line(maxTotalMinor), line(1)])))
  })

  it("an order without lines has no total", () => assert.isTrue(Result.isFailure(totalOf([]))))

  it("amounts are whole, positive and exact", () => {
    const is = Schema.is(AmountMinor)
    for (const amount of [1, maxTotalMinor]) assert.isTrue(is(amount))
    for (const amount of [0, -1, 0.5, 2 ** 53, 1e21, Infinity, NaN, "1", null]) assert.isFalse(is(amount))
  })

  it("a currency is one that exists, in capitals", () => {
    const is = Schema.is(Currency)
    for (const code of ["EUR", "USD", "JPY"]) assert.isTrue(is(code))
    for (const code of ["eur", "EURO", "XBT", "", "ZZZ"]) assert.isFalse(is(code))
  })
})

describe("Order", () => {
  const isLines = Schema.is(OrderLines)
  const line: OrderLine = { sku: Sku.make("book"), quantity: 1, unitAmountMinor: 1 }

  it("has one to a thousand lines, and a total that is exact", () => {
    assert.isFalse(isLines([]))
    assert.isTrue(isLines(Array.from({ length: maxLines }, () => line)))
    assert.isFalse(isLines(Array.from({ length: maxLines + 1 }, () => line)))
    assert.isFalse(isLines([{ ...line, quantity: 1_000_000, unitAmountMinor: 100_000_000_000 }]))
  })

  it.effect.prop(
    "placing gives a new pending order, and an event with the lines and their exact total",
    [SomeLines],
    ([lines]) =>
      Effect.sync(() => {
        const placed = place({ id, customerId, currency, lines })
        if (exactTotal(lines) > BigInt(maxTotalMinor)) return assert.isTrue(Result.isFailure(placed))
        const { events, order } = Result.getOrThrow(placed)
        assert.deepStrictEqual(
          [order.status, order.version, BigInt(order.totalAmountMinor)],
          ["pending", 0, exactTotal(lines)]
        )
        const data = { customerId, lines, total: { amountMinor: order.totalAmountMinor, currency } }
        assert.deepStrictEqual<ReadonlyArray<OrderEvent>>(events, [{ _tag: "OrderPlaced", data }])
      }),
    runs
  )

  it.effect.prop(
    "only a pending order is paid or declined, and the event has the whole amount",
    [StoredStatus, AmountMinor],
    ([status, totalAmountMinor]) =>
      Effect.sync(() => {
        const order: Order = { id, customerId, currency, status, version: 3, totalAmountMinor }
        const paid = markPaid(order, paymentId)
        const declined = declinePayment(order, paymentId, "no")
        if (status !== "pending") {
          for (const change of [paid, declined]) {
            const conflict = Result.isFailure(change) ? change.failure : assert.fail("a conflict was expected")
            assert.include(conflict.message, status)
          }
          return
        }
        const data = { customerId, paymentId, amount: { amountMinor: totalAmountMinor, currency } }
        assert.deepStrictEqual(Result.getOrThrow(paid), {
          order: { ...order, status: "paid" },
          events: [{ _tag: "OrderPaid", data }]
        })
        assert.deepStrictEqual(Result.getOrThrow(declined), {
          order,
          events: [{ _tag: "PaymentDeclined", data: { paymentId, reason: "no" } }]
        })
      }),
    runs
  )

  it("a paid order can't be paid or declined again", () => {
    const { order } = Result.getOrThrow(place({ id, customerId, currency, lines: [line] }))
    const paid = Result.getOrThrow(markPaid(order, paymentId)).order
    assert.isTrue(Result.isFailure(markPaid(paid, paymentId)))
    assert.isTrue(Result.isFailure(declinePayment(paid, paymentId, "no")))
  })
})

describe("Text", () => {
  it.effect.prop(
    "is what Postgres and Kafka can carry, and nothing else",
    [Schema.String],
    ([text]) =>
      Effect.sync(() => {
        const storable = text.length >= 1 && text.length <= 20 && !text.includes("\u0000") && text.isWellFormed()
        assert.strictEqual(Schema.is(shortText(20))(text), storable)
      }),
    runs
  )

  it("refuses NUL and lone surrogates, and takes a pair", () => {
    const is = Schema.is(shortText(20))
    for (const text of ["", "\u0000", "a\ud800", "\udc00a", "x".repeat(21)]) assert.isFalse(is(text))
    for (const text of ["a", "\ud83d\ude00", "x".repeat(20)]) assert.isTrue(is(text))
  })
})
