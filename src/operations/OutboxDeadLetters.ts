/** An operator's decisions about events that the broker refused: retry, discard, redrive many. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import * as HeldRows from "../outbox/holds/HeldRows.ts"
import * as HoldRetries from "../outbox/holds/HoldRetries.ts"
import { Lane } from "../outbox/Lane.ts"
import { LaneWakeup } from "../outbox/LaneWakeup.ts"
import type { Aggregate } from "../outbox/Queue.ts"
import * as Rows from "../platform/Rows.ts"
import { Transaction } from "../platform/Transaction.ts"
import type { Wakeups } from "../platform/Wakeups.ts"
import * as DeadLetters from "./DeadLetters.ts"
import { type EventFilter, failedSo, inLast, matching, type Preview, preview } from "./reports/ReportSql.ts"

/** Which dead letters; a field that is not set matches all. */
export interface Filter extends EventFilter {
  readonly topic?: string | undefined
}

interface Key {
  readonly eventId: string
}

/** An event after a decision; its states have the names of `outbox_status`. */
export const Handled = Schema.Struct({
  eventId: Schema.String,
  status: Schema.Literals(["retrying", "queued", "published", "discarded"]),
  /** False where it was in this state before. */
  changed: Schema.Boolean
})
export type Handled = typeof Handled.Type

/** See {@link OutboxDeadLetters}. */
export interface OutboxDeadLettersService {
  /**
   * Tries an event again. A dead letter goes back in front of its aggregate, with its id, its version and a full budget of attempts.
   * An event that is being retried becomes due now.
   */
  readonly retry: (eventId: string, operator: DeadLetters.Operator) => Effect.Effect<Handled, DeadLetters.Refusal>
  /** {@link retry} for all dead letters that match when it starts, the oldest first, a bounded number in each transaction. */
  readonly retryAll: (filter: Filter, operator: DeadLetters.Operator) => Effect.Effect<DeadLetters.Redriven>
  /** {@link discard} for all dead letters that match when it starts. */
  readonly discardAll: (filter: Filter, operator: DeadLetters.Operator) => Effect.Effect<DeadLetters.Discarded>
  /** What {@link retryAll} and {@link discardAll} would take up now. Changes nothing. */
  readonly preview: (filter: Filter) => Effect.Effect<Preview>
  /**
   * Gives an event up: no new send of it begins, and the rest of its aggregate goes on. It stays visible as discarded.
   * A send that is under way may still arrive.
   */
  readonly discard: (eventId: string, operator: DeadLetters.Operator) => Effect.Effect<Handled, DeadLetters.Refusal>
}

const firstAggregate = Rows.first(Schema.Struct({ aggregateType: Schema.String, aggregateId: Schema.String }))

const firstDead = Rows.first(
  Schema.Struct({ status: Schema.Literals(["dead", "discarded"]), attempts: Schema.Int, lane: Lane })
)

const firstStatus = Rows.first(
  Schema.Struct({
    status: Schema.Literals(["queued", "retrying", "parked", "published", "dead", "discarded"]),
    head: Schema.NullOr(Schema.String)
  })
)

const deadRows = Rows.all(Schema.Struct({ eventId: Schema.String, endedAt: Schema.String }))

const notPossible = (eventId: string, reason: string) => new DeadLetters.NotPossible({ eventId, reason })

const behind = (eventId: string, head: string | null) =>
  notPossible(eventId, `waits behind event ${head ?? "?"} of its aggregate: handle that one first`)

/** The event's hold, locked, and its row among the dead letters. */
const lockOnce = Effect.fnUntraced(function* (eventId: string) {
  const { sql } = yield* Transaction
  // A writer's mistake can give two events one id. An operator decides about a dead one first, then about one that is being retried.
  const aggregate = yield* firstAggregate(sql`
    SELECT aggregate_type AS "aggregateType", aggregate_id AS "aggregateId", CASE status WHEN 'dead' THEN 0 ELSE 2 END AS rank
    FROM outbox_dead_letters WHERE event_id = ${eventId}::uuid
    UNION ALL
    SELECT aggregate_type, aggregate_id, CASE WHEN next_attempt_at IS NULL THEN 3 ELSE 1 END
    FROM outbox_holds WHERE event_id = ${eventId}::uuid
    ORDER BY rank LIMIT 1`)
  if (aggregate === undefined) return undefined
  // The hold is locked before any other row, as in every transaction that changes one.
  const hold = yield* HeldRows.lockHold(aggregate)
  const dead = yield* firstDead(sql`
    SELECT status, attempts, lane FROM outbox_dead_letters
    WHERE event_id = ${eventId}::uuid AND aggregate_type = ${aggregate.aggregateType} AND aggregate_id = ${aggregate.aggregateId}
    FOR UPDATE`)
  return { aggregate, hold, dead, isHead: hold?.eventId === eventId }
})

const lock = Effect.fnUntraced(function* (eventId: string) {
  const found = yield* lockOnce(eventId)
  // Another operator brought the event back while this one waited for its row: now it has a hold.
  const hasMoved = found !== undefined && found.hold === undefined && found.dead === undefined
  return hasMoved ? yield* lockOnce(eventId) : found
})

/** The event's state, and the head of its aggregate, where it is neither dead nor being retried. */
const statusOf = Effect.fnUntraced(function* (eventId: string) {
  const { sql } = yield* Transaction
  const row = yield* firstStatus(sql`
    SELECT s.status, h.event_id::text AS head
    FROM outbox_status AS s LEFT JOIN outbox_holds AS h USING (aggregate_type, aggregate_id)
    WHERE s.event_id = ${eventId}::uuid`)
  return row ?? (yield* new DeadLetters.EventUnknown({ eventId }))
})

/** After the commit the lane's owner looks at its holds and at its queue. */
const wake = (lane: Lane): Effect.Effect<void, never, LaneWakeup | Wakeups> =>
  Effect.andThen(
    HoldRetries.announce(lane),
    Effect.flatMap(LaneWakeup, (wakeup) => wakeup.wake(lane))
  )

/** Makes the aggregate's hold anew for a dead letter that its aggregate has passed: topics in `skipTopics` do. */
const holdAgain = Effect.fnUntraced(function* (eventId: string, aggregate: Aggregate, lane: Lane) {
  const { sql } = yield* Transaction
  const made = yield* sql`
    INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, next_attempt_at,
                              last_error, history, held_at)
    SELECT aggregate_type, aggregate_id, lane, topic, event_id, seq, 0, clock_now(), last_error, history, clock_now()
    FROM outbox_dead_letters WHERE event_id = ${eventId}::uuid
    ON CONFLICT DO NOTHING
    RETURNING 1 AS one`
  if (made.length === 0) return yield* notPossible(eventId, "has to wait: its aggregate was held a moment ago")
  yield* HeldRows.parkAggregate(aggregate, lane)
})

const retry = Effect.fnUntraced(function* ({ eventId }: Key) {
  const { sql } = yield* Transaction
  const found = yield* lock(eventId)
  const status = "retrying" as const
  if (found?.dead?.status === "discarded") return yield* notPossible(eventId, "was discarded, which is final")
  if (found?.dead !== undefined) {
    const { aggregate, dead, hold, isHead } = found
    if (hold === undefined) yield* holdAgain(eventId, aggregate, dead.lane)
    else if (!isHead) return yield* behind(eventId, hold.eventId)
    else {
      yield* sql`
        UPDATE outbox_holds SET attempts = 0, next_attempt_at = clock_now()
        WHERE aggregate_type = ${aggregate.aggregateType} AND aggregate_id = ${aggregate.aggregateId}`
    }
    yield* HeldRows.unburyHead(eventId)
    const before = { status: "dead", attempts: dead.attempts }
    return { status, change: { before, after: { status, attempts: 0 }, wake: wake(dead.lane) } }
  }
  if (found?.hold !== undefined && found.isHead) {
    const { aggregateId, aggregateType, attempts, lane } = found.hold
    const hastened = yield* sql`
      UPDATE outbox_holds SET next_attempt_at = clock_now()
      WHERE aggregate_type = ${aggregateType} AND aggregate_id = ${aggregateId} AND next_attempt_at > clock_now()
      RETURNING 1 AS one`
    if (hastened.length === 0) return { status }
    return {
      status,
      change: { before: { status, attempts }, after: { status, attempts, due: "now" }, wake: wake(lane) }
    }
  }
  const now = yield* statusOf(eventId)
  if (now.status === "queued" || now.status === "published") return { status: now.status }
  return yield* behind(eventId, now.head)
})

const discard = Effect.fnUntraced(function* ({ eventId }: Key) {
  const { sql } = yield* Transaction
  const found = yield* lock(eventId)
  const status = "discarded" as const
  if (found?.dead?.status === "discarded") return { status }
  const head = found?.isHead === true ? found.hold : undefined
  const refused = found?.dead ?? head
  if (refused === undefined) {
    const now = yield* statusOf(eventId)
    if (now.status === "parked") return yield* behind(eventId, now.head)
    return yield* notPossible(eventId, `is ${now.status}: only an event that the broker refused can be discarded`)
  }
  if (found?.dead !== undefined) {
    yield* sql`
      UPDATE outbox_dead_letters SET status = 'discarded', ended_at = clock_now() WHERE event_id = ${eventId}::uuid`
  } else if (yield* HeldRows.isBuried(eventId)) {
    return yield* notPossible(
      eventId,
      "is tried until the broker takes it, for another event with its id is among the dead letters"
    )
  } else if (head !== undefined) yield* HeldRows.buryHead(head, status)
  if (head !== undefined) yield* HeldRows.release(head)
  const { attempts, lane } = refused
  const before = { status: found?.dead?.status ?? "retrying", attempts }
  return { status, change: { before, after: { status, attempts }, wake: wake(lane) } }
})

/** Below every id. */
const nilId = "00000000-0000-0000-0000-000000000000"

const conditions = (client: PgClient.PgClient, { aggregateId, cause, eventType, sinceSeconds, topic }: Filter) =>
  client.and([
    client`status = 'dead'`,
    matching(client, { topic, event_type: eventType, aggregate_id: aggregateId }),
    inLast(client, "occurred_at", sinceSeconds),
    failedSo(client, "last_error", cause)
  ])

const page =
  (client: PgClient.PgClient) =>
  (filter: Filter, { after, limit, until }: DeadLetters.Range<Key>) =>
    deadRows(client`
      SELECT event_id::text AS "eventId", ended_at::text AS "endedAt" FROM outbox_dead_letters
      WHERE ${conditions(client, filter)} AND ended_at <= ${until}::timestamptz
        AND (ended_at, event_id) > (${after?.endedAt ?? "-infinity"}::timestamptz, ${after?.eventId ?? nilId}::uuid)
      ORDER BY ended_at, event_id LIMIT ${limit}`)

/** Decisions about events that the broker refused. */
export class OutboxDeadLetters extends Context.Service<OutboxDeadLetters, OutboxDeadLettersService>()(
  "paid-once/operations/OutboxDeadLetters"
) {
  static readonly layer: Layer.Layer<OutboxDeadLetters, never, PgClient.PgClient | LaneWakeup | Wakeups> = Layer.effect(
    OutboxDeadLetters,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const { decide, discardAll, retryAll } = yield* DeadLetters.make({
        subject: "outbox event",
        subjectId: ({ eventId }: Key) => eventId,
        retry,
        discard,
        page: page(client)
      })
      // Postgres writes a UUID in small letters, and ids are compared as text here.
      const keyOf = (eventId: string) => ({ eventId: eventId.toLowerCase() })
      return OutboxDeadLetters.of({
        retry: Effect.fn("OutboxDeadLetters.retry")((eventId, operator) =>
          decide("retry", keyOf(eventId), operator, retry)
        ),
        retryAll: Effect.fn("OutboxDeadLetters.retryAll")(retryAll),
        discardAll: Effect.fn("OutboxDeadLetters.discardAll")(discardAll),
        preview: Effect.fn("OutboxDeadLetters.preview")(
          (filter) =>
            preview(
              client,
              client`SELECT event_id::text AS id, last_error FROM outbox_dead_letters WHERE ${conditions(client, filter)}`
            ),
          Effect.orDie
        ),
        discard: Effect.fn("OutboxDeadLetters.discard")((eventId, operator) =>
          decide("discard", keyOf(eventId), operator, discard)
        )
      })
    })
  )
}
