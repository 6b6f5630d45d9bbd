/**
 * What waits behind holds, applied when its time comes: the head of a hold is tried again, and once it is applied, what follows it does so at
 * once, in version order. It takes part in none of the partitions' reading, so nobody waits for a try but the aggregate itself.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Exit, type Latch, Layer, Result, Semaphore } from "effect"
import type { SqlError } from "effect/sql"
import * as Backoff from "../../platform/Backoff.ts"
import { Faults } from "../../platform/Faults.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { annotate } from "../ApplySlice.ts"
import type { ReadableArrival } from "../Arrival.ts"
import { type Aggregate, compare, Cursors, keyOf } from "../Cursors.ts"
import { judge } from "../Failures.ts"
import * as Handle from "../Handle.ts"
import { Inbox } from "../Inbox.ts"
import * as InboxCounters from "../InboxCounters.ts"
import { aggregateOf } from "../SlicePlan.ts"
import type { Subscriber } from "../Subscriber.ts"
import * as HeldRound from "./HeldRound.ts"
import * as ParkedRows from "./ParkedRows.ts"
import { gapText, Parking } from "./Parking.ts"

/** Tries of all consumers of a process at once: they take connections of the slices, which must have some left. */
const processLimit = 6

/** Parked events in one transaction: its commit is shared by as many, and nobody waits long for the rows that it has. */
const drainLimit = 100

/** Transactions for one hold in a round: an aggregate on which more waits than these take gets its next turn in the next round. */
const drainRounds = 20

/** What a transaction at a hold came to. `rest`: more may wait. `stopped`: the next one failed. `gone`: nothing to do. */
type Drained = { readonly went: "rest" | "stopped" | "gone"; readonly counts: InboxCounters.Counts }

export class ApplyHeld extends Context.Service<
  ApplyHeld,
  {
    /** One round: tries what is due of the consumer's holds, some side by side, for a bounded time, and says how many it had. */
    readonly retryHeld: (subscriber: Subscriber) => Effect.Effect<number>
    /** Milliseconds until the consumer's next hold is due, not above 0 where one is; undefined where none will be by itself. */
    readonly nextDueMillis: (consumer: string) => Effect.Effect<number | undefined>
    /** Makes due what waits for an event that is there: the net under {@link Parking.wake}. */
    readonly sweepGaps: (consumer: string) => Effect.Effect<void>
    /** Opened when this process changed a hold of the consumer. */
    readonly changed: (consumer: string) => Latch.Latch
  }
>()("paid-once/inbox/holds/ApplyHeld") {
  static readonly layerNoDeps: Layer.Layer<ApplyHeld, never, Inbox | Cursors | Parking | PgClient.PgClient> =
    Layer.effect(
      ApplyHeld,
      Effect.gen(function* () {
        const client = yield* PgClient.PgClient
        const inbox = yield* Inbox
        const cursors = yield* Cursors
        const parking = yield* Parking
        const faults = yield* Faults
        const { timeoutMillis } = yield* Handle.HandleSettings
        /** How often a hold could not be tried at all, one after another, by consumer and aggregate. */
        const transients = new Map<string, number>()
        const nameOf = ({ aggregateId, consumer }: ParkedRows.Held) => `${consumer} ${aggregateId}`
        const tries = yield* Semaphore.make(processLimit)

        const transaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
          Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)

        const cursorOf = (consumer: string, aggregate: Aggregate) =>
          Effect.map(cursors.read(consumer, [aggregate]), (places) => places.get(keyOf(aggregate))?.version)

        /** The effect of one parked event: its mark, its handler and its cursor, or nothing of it. */
        const applyOne = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          arrival: ReadableArrival,
          from: number | undefined
        ) {
          const { name } = subscriber
          const { event } = arrival
          const first = yield* inbox.markFirst(name, [event.eventId])
          if (first.has(event.eventId)) {
            yield* Handle.all(subscriber, [arrival])
          }
          const { aggregateType, aggregateVersion } = event
          yield* cursors.advance(name, [
            { aggregateType, aggregateId: arrival.aggregateId, from, to: aggregateVersion }
          ])
          return first.has(event.eventId)
        })

        /** Applies what waits behind a hold that is due, until one fails, something is missing, or it is enough for a transaction. */
        const drain = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          held: ParkedRows.Held
        ): Effect.fn.Return<Drained, unknown, Transaction> {
          let counts = InboxCounters.none
          const end = (went: Drained["went"]): Drained => ({ went, counts })
          const hold = yield* ParkedRows.lockHold(held, "try")
          if (hold === undefined || !hold.isDue) return end("gone")
          const turns = yield* ParkedRows.first(held, drainLimit)
          const seen = new Map<string, number | undefined>()
          for (const { arrival, id } of turns) {
            const refused = Effect.fnUntraced(function* (failure: {
              readonly error: string
              readonly isFinal: boolean
            }) {
              const { attempts, outcome } = yield* parking.failed(hold, id, failure)
              if (outcome === "dead") counts = InboxCounters.add(counts, { ...InboxCounters.none, dead: 1 })
              const { afterCommit } = yield* Transaction
              yield* afterCommit(
                Effect.logWarning(
                  `${held.consumer} could not apply an event, which ${outcome === "dead" ? "waits for an operator" : "is tried again"}: ${failure.error}`
                ).pipe(annotate(subscriber, arrival, attempts))
              )
              return end("stopped")
            })
            if (Result.isFailure(arrival.read)) return yield* refused({ error: arrival.read.failure, isFinal: true })
            const { aggregateVersion } = arrival.read.success
            const aggregate = aggregateOf(arrival)
            const key = keyOf(aggregate)
            const cursor = seen.has(key) ? seen.get(key) : yield* cursorOf(held.consumer, aggregate)
            seen.set(key, cursor)
            const place = compare(subscriber.firstSight, cursor, aggregateVersion)
            if (place === "ahead") return end("rest")
            if (place === "next") {
              // A transaction inside the one that has the hold: when it fails, the failure is written down by the outer one.
              const readable = { ...arrival, event: arrival.read.success }
              const exit = yield* Effect.exit(
                Handle.bounded(transaction(applyOne(subscriber, readable, cursor)), timeoutMillis)
              )
              if (Exit.isFailure(exit)) {
                const verdict = judge(exit.cause)
                return verdict._tag === "Failed" ? yield* refused(verdict) : yield* Effect.failCause(exit.cause)
              }
              counts = InboxCounters.add(counts, {
                ...InboxCounters.none,
                [exit.value ? "applied" : "duplicate"]: 1
              })
              seen.set(key, aggregateVersion)
            } else counts = InboxCounters.add(counts, { ...InboxCounters.none, duplicate: 1 })
            yield* ParkedRows.remove(held.consumer, id)
          }
          yield* faults.at("consumer.before-commit")
          return end("rest")
        })

        /**
         * Ends the hold where nothing waits any more, and has it wait where something is missing. In a transaction of its own, which has no
         * other lock: it waits for arrivals that are parking, and nobody who parks waits for what it has.
         */
        const settle = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          held: ParkedRows.Held
        ): Effect.fn.Return<"again" | "over", SqlError.SqlError, Transaction> {
          const hold = yield* ParkedRows.lockHold(held, "decide")
          if (hold === undefined || hold.status !== "retrying") return "over"
          const [turn] = yield* ParkedRows.first(held, 1)
          if (turn === undefined) {
            yield* ParkedRows.release(held)
            return "over"
          }
          const { arrival, id } = turn
          const aggregate = aggregateOf(arrival)
          const cursor = yield* cursorOf(held.consumer, aggregate)
          if (
            Result.isSuccess(arrival.read) &&
            compare(subscriber.firstSight, cursor, arrival.read.success.aggregateVersion) === "ahead"
          ) {
            const { aggregateType, aggregateVersion } = arrival.read.success
            if (yield* cursors.givenUp(arrival.topic, aggregate, cursor ?? 0, aggregateVersion)) {
              const move = { aggregateType, aggregateId: held.aggregateId, from: cursor, to: aggregateVersion - 1 }
              yield* cursors.advance(held.consumer, [move])
              yield* ParkedRows.setDue(held, { eventId: id, attempts: 0, waitMillis: 0 })
              return "again"
            }
            const error = gapText((cursor ?? 0) + 1)
            yield* ParkedRows.setWaiting(held, { status: "gap", eventId: id, error })
            const { afterCommit } = yield* Transaction
            yield* afterCommit(
              Effect.logWarning(`${held.consumer} holds an aggregate: its event is too early: ${error}`).pipe(
                annotate(subscriber, arrival, 0)
              )
            )
            return "over"
          }
          yield* ParkedRows.setDue(held, { eventId: id, attempts: 0, waitMillis: 0 })
          return "again"
        })

        const retry = Effect.fnUntraced(function* (subscriber: Subscriber, held: ParkedRows.Held) {
          for (let round = 0; round < drainRounds; round++) {
            const { counts, went } = yield* transaction(drain(subscriber, held))
            yield* InboxCounters.count(held.consumer, counts)
            yield* faults.at("consumer.after-commit")
            if (went !== "rest") return
            if ((yield* transaction(settle(subscriber, held))) === "over") return
          }
        })

        /** The database or a dependency is away: nothing is counted, and the hold waits a little. */
        const postpone = Effect.fnUntraced(function* (held: ParkedRows.Held) {
          const key = nameOf(held)
          const failures = transients.get(key) ?? 0
          transients.set(key, failures + 1)
          const waitMillis = yield* Backoff.millisAfter(Backoff.inboxTransient, failures + 1)
          yield* transaction(
            Effect.gen(function* () {
              const hold = yield* ParkedRows.lockHold(held, "try")
              if (hold?.isDue === true) yield* ParkedRows.setDue(held, { waitMillis: Math.ceil(waitMillis) })
            })
          )
        })

        /** Tries one hold. */
        const attempt = Effect.fnUntraced(function* (subscriber: Subscriber, aggregateId: string) {
          const { name } = subscriber
          const held = { consumer: name, aggregateId }
          const exit = yield* Effect.exit(retry(subscriber, held))
          if (Exit.isSuccess(exit)) {
            transients.delete(nameOf(held))
            return
          }
          if (judge(exit.cause)._tag === "Interrupted") return yield* Effect.failCause(exit.cause)
          yield* Effect.logWarning(
            `${name} could not try what waits for ${aggregateId}, and tries it again`,
            exit.cause
          ).pipe(
            Effect.annotateLogs({
              consumer: name,
              aggregate_id: aggregateId,
              attempt: (transients.get(nameOf(held)) ?? 0) + 1
            })
          )
          yield* postpone(held)
        })

        const retryHeld = Effect.fn("ApplyHeld.retryHeld")(
          (subscriber: Subscriber) =>
            HeldRound.run({
              take: (taken, onlyFresh) =>
                // What never failed comes first: it waited for an event that is there now.
                Effect.map(
                  client<{ readonly aggregateId: string }>`
                  SELECT aggregate_id AS "aggregateId" FROM inbox_holds
                  WHERE consumer_name = ${subscriber.name} AND next_attempt_at <= (SELECT clock_now())
                    AND aggregate_id <> ALL (${[...taken]}::text[]) AND (attempts = 0 OR NOT ${onlyFresh}::bool)
                  ORDER BY attempts > 0, next_attempt_at LIMIT 1`,
                  ([due]) => due?.aggregateId
                ),
              attempt: (aggregateId) => tries.withPermit(attempt(subscriber, aggregateId))
            }),
          Effect.orDie
        )

        const nextDueMillis = Effect.fnUntraced(function* (consumer: string) {
          const [row] = yield* client<{ readonly waitMillis: number | null }>`
            SELECT (extract(epoch FROM min(next_attempt_at) - clock_now()) * 1000)::float8 AS "waitMillis"
            FROM inbox_holds WHERE consumer_name = ${consumer} AND next_attempt_at IS NOT NULL`
          return row?.waitMillis ?? undefined
        }, Effect.orDie)

        const sweepGaps = Effect.fnUntraced(function* (consumer: string) {
          yield* client`
            UPDATE inbox_holds AS h SET status = 'retrying', next_attempt_at = clock_now()
            WHERE h.consumer_name = ${consumer} AND h.status = 'gap' AND coalesce((
              SELECT p.position <= coalesce(c.version, 0) + 1 + (
                SELECT count(DISTINCT d.aggregate_version) FROM outbox_dead_letters AS d
                WHERE d.aggregate_id = h.aggregate_id AND d.aggregate_type = p.aggregate_type AND d.topic = h.topic AND d.status = 'discarded'
                  AND d.aggregate_version > coalesce(c.version, 0) AND d.aggregate_version < p.position)
              FROM (SELECT position, aggregate_type FROM inbox_parked
                    WHERE consumer_name = h.consumer_name AND aggregate_id = h.aggregate_id ORDER BY position, broker_offset LIMIT 1) AS p
              LEFT JOIN consumer_cursors AS c ON c.consumer_name = h.consumer_name AND c.aggregate_id = h.aggregate_id
                AND c.aggregate_type = p.aggregate_type), true)`
        }, Effect.orDie)

        return ApplyHeld.of({ retryHeld, nextDueMillis, sweepGaps, changed: parking.changed })
      })
    )

  static readonly layer: Layer.Layer<ApplyHeld, never, Inbox | PgClient.PgClient> = Layer.provide(this.layerNoDeps, [
    Cursors.layer,
    Parking.layer
  ])
}
