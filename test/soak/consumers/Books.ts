/**
 * The expected tables of the four subscribers, computed from the topic by an independent reader: plain kafkajs, plain JSON, and sums in
 * memory. It shares no code with the consumers, so it does not share their mistakes.
 */
import { Effect } from "effect"
import { readTopic } from "../../support/readTopic.ts"

interface OrderEvent {
  readonly eventId: string
  readonly eventType: string
  readonly schemaVersion: number
  readonly occurredAt: string
  readonly aggregateId: string
  readonly aggregateVersion: number
  readonly data: {
    readonly customerId: string
    readonly paymentId: string
    readonly amount: { readonly amountMinor: number; readonly currency: string }
    readonly lines: ReadonlyArray<{ readonly sku: string; readonly quantity: number }>
  }
}

/** Rows of the tables, each as a line of text under its key. */
type Rows = ReadonlyMap<string, string>

export interface Books {
  readonly records: number
  /** Applied events by id, with the order. */
  readonly applied: Rows
  /** By order: the last applied version. */
  readonly cursors: Rows
  /** By order and sku: the quantity, and whether the order still reserves it. */
  readonly reservations: Rows
  /** By event: order, payment, debit, credit, amount, currency. */
  readonly ledger: Rows
  /** By day and currency. */
  readonly revenue: Rows
  /** By event: kind and address. */
  readonly mails: Rows
  /** Events and records that no consumer can apply, with their aggregates. The key is the event's id, or topic:partition:offset. */
  readonly dead: Rows
  /** Events that wait behind those. */
  readonly parked: Rows
  /** Problems of the topic itself. */
  readonly problems: ReadonlyArray<string>
}

interface Aggregate {
  version: number
  isHeld: boolean
  /** Events that came before their predecessor. */
  readonly early: Map<number, OrderEvent>
  readonly quantities: Map<string, number>
}

const accounts: Readonly<Record<string, string>> = { OrderPaid: "gateway sales", OrderRefunded: "refunds gateway" }
const kinds: Readonly<Record<string, string>> = { OrderPaid: "receipt", OrderRefunded: "refund-notice" }
const eventTypes = new Set(["OrderPlaced", "PaymentDeclined", "OrderPaid", "OrderRefunded", "OrderCancelled"])

/** The event of a record, or undefined for other records. */
const parse = (value: Buffer | null): OrderEvent | undefined => {
  try {
    const event = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(value ?? undefined)) as OrderEvent
    return typeof event.eventId === "string" ? event : undefined
  } catch {
    return undefined
  }
}

/** Whether the current schema can read the event. */
const isKnown = ({ data, eventType, schemaVersion }: OrderEvent) =>
  eventTypes.has(eventType) &&
  schemaVersion === 1 &&
  (data.lines !== undefined || data.paymentId !== undefined || data.customerId !== undefined)

/** Reads the whole topic. `topic` is its name in the consumers' tables. */
export const read = (servers: string, wireTopic: string, topic: string): Effect.Effect<Books> =>
  Effect.map(readTopic(servers, wireTopic), (records) => {
    const problems: Array<string> = []
    const aggregates = new Map<string, Aggregate>()
    const applied = new Map<string, string>()
    const reservations = new Map<string, string>()
    const ledger = new Map<string, string>()
    const revenue = new Map<string, bigint>()
    const mails = new Map<string, string>()
    const dead = new Map<string, string>()
    const parked = new Map<string, string>()

    const apply = (event: OrderEvent, aggregate: Aggregate) => {
      const { aggregateId: id, data, eventId, eventType, occurredAt } = event
      aggregate.version = event.aggregateVersion
      applied.set(eventId, id)
      if (eventType === "OrderPlaced") {
        for (const { quantity, sku } of data.lines)
          aggregate.quantities.set(sku, (aggregate.quantities.get(sku) ?? 0) + quantity)
        for (const [sku, quantity] of aggregate.quantities) reservations.set(`${id} ${sku}`, `${quantity} held`)
      }
      if (eventType === "OrderCancelled" || eventType === "OrderRefunded")
        for (const [sku, quantity] of aggregate.quantities) reservations.set(`${id} ${sku}`, `${quantity} free`)
      if (eventType === "OrderPaid" || eventType === "OrderRefunded") {
        const { amountMinor, currency } = data.amount
        ledger.set(eventId, `${id} ${data.paymentId} ${accounts[eventType]} ${amountMinor} ${currency}`)
        const day = `${occurredAt.slice(0, 10)} ${currency}`
        revenue.set(day, (revenue.get(day) ?? 0n) + BigInt(eventType === "OrderPaid" ? amountMinor : -amountMinor))
        mails.set(eventId, `${kinds[eventType]} ${data.customerId}@`)
      }
    }
    /** Applies the event with the next version. */
    const take = (event: OrderEvent, aggregate: Aggregate) => {
      if (isKnown(event)) return apply(event, aggregate)
      dead.set(event.eventId, event.aggregateId)
      aggregate.isHeld = true
    }

    const ends = new Map<number, bigint>()
    for (const { message, partition } of records) {
      const expected = ends.get(partition) ?? 0n
      if (BigInt(message.offset) !== expected)
        problems.push(`the reader itself got ${message.offset} of partition ${partition} where ${expected} is next`)
      ends.set(partition, BigInt(message.offset) + 1n)

      const own = `${topic}:${partition}:${message.offset}`
      const event = parse(message.value)
      const key = message.key?.toString() ?? ""
      const id = event?.aggregateId ?? (key === "" ? own : key)
      const aggregate = aggregates.get(id) ?? { version: 0, isHeld: false, early: new Map(), quantities: new Map() }
      aggregates.set(id, aggregate)
      if (event === undefined) {
        if (aggregate.early.size > 0) problems.push(`${own} is no event and comes while ${id} waits: no test's case`)
        ;(aggregate.isHeld ? parked : dead).set(own, id)
        aggregate.isHeld = true
        continue
      }
      if (event.aggregateVersion <= aggregate.version) continue
      if (aggregate.isHeld) {
        if (!dead.has(event.eventId)) parked.set(event.eventId, id)
        continue
      }
      aggregate.early.set(event.aggregateVersion, event)
      for (;;) {
        const next = aggregate.early.get(aggregate.version + 1)
        if (next === undefined) break
        aggregate.early.delete(next.aggregateVersion)
        take(next, aggregate)
        if (!aggregate.isHeld) continue
        // Events that came early wait as well.
        aggregate.early.forEach(({ eventId }) => parked.set(eventId, id))
        aggregate.early.clear()
      }
    }
    aggregates.forEach(({ early, version }, id) => {
      if (early.size > 0) problems.push(`the topic has no event ${version + 1} of ${id}`)
    })
    return {
      records: records.length,
      applied,
      cursors: new Map(
        [...aggregates].filter(([, { version }]) => version > 0).map(([id, { version }]) => [id, String(version)])
      ),
      reservations,
      ledger,
      revenue: new Map([...revenue].map(([day, sum]) => [day, String(sum)])),
      mails,
      dead,
      parked,
      problems
    }
  })
