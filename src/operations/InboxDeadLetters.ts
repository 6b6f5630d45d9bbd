/**
 * What an operator does with events that a consumer could not apply: try again, give up, go on without what is missing. Every change is one
 * transaction, says who and why in `operator_audit`, and does nothing when it is repeated.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Result, Schema } from "effect"
import { Transaction } from "../platform/Transaction.ts"
import { Wakeups } from "../platform/Wakeups.ts"
import type { Operator } from "./DeadLetters.ts"
import { announce } from "../inbox/holds/HoldWakeup.ts"
import * as HeldRows from "../inbox/holds/HeldRows.ts"
import type { Filter } from "./InboxReport.ts"

/** This consumer has nothing of that name that waits or is dead. */
export class LetterUnknown extends Schema.TaggedError<LetterUnknown>()("LetterUnknown", {
  consumer: Schema.String,
  eventId: Schema.String
}) {
  override get message() {
    return `${this.consumer} has nothing called ${this.eventId} that waits or is dead`
  }
}

/** The event is not in a state where this can be done. Nothing was changed. */
export class LetterNotPossible extends Schema.TaggedError<LetterNotPossible>()("LetterNotPossible", {
  consumer: Schema.String,
  eventId: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `event ${this.eventId} of ${this.consumer} ${this.reason}`
  }
}

/** What became of an event. `changed` is false where it was so already. */
export interface Handled {
  readonly consumer: string
  readonly eventId: string
  readonly status: "retrying" | "applied" | "discarded"
  readonly changed: boolean
}

/** What a batch of redrives came to. */
export interface Redriven {
  readonly retried: number
  readonly refused: ReadonlyArray<{ readonly eventId: string; readonly reason: string }>
  readonly refusedCount: number
}

/** Redrives in one transaction: short enough that nobody waits for its locks. */
const chunkSize = 100

/** More reasons than these nobody reads. */
const refusalLimit = 20

type Refusal = LetterUnknown | LetterNotPossible

/** See {@link InboxDeadLetters}. */
export interface InboxDeadLettersService {
  /**
   * Tries an event again: a dead letter goes first in its aggregate again, under its own id and with a full budget of attempts; one that is
   * being retried is due now.
   */
  readonly retry: (consumer: string, eventId: string, operator: Operator) => Effect.Effect<Handled, Refusal>
  /** {@link retry} for all dead letters that match when it starts, the oldest first, a bounded number in each transaction. */
  readonly retryAll: (filter: Filter, operator: Operator) => Effect.Effect<Redriven>
  /** Gives an event up for this consumer: the rest of its aggregate goes on. It stays visible as discarded. */
  readonly discard: (consumer: string, eventId: string, operator: Operator) => Effect.Effect<Handled, Refusal>
  /** Goes on with an event that waits for earlier versions, without them: should they still come, they are not applied. */
  readonly skip: (consumer: string, eventId: string, operator: Operator) => Effect.Effect<Handled, Refusal>
}

export class InboxDeadLetters extends Context.Service<InboxDeadLetters, InboxDeadLettersService>()(
  "paid-once/operations/InboxDeadLetters"
) {
  static readonly layer: Layer.Layer<InboxDeadLetters, never, PgClient.PgClient | Wakeups> = Layer.effect(
    InboxDeadLetters,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const wakeups = yield* Wakeups

      const transaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
        Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)

      /** After the commit the consumer looks at its holds. */
      const tell = (consumer: string) =>
        Effect.flatMap(Transaction, ({ afterCommit }) =>
          afterCommit(Effect.provideService(announce(consumer), Wakeups, wakeups))
        )

      /** What is known of an event: its aggregate's hold, locked, and its place among the dead letters or behind the hold. */
      const find = Effect.fnUntraced(function* (consumer: string, eventId: string) {
        const { sql } = yield* Transaction
        const [aggregate] = yield* sql<{ readonly aggregateId: string }>`
          SELECT aggregate_id AS "aggregateId" FROM inbox_dead_letters WHERE consumer_name = ${consumer} AND event_id = ${eventId}
          UNION ALL
          SELECT aggregate_id FROM inbox_parked WHERE consumer_name = ${consumer} AND event_id = ${eventId} LIMIT 1`
        if (aggregate === undefined) return undefined
        const held = { consumer, aggregateId: aggregate.aggregateId }
        // The hold first, as everybody does.
        const hold = yield* HeldRows.lockHold(held, "exclusive")
        const [row] = yield* sql<{
          readonly status: "dead" | "discarded" | "parked"
          readonly attempts: number
          readonly version: number | null
          readonly type: string | null
        }>`
          SELECT status, attempts, aggregate_version AS version, aggregate_type AS type FROM inbox_dead_letters
          WHERE consumer_name = ${consumer} AND event_id = ${eventId}
          UNION ALL
          SELECT 'parked', 0, aggregate_version, aggregate_type FROM inbox_parked WHERE consumer_name = ${consumer} AND event_id = ${eventId}`
        return row === undefined ? undefined : { held, hold, row, isHead: hold?.eventId === eventId }
      })

      const known = Effect.fnUntraced(function* (consumer: string, eventId: string) {
        const found = yield* find(consumer, eventId)
        if (found !== undefined) return found
        const { sql } = yield* Transaction
        const applied = yield* sql`
          SELECT 1 AS one FROM processed_events WHERE consumer_name = ${consumer} AND event_id::text = ${eventId} LIMIT 1`
        return applied.length > 0 ? ("applied" as const) : yield* new LetterUnknown({ consumer, eventId })
      })

      const notPossible = (consumer: string, eventId: string, reason: string) =>
        new LetterNotPossible({ consumer, eventId, reason })

      /** Why an event can't be touched that is neither dead nor the one that is being tried. */
      const explain = (found: Exclude<Effect.Success<ReturnType<typeof known>>, "applied">, eventId: string) =>
        found.isHead && found.hold?.status === "gap"
          ? notPossible(
              found.held.consumer,
              eventId,
              "waits for an earlier version of its aggregate that has not come: skip goes on without that"
            )
          : notPossible(
              found.held.consumer,
              eventId,
              `waits behind event ${found.hold?.eventId ?? "?"} of its aggregate: handle that one first`
            )

      const retryOne = Effect.fnUntraced(function* (consumer: string, eventId: string, operator: Operator) {
        const handled: Handled = { consumer, eventId, status: "retrying", changed: true }
        const found = yield* known(consumer, eventId)
        if (found === "applied") return { ...handled, status: "applied", changed: false } satisfies Handled
        const { held, hold, isHead, row } = found
        if (row.status === "discarded") return yield* notPossible(consumer, eventId, "was discarded, which is final")
        if (!isHead || hold === undefined || hold.status === "gap") return yield* explain(found, eventId)
        if (row.status === "dead") yield* HeldRows.unbury(consumer, eventId)
        const attempts = row.status === "dead" ? 0 : hold.attempts
        yield* HeldRows.setDue(held, { attempts, waitMillis: 0 })
        yield* HeldRows.audit(consumer, {
          ...operator,
          action: "retry",
          eventId,
          before: { status: hold.status, attempts: hold.attempts },
          after: { status: "retrying", attempts, due: "now" }
        })
        yield* tell(consumer)
        return handled
      })

      /** Sets the cursor so that `version` counts as done. */
      const passOver = Effect.fnUntraced(function* (
        { aggregateId, consumer }: HeldRows.Held,
        type: string,
        version: number
      ) {
        const { sql } = yield* Transaction
        yield* sql`
          INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version)
          VALUES (${consumer}, ${aggregateId}, ${type}, ${version}::int4)
          ON CONFLICT (consumer_name, aggregate_id, aggregate_type) DO UPDATE SET version = greatest(consumer_cursors.version, excluded.version)`
      })

      const discardOne = Effect.fnUntraced(function* (consumer: string, eventId: string, operator: Operator) {
        const { sql } = yield* Transaction
        const handled: Handled = { consumer, eventId, status: "discarded", changed: true }
        const found = yield* known(consumer, eventId)
        if (found === "applied") {
          return yield* notPossible(consumer, eventId, "is applied: only one that could not be can be discarded")
        }
        const { held, hold, isHead, row } = found
        if (row.status === "discarded") return { ...handled, changed: false } satisfies Handled
        if (!isHead || hold === undefined || hold.status === "gap") return yield* explain(found, eventId)
        const version = row.version ?? 0
        const [cursor] = yield* sql<{ readonly version: number }>`
          SELECT version FROM consumer_cursors WHERE consumer_name = ${consumer} AND aggregate_id = ${held.aggregateId}
            AND aggregate_type = ${row.type ?? ""}`
        // One member held it while another one applied it: only trying it finds that out, and takes it away.
        if (row.version !== null && (cursor?.version ?? 0) >= version) {
          return yield* notPossible(consumer, eventId, "was applied meanwhile: retry takes it away")
        }
        // It stands in front since a moment ago, and an earlier one may be missing: given up now, that one would go with it unseen.
        if (row.status === "parked" && hold.attempts === 0 && version > (cursor?.version ?? 0) + 1) {
          return yield* notPossible(consumer, eventId, "has not been tried yet, or waits for an earlier version")
        }
        if (row.status === "dead") {
          yield* sql`
            UPDATE inbox_dead_letters SET status = 'discarded', ended_at = clock_now()
            WHERE consumer_name = ${consumer} AND event_id = ${eventId}`
        } else yield* HeldRows.bury(held, eventId, "discarded")
        if (row.version !== null && row.type !== null) yield* passOver(held, row.type, row.version)
        // What waits behind it is next; the consumer sees whether something is missing in between.
        const [next] = yield* HeldRows.first(held, 1)
        if (next === undefined) yield* HeldRows.release(held)
        else yield* HeldRows.setDue(held, { eventId: next.id, attempts: 0, waitMillis: 0 })
        yield* HeldRows.audit(consumer, {
          ...operator,
          action: "discard",
          eventId,
          before: { status: hold.status, attempts: hold.attempts },
          after: { status: "discarded", attempts: hold.attempts }
        })
        yield* tell(consumer)
        return handled
      })

      const skipOne = Effect.fnUntraced(function* (consumer: string, eventId: string, operator: Operator) {
        const { sql } = yield* Transaction
        const handled: Handled = { consumer, eventId, status: "retrying", changed: true }
        const found = yield* known(consumer, eventId)
        if (found === "applied") return { ...handled, status: "applied", changed: false } satisfies Handled
        const { held, hold, isHead, row } = found
        if (!isHead || hold?.status !== "gap" || row.version === null || row.type === null) {
          return yield* notPossible(consumer, eventId, "does not wait for an earlier version: there is nothing to skip")
        }
        const [cursor] = yield* sql<{ readonly version: number }>`
          SELECT version FROM consumer_cursors
          WHERE consumer_name = ${consumer} AND aggregate_id = ${held.aggregateId} AND aggregate_type = ${row.type} FOR UPDATE`
        yield* passOver(held, row.type, row.version - 1)
        yield* HeldRows.setDue(held, { attempts: 0, waitMillis: 0 })
        yield* HeldRows.audit(consumer, {
          ...operator,
          action: "skip",
          eventId,
          before: { status: "gap", version: cursor?.version ?? 0 },
          after: { status: "retrying", version: row.version - 1 }
        })
        yield* tell(consumer)
        return handled
      })

      const orDefect = <A, R>(effect: Effect.Effect<A, unknown, R>) =>
        Effect.catch(effect, (error): Effect.Effect<never, Refusal> =>
          error instanceof LetterUnknown || error instanceof LetterNotPossible ? Effect.fail(error) : Effect.die(error)
        )

      const retryAll = Effect.fn("InboxDeadLetters.retryAll")(function* (filter: Filter, operator: Operator) {
        const { aggregateId = null, consumer = null, eventType = null } = filter
        // What dies again meanwhile has a later time, so this ends.
        const [start] = yield* client<{ readonly now: string }>`SELECT clock_now()::text AS now`
        let after = { endedAt: "-infinity", consumer: "", eventId: "" }
        let retried = 0
        let refusedCount = 0
        const refused: Array<{ readonly eventId: string; readonly reason: string }> = []
        while (true) {
          const chunk = yield* client<typeof after>`
            SELECT event_id AS "eventId", ended_at::text AS "endedAt", consumer_name AS consumer FROM inbox_dead_letters
            WHERE status = 'dead'
              AND (ended_at, consumer_name, event_id) > (${after.endedAt}::timestamptz, ${after.consumer}, ${after.eventId})
              AND ended_at <= ${start!.now}::timestamptz
              AND (${consumer}::text IS NULL OR consumer_name = ${consumer}) AND (${eventType}::text IS NULL OR event_type = ${eventType})
              AND (${aggregateId}::text IS NULL OR aggregate_id = ${aggregateId})
            ORDER BY ended_at, consumer_name, event_id LIMIT ${chunkSize}`
          const last = chunk.at(-1)
          if (last === undefined) return { retried, refused, refusedCount }
          after = last
          const results = yield* transaction(
            Effect.forEach(chunk, (one) => Effect.result(orDefect(retryOne(one.consumer, one.eventId, operator))))
          )
          for (const [index, result] of results.entries()) {
            if (Result.isSuccess(result)) retried += 1
            else {
              refusedCount += 1
              if (refused.length < refusalLimit) {
                refused.push({ eventId: chunk[index]!.eventId, reason: result.failure.message })
              }
            }
          }
        }
      }, Effect.orDie)

      /** Postgres writes a UUID in small letters, and ids are compared as text here; the id of an unreadable record is not one. */
      const idOf = (eventId: string) => (eventId.includes(":") ? eventId : eventId.toLowerCase())

      return InboxDeadLetters.of({
        retry: Effect.fn("InboxDeadLetters.retry")((consumer, eventId, operator) =>
          orDefect(transaction(retryOne(consumer, idOf(eventId), operator)))
        ),
        retryAll,
        discard: Effect.fn("InboxDeadLetters.discard")((consumer, eventId, operator) =>
          orDefect(transaction(discardOne(consumer, idOf(eventId), operator)))
        ),
        skip: Effect.fn("InboxDeadLetters.skip")((consumer, eventId, operator) =>
          orDefect(transaction(skipOne(consumer, idOf(eventId), operator)))
        )
      })
    })
  )
}
