/**
 * Histories of many concurrent orders, as the outbox would send them: made by the domain's own transitions and the mechanism's own
 * envelope, each in version order. Some records come twice, some again much later, some before their predecessor, and a few are poison.
 */
import { PaymentId } from "../../../src/domain/Ids.ts"
import { type Random, Result } from "effect"
import { randomBytes } from "node:crypto"
import { type OrderEvent, orderAggregate, ordersTopic, schemaVersions } from "../../../src/domain/Events.ts"
import { Currency } from "../../../src/domain/Money.ts"
import { CustomerId, OrderId } from "../../../src/domain/Ids.ts"
import type { OrderLine } from "../../../src/domain/OrderLines.ts"
import * as Order from "../../../src/domain/Order.ts"
import type { BrokerRecord } from "../../../src/brokers/Broker.ts"
import { toRecord } from "../../../src/brokers/Envelope.ts"

/** Concurrent orders: few enough that a slice has several events of one order. */
const orders = 200

/** Records that may be repeated long after their first delivery. */
const remembered = 5_000

const currencies = ["EUR", "USD", "JPY", "KWD"].map((code) => Currency.make(code))

/** Scarce skus, with their quantities: the first orders that are applied get them. */
export const stock: ReadonlyMap<string, number> = new Map([
  ["rare", 40],
  ["scarce", 400]
])

const skus = ["book", "pen", "lamp", "desk", ...stock.keys()]

/** The probability of each disturbance before an event. */
const twice = 0.03
const again = 0.03
const early = 0.01

interface Open {
  order: Order.Order
  readonly lines: ReadonlyArray<OrderLine>
  paymentId: PaymentId
  version: number
  /** One of its events is held back. No later event may be made unreadable then, or the parked events would depend on the slices. */
  isGapped: boolean
}

/** Makes records without end. The kinds of poison take turns, one in `poisonEvery` events. */
export const make = (random: Pick<Random.Random, "nextDoubleUnsafe">, poisonEvery: number) => {
  const chance = () => random.nextDoubleUnsafe()
  const below = (count: number) => Math.floor(chance() * count)
  const pick = <A>(from: ReadonlyArray<A>): A => from[below(from.length)]!
  /** A time within the last three days, since revenue is counted by day. */
  const newTime = () => new Date(Date.now() - below(3 * 86_400_000)).toISOString()
  const newId = () => {
    const hex = Date.now().toString(16).padStart(12, "0") + randomBytes(10).toString("hex")
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-7${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`
  }

  const open: Array<Open> = []
  const past: Array<BrokerRecord> = []
  /** Records that are held back, with the number of events after which they come. */
  const late: Array<{ readonly at: number; readonly record: BrokerRecord; readonly of: Open }> = []
  const made = { events: 0, poison: 0 }

  const place = (): readonly [Open, OrderEvent] => {
    const lines = Array.from({ length: 1 + below(3) }, () => ({
      sku: pick(skus) as OrderLine["sku"],
      quantity: 1 + below(4),
      unitAmountMinor: 1 + below(100_000)
    }))
    const id = OrderId.make(newId())
    const customerId = CustomerId.make(`customer-${below(500)}`)
    const { events, order } = Result.getOrThrow(Order.place({ id, customerId, currency: pick(currencies), lines }))
    const one: Open = { order, lines, paymentId: PaymentId.make(newId()), version: 0, isGapped: false }
    open.push(one)
    return [one, events[0]]
  }

  /** The order's next event, or undefined if the order has reached its end. */
  const move = (one: Open): OrderEvent | undefined => {
    const dice = chance()
    const { lines, order, paymentId } = one
    const change = () => {
      if (order.status === "pending") {
        if (dice < 0.15) {
          one.paymentId = PaymentId.make(newId())
          return Order.declinePayment(order, paymentId, "no funds")
        }
        return dice < 0.3 ? Order.cancel(order, lines) : Order.markPaid(order, paymentId)
      }
      return order.status === "paid" && dice < 0.4 ? Order.markRefunded(order, paymentId) : undefined
    }
    const changed = change()
    if (changed === undefined) return undefined
    const { events, order: next } = Result.getOrThrow(changed)
    one.order = next
    return events[0]
  }

  const next = (): readonly [Open, OrderEvent] => {
    while (open.length >= orders) {
      const index = below(open.length)
      const one = open[index]!
      const event = move(one)
      if (event !== undefined) return [one, event]
      open.splice(index, 1)
    }
    return place()
  }

  const recordOf = (one: Open, { _tag, data }: OrderEvent, schemaVersion: number = schemaVersions[_tag]) => {
    made.events += 1
    return toRecord({
      eventId: newId(),
      topic: ordersTopic,
      eventType: _tag,
      schemaVersion,
      aggregateType: orderAggregate,
      aggregateId: one.order.id,
      aggregateVersion: ++one.version,
      occurredAt: newTime(),
      traceId: randomBytes(16).toString("hex"),
      spanId: randomBytes(8).toString("hex"),
      data: JSON.stringify(data)
    })
  }
  const garbage = (key: string, value: string | Buffer): BrokerRecord => ({
    key,
    value: Buffer.from(value),
    headers: {}
  })
  /** The event as a faulty writer would have written it. */
  const spoilt = (record: BrokerRecord, spoil: (value: Record<string, unknown>) => unknown): BrokerRecord => ({
    ...record,
    value: Buffer.from(JSON.stringify(spoil(JSON.parse(Buffer.from(record.value).toString()))))
  })

  const poisons: ReadonlyArray<(one: Open, event: OrderEvent) => ReadonlyArray<BrokerRecord>> = [
    (one, event) => [garbage(one.order.id, `{"eventId": "`), recordOf(one, event)],
    (one, event) => [recordOf(one, event, 99)],
    (one, event) => [spoilt(recordOf(one, event), (value) => ({ ...value, eventId: undefined }))],
    (one, event) => [garbage("", "nobody's"), recordOf(one, event)],
    (one, event) => [spoilt(recordOf(one, event), (value) => ({ ...value, data: { amount: "a lot" } }))],
    (one, event) => [garbage(one.order.id, Buffer.from([0xc3, 0x28])), recordOf(one, event)],
    (one, event) => [spoilt(recordOf(one, event), (value) => ({ ...value, eventType: "OrderForgotten" }))],
    (one, event) => [garbage(one.order.id, ""), recordOf(one, event)]
  ]

  /** The next records: usually one with a new event. */
  const some = (): ReadonlyArray<BrokerRecord> => {
    const due = late.findIndex(({ at }) => at <= made.events)
    if (due >= 0) {
      const [{ of, record } = late[0]!] = late.splice(due, 1)
      of.isGapped = late.some((other) => other.of === of)
      return [record]
    }
    if (past.length > 0 && chance() < again) return [pick(past)]
    const [order, event] = next()
    if (!order.isGapped && Math.floor(made.events / poisonEvery) > made.poison)
      return poisons[made.poison++ % poisons.length]!(order, event)
    const record = recordOf(order, event)
    if (chance() < early) {
      order.isGapped = true
      late.push({ at: made.events + below(100), record, of: order })
      return []
    }
    past[past.length < remembered ? past.length : below(remembered)] = record
    return chance() < twice ? [record, record] : [record]
  }

  return {
    /** The number of different events so far. */
    events: () => made.events,
    /** The records of `count` more events, in the order in which they must be sent. */
    take: (count: number): ReadonlyArray<BrokerRecord> => {
      const records: Array<BrokerRecord> = []
      const until = made.events + count
      while (made.events < until) records.push(...some())
      return records
    },
    /** The records that were held back. */
    rest: (): ReadonlyArray<BrokerRecord> => late.splice(0).map(({ record }) => record)
  }
}
