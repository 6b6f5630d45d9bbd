/**
 * An operator's decisions about dead letters, for the outbox and for an inbox alike: retry, discard, redrive many.
 *
 * Each side brings its statements (`OutboxDeadLetters`, `InboxDeadLetters`). This module has what holds for both: a decision is
 * one transaction, it leaves a row in `operator_audit`, and it wakes the process that has to act, after the commit. Repeating a decision
 * changes nothing.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"
import * as OperatorAudit from "../platform/OperatorAudit.ts"
import { countOf } from "../platform/Plural.ts"
import * as Rows from "../platform/Rows.ts"
import { Transaction } from "../platform/Transaction.ts"

export type { Operator } from "../platform/OperatorAudit.ts"

/** Names an event: in the outbox by its id; in an inbox by the consumer and the id. */
export interface EventKey {
  readonly consumer?: string
  readonly eventId: string
}

/** No event has this id, in any state that is still known. */
export class EventUnknown extends Schema.TaggedError<EventUnknown>()("EventUnknown", {
  consumer: Schema.optionalKey(Schema.String),
  eventId: Schema.String
}) {
  override get message() {
    return this.consumer === undefined
      ? `no event has the id ${this.eventId}: it was never written, or retention has dropped it`
      : `${this.consumer} has nothing called ${this.eventId} that waits or is dead`
  }
}

/** The event's state does not allow the decision. Nothing was changed. */
export class NotPossible extends Schema.TaggedError<NotPossible>()("NotPossible", {
  consumer: Schema.optionalKey(Schema.String),
  eventId: Schema.String,
  /** The rest of the sentence that begins with the event: `was discarded, which is final`. */
  reason: Schema.String
}) {
  override get message() {
    return `event ${this.eventId}${this.consumer === undefined ? "" : ` of ${this.consumer}`} ${this.reason}`
  }
}

/** Why a decision was not carried out. */
export type Refusal = EventUnknown | NotPossible

/** An event after a decision. `changed` is false where it was in this state before. */
export type Handled<Key extends EventKey, Status extends string> = Key & {
  readonly status: Status
  readonly changed: boolean
}

const refusals = {
  /** Dead letters that can't be decided about now, and why: at most {@link refusalLimit} of them. */
  refused: Schema.Array(Schema.Struct({ eventId: Schema.String, reason: Schema.String })),
  refusedCount: Schema.Int
}

/** The result of redriving many. */
export const Redriven = Schema.Struct({ retried: Schema.Int, ...refusals })
export type Redriven = typeof Redriven.Type

/** The result of giving many up. */
export const Discarded = Schema.Struct({ discarded: Schema.Int, ...refusals })
export type Discarded = typeof Discarded.Type

/** The effect of a decision on an event. */
export interface Outcome<Status extends string, R> {
  readonly status: Status
  /** Absent where the event was in this state already, and nothing was written. */
  readonly change?: {
    readonly before: Readonly<Record<string, unknown>>
    readonly after: Readonly<Record<string, unknown>>
    /** Wakes whoever has to act on the change: a lane's owner, a consumer. A hint, sent after the commit. */
    readonly wake: Effect.Effect<void, never, R>
  }
}

/** A decision's statements: they lock what they look at, and write, or say why not. */
export type Decision<Key extends EventKey, Status extends string, R> = (
  key: Key
) => Effect.Effect<Outcome<Status, R>, Refusal | SqlError.SqlError, Transaction>

/** A dead letter in the order of redriving: by the time at which it died. */
export type Dead<Key extends EventKey> = Key & { readonly endedAt: string }

/** A part of the dead letters: up to `limit` of those behind `after` that died no later than `until`. */
export interface Range<Key extends EventKey> {
  readonly after: Dead<Key> | undefined
  readonly until: string
  readonly limit: number
}

/** One side's statements for decisions about many. */
export interface Side<Key extends EventKey, Filter, RetryStatus extends string, DiscardStatus extends string, R> {
  /** This side's name for an event in `operator_audit`. */
  readonly subject: string
  readonly subjectId: (key: Key) => string
  readonly retry: Decision<Key, RetryStatus, R>
  readonly discard: Decision<Key, DiscardStatus, R>
  /** The range's dead letters that match, the oldest first. Takes no locks. */
  readonly page: (filter: Filter, range: Range<Key>) => Effect.Effect<ReadonlyArray<Dead<Key>>, SqlError.SqlError>
}

/** Decisions in one transaction: few enough that it holds its locks for some milliseconds. */
const chunkSize = 100

/** A person reads no more reasons than these. */
const refusalLimit = 20

const now = Rows.one(Schema.Struct({ now: Schema.String }))

/** The front end over one side's statements. */
export const make = Effect.fnUntraced(function* <
  Key extends EventKey,
  Filter,
  RetryStatus extends string,
  DiscardStatus extends string,
  R
>(side: Side<Key, Filter, RetryStatus, DiscardStatus, R>) {
  const client = yield* PgClient.PgClient
  const context = yield* Effect.context<R>()
  const inTransaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
    Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)

  /** Carries the decision out in the transaction that is open. */
  const carryOut = Effect.fnUntraced(function* <Status extends string>(
    action: "retry" | "discard" | "skip",
    key: Key,
    operator: OperatorAudit.Operator,
    decision: Decision<Key, Status, R>
  ) {
    const { change, status } = yield* decision(key)
    if (change === undefined) return { status, changed: false }
    const { after, before, wake } = change
    const { afterCommit } = yield* Transaction
    yield* OperatorAudit.record({
      ...operator,
      action,
      subject: side.subject,
      subjectId: side.subjectId(key),
      before,
      after
    })
    yield* afterCommit(Effect.provideContext(wake, context))
    return { status, changed: true }
  })

  /** Carries one decision out, in a transaction of its own. */
  const decide = <Status extends string>(
    action: "retry" | "discard" | "skip",
    key: Key,
    operator: OperatorAudit.Operator,
    decision: Decision<Key, Status, R>
  ): Effect.Effect<Handled<Key, Status>, Refusal> =>
    inTransaction(carryOut(action, key, operator, decision)).pipe(
      Effect.tap(({ changed }) =>
        changed ? OperatorAudit.log(operator, `${action} of ${side.subject} ${side.subjectId(key)}`) : Effect.void
      ),
      Effect.map((done) => ({ ...key, ...done }))
    )

  /** Decides about all dead letters that match when it starts, the oldest first, {@link chunkSize} in each transaction. */
  const all = Effect.fnUntraced(function* <Status extends string>(
    action: "retry" | "discard",
    decision: Decision<Key, Status, R>,
    filter: Filter,
    operator: OperatorAudit.Operator
  ) {
    // An event that dies again meanwhile has a later time than this, so the loop ends.
    const { now: until } = yield* now(client`SELECT clock_now()::text AS now`)
    const refused: Array<{ readonly eventId: string; readonly reason: string }> = []
    let count = 0
    let refusedCount = 0
    let after: Dead<Key> | undefined
    while (true) {
      const chunk = yield* side.page(filter, { after, until, limit: chunkSize })
      after = chunk.at(-1)
      if (after === undefined) {
        if (count > 0)
          yield* OperatorAudit.log(operator, `${action} of ${countOf(count, "dead letter")} (${side.subject})`)
        return { count, refused, refusedCount }
      }
      const results = yield* inTransaction(
        Effect.forEach(chunk, (key) =>
          Effect.catchTag(carryOut(action, key, operator, decision), ["EventUnknown", "NotPossible"], (refusal) =>
            Effect.succeed(refusal)
          )
        )
      )
      for (const result of results) {
        if ("changed" in result) count += result.changed ? 1 : 0
        else {
          refusedCount += 1
          if (refused.length < refusalLimit) refused.push({ eventId: result.eventId, reason: result.message })
        }
      }
    }
  }, Effect.orDie)

  return {
    decide,
    retryAll: (filter: Filter, operator: OperatorAudit.Operator): Effect.Effect<Redriven> =>
      Effect.map(all("retry", side.retry, filter, operator), ({ count, ...rest }) => ({ retried: count, ...rest })),
    discardAll: (filter: Filter, operator: OperatorAudit.Operator): Effect.Effect<Discarded> =>
      Effect.map(all("discard", side.discard, filter, operator), ({ count, ...rest }) => ({
        discarded: count,
        ...rest
      }))
  }
})
