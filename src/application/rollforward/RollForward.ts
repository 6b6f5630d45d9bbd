/**
 * Rolls a restored database forward from its topic: orders and payments get what their events tell, and the archive gets the events.
 *
 * It is for a database on which nothing runs. The consumers' effects are not written here: the consumers' own marks are as old as the database, so
 * they read the topic again from its first record, and apply what they have not (docs/restore.md).
 */
import type { PgClient } from "@effect/sql-pg"
import { Array, Effect, Option } from "effect"
import { SqlClient } from "effect/sql"
import { ordersTopic } from "../../domain/Events.ts"
import * as ArchiveRows from "../../operations/refill/ArchiveRows.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { decodeOrderEvent } from "../OrderEvents.ts"
import * as LeftOut from "./LeftOut.ts"
import * as LostEvents from "./LostEvents.ts"
import * as TopicRecords from "./TopicRecords.ts"
import { standingsOf } from "./Unknown.ts"

/** What became of the topic's records. A dry run tells what would become of them. */
export interface RolledForward {
  /** Records of the topic. */
  readonly read: number
  /** Events that the database had lost, and has again. */
  readonly applied: number
  /** Orders with two histories: a version was used for another event since. A person decides. The first hundred of `collided`. */
  readonly collisions: ReadonlyArray<string>
  readonly collided: number
  /** Orders of which an event is in the topic no more, or can't be read, and others follow it. The first hundred of `gapped`. */
  readonly gaps: ReadonlyArray<string>
  readonly gapped: number
  /** Events of which nothing tells any more whether they are the database's own. */
  readonly forgotten: number
}

/** How far it is, of at most `total` records. */
export interface Progress {
  readonly phase: "reading"
  readonly read: number
  readonly total: number
  readonly applied: number
}

export interface Options {
  /** The consumers of the topic. */
  readonly consumers: ReadonlyArray<string>
  readonly operator: OperatorAudit.Operator | "dry run"
  readonly tell: (progress: Progress) => Effect.Effect<void>
}

const listLimit = 100

/** Orders of one decision's transaction. */
const decisionSize = 100

/**
 * Reads the whole topic, and writes what the database has lost, a slice of the topic in a transaction. What can't be written is decided about at the end:
 * an order's events are known only then. It may be repeated: what was written or decided is known then.
 */
export const run = Effect.fn("RollForward.run")(function* ({ consumers, operator, tell }: Options) {
  const record = (after: object) =>
    operator === "dry run"
      ? Effect.void
      : Transaction.run(
          OperatorAudit.record({
            ...operator,
            action: "roll forward",
            subject: "topic",
            subjectId: ordersTopic,
            before: {},
            after: { ...after }
          })
        )
  // Of one that is killed the audit has the beginning.
  yield* record({ status: "begun" })
  let [read, applied, forgotten] = [0, 0, 0]
  /** Orders that are behind: their versions as far as this slice has come, or this dry run, and its events. */
  const behind = new Map<string, { version: number; readonly events: Set<string> }>()
  const leftOut = new Map<
    string,
    { readonly why: LeftOut.LeftOut["why"]; readonly events: Map<string, TopicRecords.OrderRecord> }
  >()

  /** Writes a slice's lost events: each round has at most one of an order. */
  const write = Effect.fnUntraced(function* (rounds: ReadonlyArray<ReadonlyArray<LostEvents.Lost>>) {
    if (operator === "dry run" || rounds.length === 0) return
    const events = rounds.flat().map(({ stored }) => stored)
    yield* ArchiveRows.makeDays(events)
    yield* Transaction.run(
      Effect.gen(function* () {
        for (const round of rounds) yield* LostEvents.write(round)
        yield* ArchiveRows.insert(events)
      })
    )
  })

  const slice = Effect.fnUntraced(function* (
    records: ReadonlyArray<TopicRecords.OrderRecord>,
    progress: { readonly read: number; readonly ofAll: number }
  ) {
    const compared = yield* standingsOf(records, consumers)
    const rounds: Array<Array<LostEvents.Lost>> = []
    const roundOf = new Map<string, number>()
    for (const [index, record] of records.entries()) {
      const { standing, version } = compared[index]!
      if (standing === "forgotten") forgotten += 1
      if (standing === "known" || standing === "forgotten") continue
      const { aggregateId, aggregateVersion, eventId } = record.stored
      const own = behind.get(aggregateId) ?? { version, events: new Set() }
      // A copy of one that this run has written.
      if (own.events.has(eventId)) continue
      const left = leftOut.get(aggregateId)
      const event = yield* Effect.option(decodeOrderEvent(record.envelope))
      // What follows tells of an order that is another one here.
      if (left !== undefined) left.events.set(eventId, record)
      else if (standing === "collision" || aggregateVersion !== own.version + 1 || Option.isNone(event)) {
        const why = standing === "collision" || aggregateVersion <= own.version ? "collision" : "gap"
        leftOut.set(aggregateId, { why, events: new Map([[eventId, record]]) })
      } else {
        own.version = aggregateVersion
        own.events.add(eventId)
        behind.set(aggregateId, own)
        const round = roundOf.get(aggregateId) ?? 0
        roundOf.set(aggregateId, round + 1)
        ;(rounds[round] ??= []).push({ ...record, event: event.value })
      }
    }
    yield* write(rounds)
    // The database knows them from here on.
    if (operator !== "dry run") behind.clear()
    read += progress.read
    applied += rounds.flat().length
    yield* tell({ phase: "reading", read, total: Math.max(read, progress.ofAll), applied })
  })
  yield* TopicRecords.forEachSlice(ordersTopic, slice)

  const orders = [...leftOut].map(([orderId, { events, why }]) => ({ orderId, why, events: [...events.values()] }))
  const of = (wanted: LeftOut.LeftOut["why"]) =>
    orders.filter(({ why }) => why === wanted).map(({ orderId }) => orderId)
  const [collisions, gaps] = [of("collision"), of("gap")]
  const result: RolledForward = {
    read,
    applied,
    collisions: collisions.slice(0, listLimit),
    collided: collisions.length,
    gaps: gaps.slice(0, listLimit),
    gapped: gaps.length,
    forgotten
  }
  if (operator === "dry run") return result
  for (const some of Array.chunksOf(orders, decisionSize)) {
    yield* Transaction.run(LeftOut.decide(some, consumers, operator))
  }
  yield* record({ status: "ended", ...result })
  return result
})

/** What {@link run} needs of the database. */
export type Database = PgClient.PgClient | SqlClient.SqlClient
