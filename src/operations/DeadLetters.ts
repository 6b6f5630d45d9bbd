/**
 * What an operator does with events that the broker refused: look, try again, give up. Every change is one transaction, says who
 * and why in `operator_audit`, and does nothing when it is repeated.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Result, Schema } from "effect"
import * as HeldRows from "../outbox/holds/HeldRows.ts"
import * as HoldRetries from "../outbox/holds/HoldRetries.ts"
import type { Lane } from "../outbox/Lane.ts"
import { LaneWakeup } from "../outbox/LaneWakeup.ts"
import type { Aggregate } from "../outbox/OutboxQueue.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Wakeups } from "../platform/Wakeups.ts"

/** Who changes something, and why. Both end up in the audit. */
export interface Operator {
  readonly actor: string
  readonly reason: string
}

/** No event has this id, in any state that is still known. */
export class EventUnknown extends Schema.TaggedError<EventUnknown>()("EventUnknown", { eventId: Schema.String }) {
  override get message() {
    return `no event has the id ${this.eventId}: it was never written, or retention has dropped it`
  }
}

/** The event is not in a state where this can be done. Nothing was changed. */
export class NotPossible extends Schema.TaggedError<NotPossible>()("NotPossible", {
  eventId: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `event ${this.eventId} ${this.reason}`
  }
}

/** What became of an event. `changed` is false where it was so already. */
export interface Handled {
  readonly eventId: string
  readonly status: "retrying" | "queued" | "published" | "discarded"
  readonly changed: boolean
}

/** Which dead letters; what is not set matches all. */
export interface Filter {
  readonly topic?: string | undefined
  readonly eventType?: string | undefined
  readonly aggregateId?: string | undefined
}

/** What a batch of redrives came to. */
export interface Redriven {
  readonly retried: number
  /** Dead letters that can't go now, and why: at most {@link refusalLimit} of them. */
  readonly refused: ReadonlyArray<{ readonly eventId: string; readonly reason: string }>
  readonly refusedCount: number
}

/** Redrives in one transaction: short enough that nobody waits for its locks. */
const chunkSize = 100

/** More reasons than these nobody reads. */
const refusalLimit = 20

/** See {@link DeadLetters}. */
export interface DeadLettersService {
  /**
   * Tries an event again: a dead letter goes first in its aggregate again, with its id and version and a full budget of attempts; one
   * that is being retried is due now.
   */
  readonly retry: (eventId: string, operator: Operator) => Effect.Effect<Handled, EventUnknown | NotPossible>
  /** {@link retry} for all dead letters that match when it starts, the oldest first, a bounded number in each transaction. */
  readonly retryAll: (filter: Filter, operator: Operator) => Effect.Effect<Redriven>
  /**
   * Gives an event up: nobody starts a send of it any more, and the rest of its aggregate goes on. It stays visible as discarded.
   * A send that is under way may still arrive.
   */
  readonly discard: (eventId: string, operator: Operator) => Effect.Effect<Handled, EventUnknown | NotPossible>
}

export class DeadLetters extends Context.Service<DeadLetters, DeadLettersService>()(
  "paid-once/operations/DeadLetters"
) {
  static readonly layer: Layer.Layer<DeadLetters, never, PgClient.PgClient | LaneWakeup | Wakeups> = Layer.effect(
    DeadLetters,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const wakeup = yield* LaneWakeup
      const wakeups = yield* Wakeups
      const transaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
        Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)

      /** After the commit the lane's owner looks at its holds and at its queue. */
      const announce = (lane: Lane) =>
        Effect.flatMap(Transaction, ({ afterCommit }) =>
          afterCommit(
            Effect.andThen(Effect.provideService(HoldRetries.announce(lane), Wakeups, wakeups), wakeup.wake(lane))
          )
        )

      /** What is known of an event that was refused: its hold, locked, and its place among the dead letters. */
      const lockOnce = Effect.fnUntraced(function* (eventId: string) {
        const { sql } = yield* Transaction
        // By somebody's fault two events may have one id: what can be decided comes first, then what is tried, then what is over.
        const [aggregate] = yield* sql<Aggregate>`
          SELECT aggregate_type AS "aggregateType", aggregate_id AS "aggregateId", CASE status WHEN 'dead' THEN 0 ELSE 2 END AS turn
          FROM outbox_dead_letters WHERE event_id = ${eventId}::uuid
          UNION ALL
          SELECT aggregate_type, aggregate_id, CASE WHEN next_attempt_at IS NULL THEN 3 ELSE 1 END
          FROM outbox_holds WHERE event_id = ${eventId}::uuid
          ORDER BY turn LIMIT 1`
        if (aggregate === undefined) return undefined
        // The hold first, as everybody does.
        const hold = yield* HeldRows.lockHold(aggregate)
        const [dead] = yield* sql<{
          readonly status: "dead" | "discarded"
          readonly attempts: number
          readonly lane: Lane
        }>`
          SELECT status, attempts, lane FROM outbox_dead_letters
          WHERE event_id = ${eventId}::uuid AND aggregate_type = ${aggregate.aggregateType} AND aggregate_id = ${aggregate.aggregateId}
          FOR UPDATE`
        return { aggregate, hold, dead, isHead: hold?.eventId === eventId }
      })
      const lock = Effect.fnUntraced(function* (eventId: string) {
        const found = yield* lockOnce(eventId)
        // Somebody else has brought it back while this waited: now it has a hold.
        const hasMoved = found !== undefined && found.hold === undefined && found.dead === undefined
        return hasMoved ? yield* lockOnce(eventId) : found
      })

      /** Why nothing can be done: the state that the event is in. */
      const explain = Effect.fnUntraced(function* (eventId: string) {
        const { sql } = yield* Transaction
        const [row] = yield* sql<{ readonly status: string; readonly head: string | null }>`
          SELECT s.status, h.event_id::text AS head
          FROM outbox_status AS s LEFT JOIN outbox_holds AS h USING (aggregate_type, aggregate_id)
          WHERE s.event_id = ${eventId}::uuid`
        if (row === undefined) return yield* new EventUnknown({ eventId })
        return row
      })

      const behind = (eventId: string, head: string | null) =>
        new NotPossible({
          eventId,
          reason: `waits behind event ${head ?? "?"} of its aggregate: handle that one first`
        })

      const retryOne = Effect.fnUntraced(function* (eventId: string, operator: Operator) {
        const { sql } = yield* Transaction
        const found = yield* lock(eventId)
        const handled: Handled = { eventId, status: "retrying", changed: true }
        if (found?.dead?.status === "discarded") {
          return yield* new NotPossible({ eventId, reason: "was discarded, which is final" })
        }
        if (found?.dead !== undefined) {
          const { aggregate, dead, hold, isHead } = found
          if (hold !== undefined && !isHead) return yield* behind(eventId, hold.eventId)
          if (hold === undefined) {
            // Its aggregate has gone on without it: it waits once more, while the event is on its way.
            const made = yield* sql`
              INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, next_attempt_at,
                                        last_error, history, held_at)
              SELECT aggregate_type, aggregate_id, lane, topic, event_id, seq, 0, clock_now(), last_error, history, clock_now()
              FROM outbox_dead_letters WHERE event_id = ${eventId}::uuid
              ON CONFLICT DO NOTHING
              RETURNING 1 AS one`
            if (made.length === 0) {
              return yield* new NotPossible({ eventId, reason: "has to wait: its aggregate was held a moment ago" })
            }
            yield* HeldRows.parkAggregate(aggregate, dead.lane)
          } else {
            yield* sql`
              UPDATE outbox_holds SET attempts = 0, next_attempt_at = clock_now()
              WHERE aggregate_type = ${aggregate.aggregateType} AND aggregate_id = ${aggregate.aggregateId}`
          }
          yield* HeldRows.unburyHead(eventId)
          yield* HeldRows.audit({
            ...operator,
            action: "retry",
            eventId,
            before: { status: "dead", attempts: dead.attempts },
            after: { status: "retrying", attempts: 0 }
          })
          yield* announce(dead.lane)
          return handled
        }
        if (found?.hold !== undefined && found.isHead) {
          const { attempts, lane } = found.hold
          const hastened = yield* sql`
            UPDATE outbox_holds SET next_attempt_at = clock_now()
            WHERE aggregate_type = ${found.aggregate.aggregateType} AND aggregate_id = ${found.aggregate.aggregateId}
              AND next_attempt_at > clock_now()
            RETURNING 1 AS one`
          if (hastened.length === 0) return { ...handled, changed: false }
          yield* HeldRows.audit({
            ...operator,
            action: "retry",
            eventId,
            before: { status: "retrying", attempts },
            after: { status: "retrying", attempts, due: "now" }
          })
          yield* announce(lane)
          return handled
        }
        const { head, status } = yield* explain(eventId)
        if (status === "queued" || status === "published") return { eventId, status, changed: false } satisfies Handled
        return yield* behind(eventId, head)
      })

      const discardOne = Effect.fnUntraced(function* (eventId: string, operator: Operator) {
        const { sql } = yield* Transaction
        const found = yield* lock(eventId)
        const handled: Handled = { eventId, status: "discarded", changed: true }
        if (found?.dead?.status === "discarded") return { ...handled, changed: false }
        const head = found?.isHead === true ? found.hold : undefined
        const attempts = found?.dead?.attempts ?? head?.attempts
        if (found === undefined || attempts === undefined) {
          const { head, status } = yield* explain(eventId)
          if (status === "parked") return yield* behind(eventId, head)
          return yield* new NotPossible({
            eventId,
            reason: `is ${status}: only an event that the broker refused can be discarded`
          })
        }
        if (found.dead === undefined) {
          if (yield* HeldRows.isBuried(eventId)) {
            return yield* new NotPossible({
              eventId,
              reason: "is tried until the broker takes it, for another event with its id is among the dead letters"
            })
          }
          yield* HeldRows.buryHead(head!, "discarded")
        } else {
          yield* sql`
            UPDATE outbox_dead_letters SET status = 'discarded', ended_at = clock_now() WHERE event_id = ${eventId}::uuid`
        }
        if (head !== undefined) yield* HeldRows.release(head)
        yield* HeldRows.audit({
          ...operator,
          action: "discard",
          eventId,
          before: { status: found.dead?.status ?? "retrying", attempts },
          after: { status: "discarded", attempts }
        })
        if (head !== undefined) yield* announce(head.lane)
        return handled
      })

      const orDefect = <A, R>(effect: Effect.Effect<A, unknown, R>) =>
        Effect.catch(effect, (error): Effect.Effect<never, EventUnknown | NotPossible> =>
          error instanceof EventUnknown || error instanceof NotPossible ? Effect.fail(error) : Effect.die(error)
        )

      const retryAll = Effect.fn("DeadLetters.retryAll")(function* (filter: Filter, operator: Operator) {
        const { aggregateId = null, eventType = null, topic = null } = filter
        // What dies again meanwhile has a later time, so this ends.
        const [start] = yield* client<{ readonly now: string }>`SELECT clock_now()::text AS now`
        let after = { endedAt: "-infinity", eventId: "00000000-0000-0000-0000-000000000000" }
        let retried = 0
        let refusedCount = 0
        const refused: Array<{ readonly eventId: string; readonly reason: string }> = []
        while (true) {
          const chunk = yield* client<{ readonly eventId: string; readonly endedAt: string }>`
            SELECT event_id::text AS "eventId", ended_at::text AS "endedAt" FROM outbox_dead_letters
            WHERE status = 'dead' AND (ended_at, event_id) > (${after.endedAt}::timestamptz, ${after.eventId}::uuid)
              AND ended_at <= ${start!.now}::timestamptz
              AND (${topic}::text IS NULL OR topic = ${topic}) AND (${eventType}::text IS NULL OR event_type = ${eventType})
              AND (${aggregateId}::text IS NULL OR aggregate_id = ${aggregateId})
            ORDER BY ended_at, event_id LIMIT ${chunkSize}`
          const last = chunk.at(-1)
          if (last === undefined) return { retried, refused, refusedCount }
          after = last
          const results = yield* transaction(
            Effect.forEach(chunk, ({ eventId }) => Effect.result(orDefect(retryOne(eventId, operator))))
          )
          for (const [index, result] of results.entries()) {
            if (Result.isSuccess(result)) retried += result.success.changed ? 1 : 0
            else {
              refusedCount += 1
              if (refused.length < refusalLimit) {
                refused.push({ eventId: chunk[index]!.eventId, reason: result.failure.message })
              }
            }
          }
        }
      }, Effect.orDie)

      return DeadLetters.of({
        // Postgres writes a UUID in small letters, and ids are compared as text here.
        retry: Effect.fn("DeadLetters.retry")((eventId, operator) =>
          orDefect(transaction(retryOne(eventId.toLowerCase(), operator)))
        ),
        retryAll,
        discard: Effect.fn("DeadLetters.discard")((eventId, operator) =>
          orDefect(transaction(discardOne(eventId.toLowerCase(), operator)))
        )
      })
    })
  )
}
