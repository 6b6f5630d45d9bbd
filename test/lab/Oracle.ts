/**
 * The invariants, as checks on the tables, the topic and the gateway. The checks don't know how the service works, only what
 * must be true of its results.
 */
import { isDeepStrictEqual } from "node:util"
import type { Committed } from "./LabDatabase.ts"
import type { Capture } from "./ModelGateway.ts"
import { archiveAtRest, type ArchiveWorld, retentionSafety } from "./OracleArchive.ts"
import { inboxAtRest, inboxSafety, type InboxWorld } from "./OracleInbox.ts"
import { moneyAtRest, moneySafety } from "./OracleMoney.ts"
import { taskSafety, tasksAtRest } from "./OracleTasks.ts"

/** A record of the topic, with the fields that the invariants use. */
export interface TopicRecord {
  readonly partition: number
  readonly offset: number
  readonly order: string
  readonly version: number
  readonly event: string
  readonly type: string
  /** The amount of an OrderPaid; the negative amount of an OrderRefunded; 0 for other types. */
  readonly paid: number
  /** The payment that the event is about. */
  readonly payment: string | undefined
  readonly data: unknown
  /** Key and headers agree with the value: the key with its order, the headers with its id and type. */
  readonly isLabelled: boolean
}

/** A client's final answer. `text` is its body, byte for byte. */
export interface Answer {
  readonly says: "placed" | "paid" | "declined" | "cancelled" | "refunding" | "enqueued"
  /** The order's id, or the task's id for a task. */
  readonly order: string
  readonly payment: string | undefined
  readonly text: string
}

/** A refusal that names the order's status. */
export interface Refusal {
  readonly order: string
  readonly status: string
}

/** Everything that can be seen from outside. */
export interface World extends InboxWorld, ArchiveWorld {
  /** All records in the order in which they were appended. */
  readonly topic: ReadonlyArray<TopicRecord>
  readonly captures: ReadonlyArray<Capture>
  /** Refunds that the gateway made. */
  readonly givenBack: ReadonlyArray<Capture>
  /** How long the case has lasted. */
  readonly pastMillis: number
  /** Tasks of the lab that did something outside. */
  readonly workDone: ReadonlySet<string>
  /**
   * The tasks with the ordering key, in the order in which their work must be done. Without tasks that committed too late, or were given up
   * and retried.
   */
  readonly inLine: ReadonlyArray<string>
  /** Requests that have no final answer. */
  readonly unanswered: ReadonlyArray<string>
  /** Orders that clients wanted to place. An order counts once, however often the request was sent. */
  readonly wanted: number
  readonly answers: ReadonlyArray<Answer & { readonly title: string }>
  readonly refusals: ReadonlyArray<Refusal & { readonly title: string }>
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
  "the lab can play it",
  "an order goes the way of its states",
  "a payment is what its events say",
  "no payment is stuck",
  "a task does its work once",
  "every task ends",
  "a mark stands for an effect",
  "what was discarded has no effect",
  "only what fails is held",
  "an offset passes nothing that is lost",
  "only its own aggregate waits for an event",
  "what can't be applied is parked",
  "what is held is tried",
  "every group comes to the end",
  "what left the queue is archived, or given up",
  "only what is past its retention is dropped"
] as const
export type Invariant = (typeof invariants)[number]

export interface Violation {
  readonly invariant: Invariant
  readonly detail: string
}

export const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((total, number) => total + number, 0)
export const keyOf = ({ order, version }: { readonly order: string; readonly version: number }) => `${order} ${version}`

const discardedOf = ({ refused }: Committed): ReadonlySet<string> =>
  new Set(refused.filter(({ status }) => status === "discarded").map(keyOf))

/** `named` names an event for readers: the order's letter and the version. */
export type Named = (event: { readonly order: string; readonly version: number }) => string

/** The first safety invariant that is broken, if any. Safety must hold after every step, also in the middle of transactions. */
export const safety = (world: World, named: Named): Violation | undefined => {
  const { committed, firstIds, inTransaction, topic, wanted } = world
  const versions = new Map(committed.orders.map((order) => [order.id, order.version]))
  const broken = (invariant: Invariant, detail: string): Violation => ({ invariant, detail })

  const discarded = discardedOf(committed)
  /** Whether an operator has discarded all versions between the two. */
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

  const wrong =
    retentionSafety(world, named) ?? moneySafety(world, named) ?? taskSafety(world) ?? inboxSafety(world, named)
  if (wrong !== undefined) return wrong

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
  const most = sum([...paid.values()].filter((amount) => amount > 0))
  if (committed.revenue > most)
    return broken("an effect happens at most once per event", `revenue is ${committed.revenue}, and ${most} was paid`)
  return undefined
}

/** The first invariant at rest that is broken, if any. They must hold once the faults have stopped and every process had bounded time. */
export const rest = (world: World, named: Named): Violation | undefined => {
  const { committed, topic, unanswered } = world
  const broken = (invariant: Invariant, detail: string): Violation => ({ invariant, detail })
  const published = new Set(topic.map(keyOf))
  const discarded = discardedOf(committed)
  /** Whether no event of the order was discarded, so that its events tell its whole history. */
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
  const wrong =
    archiveAtRest(world, named) ??
    inboxAtRest(world) ??
    moneyAtRest(world, new Set(committed.orders.filter(isTold).map(({ id }) => id)), named)
  if (wrong !== undefined) return wrong
  if (unanswered.length > 0) return broken("every request gets its answer", unanswered.join(", "))
  return tasksAtRest(world)
}

/** Stops the run: an invariant is broken. */
export class Broken extends Error {
  readonly violation: Violation
  constructor(violation: Violation) {
    super(violation.detail)
    this.violation = violation
  }
}
