/**
 * An attempt at one hold: applies the parked events behind it in version order, until one fails, an earlier version is missing, or none is left.
 * Then the hold ends.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Exit, Result } from "effect"
import type { SqlError } from "effect/sql"
import { Faults } from "../../platform/Faults.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { aggregateOf, annotateLogs, type Arrival, type ReadableArrival } from "../Arrival.ts"
import { type Aggregate, aggregateKey, compare, Cursors } from "../Cursors.ts"
import { judge } from "../Failures.ts"
import * as Handle from "../Handle.ts"
import { Inbox } from "../Inbox.ts"
import * as InboxCounters from "../InboxCounters.ts"
import type { Failure } from "../SlicePlan.ts"
import type { Subscriber } from "../Subscriber.ts"
import * as HeldRows from "./HeldRows.ts"
import { gapText } from "./Holds.ts"
import { ParkedHolds } from "./ParkedHolds.ts"

/** Parked events in one transaction: many share its commit, and it does not lock their rows for long. */
const drainLimit = 100

/** Transactions for one hold in a round: an aggregate with more parked events goes on in the next round, and delays no other hold. */
const drainRounds = 20

/** `applied` by an earlier mark, or with a version behind the cursor, is a `duplicate`. `missing`: an earlier version has not come. */
type Tried = "applied" | "duplicate" | "missing" | Failure

/** The result of a transaction at a hold. `rest`: more may wait. `stopped`: an event failed. `gone`: the hold is not due any more. */
type Drained = { readonly went: "rest" | "stopped" | "gone"; readonly counts: InboxCounters.Counts }

const onlyOne = (outcome: InboxCounters.Outcome) => ({ ...InboxCounters.none, [outcome]: 1 })

/** Makes the attempt. It fails only where no event is to blame: the database or a dependency is unavailable. */
export const make = Effect.gen(function* () {
  const client = yield* PgClient.PgClient
  const inbox = yield* Inbox
  const cursors = yield* Cursors
  const holds = yield* ParkedHolds
  const faults = yield* Faults
  const { timeoutMillis } = yield* Handle.HandleSettings

  const transaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
    Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)

  const cursorOf = (consumer: string, aggregate: Aggregate) =>
    Effect.map(cursors.read(consumer, [aggregate]), (states) => states.get(aggregateKey(aggregate))?.version)

  /** The mark, the effect and the cursor of one parked event. Returns whether it had no mark before. */
  const applyOne = Effect.fnUntraced(function* (
    subscriber: Subscriber,
    arrival: ReadableArrival,
    from: number | undefined
  ) {
    const { aggregateType, aggregateVersion, eventId } = arrival.event
    const first = yield* inbox.markFirst(subscriber.name, [eventId])
    if (first.has(eventId)) yield* Handle.all(subscriber, [arrival])
    yield* cursors.advance(subscriber.name, [
      { aggregateType, aggregateId: arrival.aggregateId, from, to: aggregateVersion }
    ])
    return first.has(eventId)
  })

  /** Tries one parked event. `seen` are the cursors as the events before it left them. */
  const tryOne = Effect.fnUntraced(function* (
    subscriber: Subscriber,
    arrival: Arrival,
    seen: Map<string, number | undefined>
  ): Effect.fn.Return<Tried, unknown, Transaction> {
    if (Result.isFailure(arrival.read)) return { _tag: "Failed", error: arrival.read.failure, isPermanent: true }
    const event = arrival.read.success
    const aggregate = aggregateOf(arrival)
    const key = aggregateKey(aggregate)
    if (!seen.has(key)) seen.set(key, yield* cursorOf(subscriber.name, aggregate))
    const order = compare(subscriber.firstSight, seen.get(key), event.aggregateVersion)
    if (order !== "next") return order === "ahead" ? "missing" : "duplicate"
    // A savepoint: when the event fails, the transaction around it goes on and writes the failure down.
    const exit = yield* Effect.exit(
      Handle.bounded(transaction(applyOne(subscriber, { ...arrival, event }, seen.get(key))), timeoutMillis)
    )
    if (Exit.isFailure(exit)) {
      const verdict = judge(exit.cause)
      return verdict._tag === "Failed" ? verdict : yield* Effect.failCause(exit.cause)
    }
    seen.set(key, event.aggregateVersion)
    return exit.value ? "applied" : "duplicate"
  })

  /** Counts a failure of the event behind the locked hold. Returns what became of it. */
  const countFailure = Effect.fnUntraced(function* (
    hold: HeldRows.LockedHold,
    { arrival, id }: HeldRows.ParkedRow,
    failure: Failure
  ) {
    const { attempts, outcome } = yield* holds.failed(hold, id, failure)
    const { afterCommit } = yield* Transaction
    yield* afterCommit(
      (outcome === "dead" ? Effect.logError : Effect.logWarning)(
        `${hold.consumer} could not apply an event, which ${outcome === "dead" ? "waits for an operator" : "is tried again"}: ${failure.error}`
      ).pipe(annotateLogs(hold.consumer, arrival, attempts))
    )
    return outcome
  })

  /** Applies parked events in one transaction, until one fails or is missing, or {@link drainLimit} are done. */
  const drain = Effect.fnUntraced(function* (
    subscriber: Subscriber,
    held: HeldRows.Held
  ): Effect.fn.Return<Drained, unknown, Transaction> {
    let counts = InboxCounters.none
    const hold = yield* HeldRows.lockHold(held, "attempt")
    if (hold === undefined || !hold.isDue) return { went: "gone", counts }
    const seen = new Map<string, number | undefined>()
    for (const row of yield* HeldRows.first(held, drainLimit)) {
      const tried = yield* tryOne(subscriber, row.arrival, seen)
      if (tried === "missing") return { went: "rest", counts }
      if (tried !== "applied" && tried !== "duplicate") {
        const outcome = yield* countFailure(hold, row, tried)
        return { went: "stopped", counts: outcome === "dead" ? InboxCounters.add(counts, onlyOne("dead")) : counts }
      }
      counts = InboxCounters.add(counts, onlyOne(tried))
      yield* HeldRows.remove(held.consumer, row.id, row.arrival.eventId)
    }
    if (counts !== InboxCounters.none) yield* faults.at("consumer.before-commit")
    return { went: "rest", counts }
  })

  /**
   * Ends the hold where no event is parked any more, and has it wait where an earlier version is missing. Else it is due again.
   *
   * This has a transaction of its own, without any other lock: it waits for arrivals that are parking, and they wait for none of its locks.
   */
  const conclude = Effect.fnUntraced(function* (
    subscriber: Subscriber,
    held: HeldRows.Held
  ): Effect.fn.Return<"again" | "over", SqlError.SqlError, Transaction> {
    const hold = yield* HeldRows.lockHold(held, "exclusive")
    if (hold === undefined || hold.status !== "retrying") return "over"
    const [row] = yield* HeldRows.first(held, 1)
    if (row === undefined) {
      yield* HeldRows.release(held)
      return "over"
    }
    const { arrival, id } = row
    // Another process may have tried the event since the drain. Its failure stays counted, and the event waits for its due time.
    const isCounted = hold.eventId === id && hold.attempts > 0
    const dueNow = isCounted
      ? Effect.succeed("over" as const)
      : Effect.as(HeldRows.setDue(held, { eventId: id, attempts: 0, waitMillis: 0 }), "again" as const)
    if (Result.isFailure(arrival.read)) return yield* dueNow
    const { aggregateType, aggregateVersion } = arrival.read.success
    const aggregate = aggregateOf(arrival)
    const cursor = yield* cursorOf(held.consumer, aggregate)
    if (compare(subscriber.firstSight, cursor, aggregateVersion) !== "ahead") return yield* dueNow
    if (yield* cursors.givenUp(arrival.topic, aggregate, cursor ?? 0, aggregateVersion)) {
      const { aggregateId, consumer } = held
      const to = aggregateVersion - 1
      const gaps = [{ after: cursor ?? 0, until: to }]
      yield* cursors.advance(consumer, [{ aggregateType, aggregateId, from: cursor, to, gaps }])
      return yield* dueNow
    }
    const error = gapText((cursor ?? 0) + 1)
    yield* HeldRows.setWaiting(held, { status: "gap", eventId: id, error })
    const { afterCommit } = yield* Transaction
    yield* afterCommit(
      Effect.logWarning(`${held.consumer} holds an aggregate: its event is too early: ${error}`).pipe(
        annotateLogs(held.consumer, arrival, 0)
      )
    )
    return "over"
  })

  return Effect.fnUntraced(function* (subscriber: Subscriber, held: HeldRows.Held): Effect.fn.Return<void, unknown> {
    for (let round = 0; round < drainRounds; round++) {
      const { counts, went } = yield* transaction(drain(subscriber, held))
      yield* InboxCounters.count(held.consumer, counts)
      // A hold that is gone, or that has no event left, commits nothing.
      if (went === "stopped" || counts !== InboxCounters.none) yield* faults.at("consumer.after-commit")
      if (went !== "rest") return
      if ((yield* transaction(conclude(subscriber, held))) === "over") return
    }
  })
})
