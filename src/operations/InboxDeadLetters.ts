/** An operator's decisions about events that a consumer could not apply: retry, discard, skip a gap, redrive many. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import * as HeldRows from "../inbox/holds/HeldRows.ts"
import { announce } from "../inbox/holds/HoldWakeup.ts"
import * as Rows from "../platform/Rows.ts"
import { Transaction } from "../platform/Transaction.ts"
import type { Wakeups } from "../platform/Wakeups.ts"
import * as DeadLetters from "./DeadLetters.ts"
import { type EventFilter, failedSo, inLast, matching, type Preview, preview } from "./reports/ReportSql.ts"

/** Which dead letters; a field that is not set matches all. */
export interface Filter extends EventFilter {
  readonly consumer?: string | undefined
}

interface Key {
  readonly consumer: string
  readonly eventId: string
}

/** An event after a decision. */
export const Handled = Schema.Struct({
  consumer: Schema.String,
  eventId: Schema.String,
  status: Schema.Literals(["retrying", "applied", "discarded"]),
  /** False where it was in this state before. */
  changed: Schema.Boolean
})
export type Handled = typeof Handled.Type

type Decide = (
  consumer: string,
  eventId: string,
  operator: DeadLetters.Operator
) => Effect.Effect<Handled, DeadLetters.Refusal>

/** See {@link InboxDeadLetters}. */
export interface InboxDeadLettersService {
  /**
   * Tries an event again. A dead letter goes back in front of its aggregate, under its own id and with a full budget of attempts.
   * An event that is being retried becomes due now.
   */
  readonly retry: Decide
  /** {@link retry} for all dead letters that match when it starts, the oldest first, a bounded number in each transaction. */
  readonly retryAll: (filter: Filter, operator: DeadLetters.Operator) => Effect.Effect<DeadLetters.Redriven>
  /** {@link discard} for all dead letters that match when it starts. */
  readonly discardAll: (filter: Filter, operator: DeadLetters.Operator) => Effect.Effect<DeadLetters.Discarded>
  /** What {@link retryAll} and {@link discardAll} would take up now. Its examples name the consumer and the event. Changes nothing. */
  readonly preview: (filter: Filter) => Effect.Effect<Preview>
  /** Gives an event up for this consumer: the rest of its aggregate goes on. It stays visible as discarded. */
  readonly discard: Decide
  /** Goes on with an event that waits for earlier versions, without them. Should they still come, they are not applied. */
  readonly skip: Decide
}

const firstAggregate = Rows.first(Schema.Struct({ aggregateId: Schema.String }))

const firstRow = Rows.first(
  Schema.Struct({
    status: Schema.Literals(["dead", "discarded", "parked"]),
    /** Null: the record can't be read. */
    version: Schema.NullOr(Schema.Int),
    type: Schema.NullOr(Schema.String)
  })
)

const firstVersion = Rows.first(Schema.Struct({ version: Schema.Int }))

const deadRows = Rows.all(Schema.Struct({ consumer: Schema.String, eventId: Schema.String, endedAt: Schema.String }))

const notPossible = (key: Key, reason: string) => new DeadLetters.NotPossible({ ...key, reason })

/** The hold of the event's aggregate, locked, and the event's row among the dead letters or behind the hold. */
const find = Effect.fnUntraced(function* ({ consumer, eventId }: Key) {
  const { sql } = yield* Transaction
  const aggregate = yield* firstAggregate(sql`
    SELECT aggregate_id AS "aggregateId" FROM inbox_dead_letters WHERE consumer_name = ${consumer} AND event_id = ${eventId}
    UNION ALL
    SELECT aggregate_id FROM inbox_parked WHERE consumer_name = ${consumer} AND event_id = ${eventId} LIMIT 1`)
  if (aggregate === undefined) return undefined
  const held = { consumer, aggregateId: aggregate.aggregateId }
  // The hold is locked before any other row, as in every transaction that changes one.
  const hold = yield* HeldRows.lockHold(held, "exclusive")
  const row = yield* firstRow(sql`
    SELECT status, aggregate_version AS version, aggregate_type AS type FROM inbox_dead_letters
    WHERE consumer_name = ${consumer} AND event_id = ${eventId}
    UNION ALL
    SELECT 'parked', aggregate_version, aggregate_type FROM inbox_parked
    WHERE consumer_name = ${consumer} AND event_id = ${eventId}`)
  return row === undefined ? undefined : { held, hold, row, isHead: hold?.eventId === eventId }
})

/** {@link find}, or that the event is applied. */
const known = Effect.fnUntraced(function* (key: Key) {
  const found = yield* find(key)
  if (found !== undefined) return found
  const { sql } = yield* Transaction
  const applied = yield* sql`
    SELECT 1 AS one FROM processed_events
    WHERE consumer_name = ${key.consumer} AND event_id::text = ${key.eventId} LIMIT 1`
  return applied.length > 0 ? ("applied" as const) : yield* new DeadLetters.EventUnknown(key)
})

type Found = Exclude<Effect.Success<ReturnType<typeof known>>, "applied">

/** The hold whose head the event is, where the head is dead or being retried. An event that waits is refused, with its reason. */
const headOf = (key: Key, { hold, isHead }: Found) => {
  if (isHead && hold !== undefined && hold.status !== "gap") return Effect.succeed(hold)
  return Effect.fail(
    notPossible(
      key,
      isHead && hold !== undefined
        ? "waits for an earlier version of its aggregate that has not come: skip goes on without that"
        : `waits behind event ${hold?.eventId ?? "?"} of its aggregate: handle that one first`
    )
  )
}

/** The consumer's cursor, locked, as it is about to move. */
const cursorOf = Effect.fnUntraced(function* ({ aggregateId, consumer }: HeldRows.Held, type: string) {
  const { sql } = yield* Transaction
  const cursor = yield* firstVersion(sql`
    SELECT version FROM consumer_cursors
    WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId} AND aggregate_type = ${type}
    FOR UPDATE`)
  return cursor?.version ?? 0
})

/** Moves the cursor forward to `version`, which then counts as done. */
const passOver = Effect.fnUntraced(function* ({ aggregateId, consumer }: HeldRows.Held, type: string, version: number) {
  const { sql } = yield* Transaction
  yield* sql`
    INSERT INTO consumer_cursors (consumer_name, aggregate_id, aggregate_type, version)
    VALUES (${consumer}, ${aggregateId}, ${type}, ${version}::int4)
    ON CONFLICT (consumer_name, aggregate_id, aggregate_type)
    DO UPDATE SET version = greatest(consumer_cursors.version, excluded.version)`
})

const retry = Effect.fnUntraced(function* (key: Key) {
  const found = yield* known(key)
  if (found === "applied") return { status: "applied" as const }
  const { held, row } = found
  if (row.status === "discarded") return yield* notPossible(key, "was discarded, which is final")
  const hold = yield* headOf(key, found)
  const isDead = row.status === "dead"
  if (!isDead && hold.isDue) return { status: "retrying" as const }
  const attempts = isDead ? 0 : hold.attempts
  if (isDead) yield* HeldRows.unbury(key.consumer, key.eventId)
  yield* HeldRows.setDue(held, { attempts, waitMillis: 0 })
  const status = "retrying" as const
  const before = { status: hold.status, attempts: hold.attempts }
  return { status, change: { before, after: { status, attempts, due: "now" }, wake: announce(key.consumer) } }
})

const discard = Effect.fnUntraced(function* (key: Key) {
  const { consumer, eventId } = key
  const { sql } = yield* Transaction
  const found = yield* known(key)
  if (found === "applied") return yield* notPossible(key, "is applied: only one that could not be can be discarded")
  const { held, row } = found
  const status = "discarded" as const
  if (row.status === status) return { status }
  const hold = yield* headOf(key, found)
  const version = row.version ?? 0
  const cursor = yield* cursorOf(held, row.type ?? "")
  // One member of the consumer held the event while another one applied it. Only a retry finds that out, and removes the hold.
  if (row.version !== null && cursor >= version) {
    return yield* notPossible(key, "was applied meanwhile: retry takes it away")
  }
  // The event became the head a moment ago, and an earlier version may be missing: a discard would pass over that one unseen.
  if (row.status === "parked" && hold.attempts === 0 && version > cursor + 1) {
    return yield* notPossible(key, "has not been tried yet, or waits for an earlier version")
  }
  if (row.status === "dead") {
    yield* sql`
      UPDATE inbox_dead_letters SET status = 'discarded', ended_at = clock_now()
      WHERE consumer_name = ${consumer} AND event_id = ${eventId}`
  } else yield* HeldRows.bury(held, eventId, status)
  if (row.version !== null && row.type !== null) yield* passOver(held, row.type, row.version)
  // The event behind it is the next head. The consumer sees whether a version is missing in between.
  const [next] = yield* HeldRows.first(held, 1)
  if (next === undefined) yield* HeldRows.release(held)
  else yield* HeldRows.setDue(held, { eventId: next.id, attempts: 0, waitMillis: 0 })
  const { attempts } = hold
  return {
    status,
    change: { before: { status: hold.status, attempts }, after: { status, attempts }, wake: announce(consumer) }
  }
})

const skip = Effect.fnUntraced(function* (key: Key) {
  const found = yield* known(key)
  if (found === "applied") return { status: "applied" as const }
  const { held, hold, isHead, row } = found
  // It was skipped to a moment ago, or its attempt has begun: nothing is missing before it any more.
  if (isHead && hold?.status === "retrying" && row.version !== null && row.type !== null) {
    if (row.version <= (yield* cursorOf(held, row.type)) + 1) return { status: "retrying" as const }
  }
  if (!isHead || hold?.status !== "gap" || row.version === null || row.type === null) {
    return yield* notPossible(key, "does not wait for an earlier version: there is nothing to skip")
  }
  const passed = row.version - 1
  const before = { status: "gap", version: yield* cursorOf(held, row.type) }
  yield* passOver(held, row.type, passed)
  yield* HeldRows.setDue(held, { attempts: 0, waitMillis: 0 })
  const status = "retrying" as const
  return { status, change: { before, after: { status, version: passed }, wake: announce(key.consumer) } }
})

const conditions = (client: PgClient.PgClient, { aggregateId, cause, consumer, eventType, sinceSeconds }: Filter) =>
  client.and([
    client`status = 'dead'`,
    matching(client, { consumer_name: consumer, event_type: eventType, aggregate_id: aggregateId }),
    inLast(client, "parked_at", sinceSeconds),
    failedSo(client, "last_error", cause)
  ])

const page =
  (client: PgClient.PgClient) =>
  (filter: Filter, { after, limit, until }: DeadLetters.Range<Key>) =>
    deadRows(client`
      SELECT event_id AS "eventId", ended_at::text AS "endedAt", consumer_name AS consumer FROM inbox_dead_letters
      WHERE ${conditions(client, filter)} AND ended_at <= ${until}::timestamptz
        AND (ended_at, consumer_name, event_id)
          > (${after?.endedAt ?? "-infinity"}::timestamptz, ${after?.consumer ?? ""}, ${after?.eventId ?? ""})
      ORDER BY ended_at, consumer_name, event_id LIMIT ${limit}`)

/** Decisions about events that a consumer could not apply. */
export class InboxDeadLetters extends Context.Service<InboxDeadLetters, InboxDeadLettersService>()(
  "paid-once/operations/InboxDeadLetters"
) {
  static readonly layer: Layer.Layer<InboxDeadLetters, never, PgClient.PgClient | Wakeups> = Layer.effect(
    InboxDeadLetters,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const { decide, discardAll, retryAll } = yield* DeadLetters.make({
        subject: "inbox event",
        subjectId: ({ consumer, eventId }: Key) => `${consumer} ${eventId}`,
        retry,
        discard,
        page: page(client)
      })
      // Postgres writes a UUID in small letters, and ids are compared as text here. The name of an unreadable record is not a UUID.
      const keyOf = (consumer: string, eventId: string) => ({
        consumer,
        eventId: eventId.includes(":") ? eventId : eventId.toLowerCase()
      })
      return InboxDeadLetters.of({
        retry: Effect.fn("InboxDeadLetters.retry")((consumer, eventId, operator) =>
          decide("retry", keyOf(consumer, eventId), operator, retry)
        ),
        retryAll: Effect.fn("InboxDeadLetters.retryAll")(retryAll),
        discardAll: Effect.fn("InboxDeadLetters.discardAll")(discardAll),
        preview: Effect.fn("InboxDeadLetters.preview")(
          (filter) =>
            preview(
              client,
              client`SELECT consumer_name || ' ' || event_id AS id, last_error FROM inbox_dead_letters WHERE ${conditions(client, filter)}`
            ),
          Effect.orDie
        ),
        discard: Effect.fn("InboxDeadLetters.discard")((consumer, eventId, operator) =>
          decide("discard", keyOf(consumer, eventId), operator, discard)
        ),
        skip: Effect.fn("InboxDeadLetters.skip")((consumer, eventId, operator) =>
          decide("skip", keyOf(consumer, eventId), operator, skip)
        )
      })
    })
  )
}
