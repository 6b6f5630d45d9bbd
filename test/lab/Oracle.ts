/**
 * The invariants (DESIGN.md 4), as checks on what the tables, the topic and the gateway hold. Nothing here knows how the service
 * works: only what must be true of what it leaves behind.
 */
import { isDeepStrictEqual } from "node:util"
import type { Committed } from "./LabDatabase.ts"
import type { Capture } from "./ModelGateway.ts"

/** A record of the topic, as far as the invariants speak of it. */
export interface TopicRecord {
  readonly partition: number
  readonly offset: number
  readonly order: string
  readonly version: number
  readonly event: string
  readonly type: string
  /** What an OrderPaid says was paid; 0 for the other types. */
  readonly paid: number
  /** The payment that the event speaks of. */
  readonly payment: string | undefined
  readonly data: unknown
  /** What stands around the value agrees with it: the key with its order, the headers with its id and type. */
  readonly isLabelled: boolean
}

/** What a client was told for good. `text` is what it read, to the byte. */
export interface Answer {
  readonly says: "placed" | "paid" | "declined"
  readonly order: string
  readonly payment: string | undefined
  readonly text: string
}

/** Everything that can be seen from outside. */
export interface World {
  readonly committed: Committed
  /** All records in the order in which they were appended. */
  readonly topic: ReadonlyArray<TopicRecord>
  readonly captures: ReadonlyArray<Capture>
  /** Some actor is in the middle of a transaction, which may still commit. */
  readonly inTransaction: boolean
  /** Requests that have no final answer. */
  readonly unanswered: ReadonlyArray<string>
  /** Orders that clients meant to place: however often one is asked for, it is one. */
  readonly wanted: number
  /** The id under which each event was first seen in the queue, by order and version (`keyOf`). */
  readonly firstIds: ReadonlyMap<string, string>
  readonly answers: ReadonlyArray<Answer & { readonly title: string }>
}

export const invariants = [
  "only committed events are published",
  "first deliveries come in version order, without gaps",
  "an event keeps its id",
  "an archived event is in the topic at that place",
  "no event is both queued and archived",
  "an order is captured at most once",
  "an effect happens at most once per event",
  "effects come in version order",
  "an order stays in one partition",
  "a request that is repeated makes one order",
  "a record says what was committed",
  "a payment ends once",
  "an answer is true",
  "the same key gets the same answer",
  "what the code takes for granted is true",
  "what committed is published",
  "the queue empties",
  "every event has its effect",
  "the money adds up",
  "every request gets its answer",
  "an order is what its events say",
  "everything comes to rest",
  "the lab can play it"
] as const
export type Invariant = (typeof invariants)[number]

export interface Violation {
  readonly invariant: Invariant
  readonly detail: string
}

const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((total, number) => total + number, 0)
export const keyOf = ({ order, version }: { readonly order: string; readonly version: number }) => `${order} ${version}`

const discardedOf = ({ refused }: Committed): ReadonlySet<string> =>
  new Set(refused.filter(({ status }) => status === "discarded").map(keyOf))

/** `named` shows an event as a reader knows it: the order's letter and the version. */
export type Named = (event: { readonly order: string; readonly version: number }) => string

/** What must hold after every step, whatever is under way. The first one that is broken, or nothing. */
export const safety = (
  { answers, captures, committed, firstIds, inTransaction, topic, wanted }: World,
  named: Named
): Violation | undefined => {
  const versions = new Map(committed.orders.map((order) => [order.id, order.version]))
  const broken = (invariant: Invariant, detail: string): Violation => ({ invariant, detail })

  const discarded = discardedOf(committed)
  /** Between the two versions there is only what an operator has discarded. */
  const isNext = (order: string, before: number, version: number) => {
    for (let between = before + 1; between < version; between++)
      if (!discarded.has(keyOf({ order, version: between }))) return false
    return true
  }
  const last = new Map<string, number>()
  const ids = new Map<string, string>()
  for (const record of topic) {
    if (!inTransaction && record.version > (versions.get(record.order) ?? 0)) {
      return broken(
        "only committed events are published",
        `${named(record)} is in the topic, and no transaction that wrote it has committed or still can`
      )
    }
    const before = last.get(record.order) ?? 0
    if (!isNext(record.order, before, record.version)) {
      return broken(
        "first deliveries come in version order, without gaps",
        `${named(record)} was delivered when ${before === 0 ? "nothing of its order" : `only ${named({ ...record, version: before })}`} had been`
      )
    }
    last.set(record.order, Math.max(before, record.version))
    const id = ids.get(keyOf(record)) ?? firstIds.get(keyOf(record))
    if (id !== undefined && id !== record.event)
      return broken("an event keeps its id", `${named(record)} was delivered under another id than it had before`)
    ids.set(keyOf(record), record.event)
    if (!record.isLabelled)
      return broken(
        "a record says what was committed",
        `the key or the headers of ${named(record)} are another event's`
      )
  }

  const queued = new Set(committed.queue.map((event) => event.event))
  for (const archived of committed.archive) {
    const there = topic.find(
      (record) =>
        record.event === archived.event && record.partition === archived.partition && record.offset === archived.offset
    )
    if (there !== undefined && (there.type !== archived.type || !isDeepStrictEqual(there.data, archived.data)))
      return broken("a record says what was committed", `${named(archived)} was committed with other data`)
    if (there === undefined)
      return broken(
        "an archived event is in the topic at that place",
        `${named(archived)} is archived at ${archived.partition}/${archived.offset}, where the topic has something else`
      )
    if (queued.has(archived.event)) return broken("no event is both queued and archived", named(archived))
  }

  const ends = new Map<string, string>()
  for (const { event, payment } of topic) {
    if (payment === undefined) continue
    const end = ends.get(payment)
    if (end !== undefined && end !== event) return broken("a payment ends once", `payment ${payment} ended twice`)
    ends.set(payment, event)
  }

  for (const { order, payment, says, text, title } of answers) {
    const row = committed.orders.find(({ id }) => id === order)
    const paid = committed.payments.find(({ id }) => id === payment)
    const isTrue =
      says === "placed"
        ? row !== undefined
        : says === "paid"
          ? row?.status === "paid" && paid?.status === "captured"
          : paid?.status === "declined"
    const body = JSON.parse(text.slice(text.indexOf("{"))) as { readonly status: unknown }
    if (body.status !== { placed: "pending", paid: "paid", declined: 402 }[says])
      return broken("an answer is true", `"${title}" was answered "${says}", and its body says ${String(body.status)}`)
    if (!isTrue) return broken("an answer is true", `"${title}" was answered "${says}", and that is not what is stored`)
  }

  const captured = new Set<string>()
  for (const { order } of captures) {
    if (captured.has(order)) return broken("an order is captured at most once", `order ${order} was captured twice`)
    captured.add(order)
  }

  const applied = new Set<string>()
  const appliedVersions = new Map<string, number>()
  for (const effect of committed.effects) {
    if (applied.has(effect.event))
      return broken("an effect happens at most once per event", `${named(effect)} had its effect twice`)
    applied.add(effect.event)
    const before = appliedVersions.get(effect.order) ?? 0
    // One that was discarded may still arrive, late: that is what the operator chose.
    if (discarded.has(keyOf(effect))) continue
    if (effect.version <= before || !isNext(effect.order, before, effect.version))
      return broken("effects come in version order", `${named(effect)} had its effect behind version ${before}`)
    appliedVersions.set(effect.order, effect.version)
  }
  const partitions = new Map<string, number>()
  for (const record of topic) {
    const partition = partitions.get(record.order) ?? record.partition
    if (partition !== record.partition)
      return broken("an order stays in one partition", `${named(record)} is in another one than what came before it`)
    partitions.set(record.order, partition)
  }
  if (committed.orders.length > wanted)
    return broken(
      "a request that is repeated makes one order",
      `there are ${committed.orders.length} orders, and ${wanted} ${wanted === 1 ? "was" : "were"} asked for`
    )
  const paid = new Map(topic.map((record) => [record.event, record.paid]))
  if (committed.revenue > sum([...paid.values()])) {
    return broken(
      "an effect happens at most once per event",
      `revenue is ${committed.revenue}, and ${sum([...paid.values()])} was paid`
    )
  }
  return undefined
}

/** What must hold once the faults have stopped and everybody had bounded time. Safety holds besides. */
export const rest = ({ captures, committed, topic, unanswered }: World, named: Named): Violation | undefined => {
  const broken = (invariant: Invariant, detail: string): Violation => ({ invariant, detail })
  const published = new Set(topic.map(keyOf))
  const discarded = discardedOf(committed)
  const isTold = ({ id, version }: { readonly id: string; readonly version: number }) =>
    !Array.from({ length: version }, (_, index) => keyOf({ order: id, version: index + 1 })).some((key) =>
      discarded.has(key)
    )
  for (const order of committed.orders) {
    for (let version = 1; version <= order.version; version++) {
      const event = { order: order.id, version }
      if (!published.has(keyOf(event)) && !discarded.has(keyOf(event))) {
        return broken(
          committed.queue.some((row) => keyOf(row) === keyOf(event))
            ? "the queue empties"
            : "what committed is published",
          `${named(event)} committed and never reached the topic`
        )
      }
    }
  }
  if (committed.queue.length > 0)
    return broken("the queue empties", `${committed.queue.map(named).join(", ")} still wait`)
  for (const order of committed.orders.filter(isTold)) {
    const told = topic.filter((record) => record.order === order.id)
    const paid = told.some((record) => record.type === "OrderPaid")
    if ((order.status === "paid") !== paid)
      return broken(
        "an order is what its events say",
        `order ${named({ order: order.id, version: 1 }).slice(0, -1)} is ${order.status}, and its events ${paid ? "" : "don't "}say that it was paid`
      )
  }
  const toldOrders = new Set(committed.orders.filter(isTold).map(({ id }) => id))
  for (const { id, order, status } of committed.payments) {
    if (!toldOrders.has(order)) continue
    const type = topic.find((record) => record.payment === id)?.type
    if (status !== "charging" && type !== (status === "captured" ? "OrderPaid" : "PaymentDeclined"))
      return broken("an order is what its events say", `a payment is ${status}, and its event is ${type ?? "none"}`)
  }
  const effects = new Set(committed.effects.map((effect) => effect.event))
  for (const record of topic) {
    if (!effects.has(record.event))
      return broken("every event has its effect", `${named(record)} is in the topic and had no effect`)
  }
  const paidOrders = sum(committed.orders.filter((order) => order.status === "paid").map((order) => order.total))
  const captured = sum(captures.map((capture) => capture.amountMinor))
  const announced = sum([...new Map(topic.map((record) => [record.event, record.paid])).values()])
  if (paidOrders !== captured || committed.revenue !== announced || (discarded.size === 0 && announced !== captured)) {
    return broken("the money adds up", `captured ${captured}, paid orders ${paidOrders}, revenue ${committed.revenue}`)
  }
  if (unanswered.length > 0) return broken("every request gets its answer", unanswered.join(", "))
  const open = committed.payments.filter((payment) => payment.status === "charging")
  return open.length > 0 ? broken("the money adds up", `${open.length} payments are still charging`) : undefined
}

/** Stops the run: an invariant is broken. */
export class Broken extends Error {
  readonly violation: Violation
  constructor(violation: Violation) {
    super(violation.detail)
    this.violation = violation
  }
}
