/**
 * Parking: an event that the broker rejects makes its own aggregate wait, and no other.
 *
 * A hold is a row per aggregate; its head is the rejected event. Two rules keep the order in every race:
 *
 * 1. A fetch reads holds and queue in one snapshot. Events of a held aggregate are not sent from the queue.
 * 2. Parked rows have a hold (a foreign key), and the transaction that ends a hold returns them all to the queue. If a fetch sees no hold, the queue
 *    has all unpublished events of the aggregate, and the batch is a prefix.
 *
 * The races, one by one:
 *
 * - *Writers* don't know holds and append to the queue. A fetch that finds such rows parks them (`park`) and locks the hold's row
 *   FOR KEY SHARE. A later release waits for that lock and sees the parked rows. A release in progress has the row locked, so nothing is parked. A
 *   row that commits meanwhile has a larger `seq` than the parked ones.
 * - *A dispatcher that lost its lane and fetched before the hold* may still send the head and its successors, as one prefix. That duplicates, and its
 *   mark finds nothing in the queue. If its send is rejected, it finds the head gone, counts nothing, and sends no more of the aggregate.
 * - *Two dispatchers with the same head*: the first to commit decides. A rejection counts only if the hold still has the head and the attempts from
 *   which the send started. A success that finds the hold gone was a duplicate.
 * - *Redrive and discard* lock the same row first. A discarded event that is already being sent may still arrive: discarding only prevents new sends.
 *   A redrive of a skipped event parks its later ones. One that is acknowledged and not yet marked is sent once more.
 *
 * No transaction is open across a send.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Latch, Layer, Schema } from "effect"
import type { MessageRejected } from "../../brokers/Broker.ts"
import * as Backoff from "../../platform/Backoff.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { Lane } from "../Lane.ts"
import { type LaneView, type QueuedEvent, QueueSettings, type Receipt } from "../Queue.ts"
import { eventColumns } from "../EventRows.ts"
import * as HeldRows from "./HeldRows.ts"
import * as HoldRetries from "./HoldRetries.ts"
import { dueLimit, type HeldEvent, Holds, type HoldsService, type Refused } from "./Holds.ts"
import { logRefusal } from "./RefusalLog.ts"

/** How long a refused event is retried, and what happens to its aggregate after that. */
export const HoldSettings = Context.Reference<{
  /** After send n, n from 1, the next one waits random(0, base · 2ⁿ). */
  readonly retryBaseMillis: number
  /** Sends before an event is a dead letter, the first one included. */
  readonly maxAttempts: number
  /**
   * Topics whose aggregates continue without a dead event; the audit records each skip. The aggregates of other topics wait for an operator: for
   * money, a gap is worse than a delay.
   */
  readonly skipTopics: ReadonlyArray<string>
}>("paid-once/outbox/holds/HoldSettings", {
  // Ten attempts take half an hour at most: time to raise a limit that was lowered by mistake.
  defaultValue: () => ({ retryBaseMillis: Backoff.outboxHoldBaseMillis, maxAttempts: 10, skipTopics: [] })
})

const allNextDue = Rows.all(
  Schema.Struct({ lane: Lane, topic: Schema.String, isDue: Schema.Boolean, waitMillis: Schema.Finite })
)
const oneCounts = Rows.one(Schema.Struct({ parked: Schema.Int, dead: Schema.Int }))

/** Refusals that a hold remembers: more than the attempts of most settings, and a bound for retries that last weeks. */
const historyLimit = 20

/** The stored length of an error's text. Messages of brokers are shorter. */
const errorLength = 500

/** Counting stops here. */
export const countLimit = 100_000

/** Holds that park. */
export const layer: Layer.Layer<Holds, never, PgClient.PgClient> = Layer.effect(
  Holds,
  Effect.gen(function* () {
    const sql = yield* PgClient.PgClient
    const { archive } = yield* QueueSettings
    const { maxAttempts, retryBaseMillis, skipTopics } = yield* HoldSettings
    const changed = yield* Latch.make(false)
    const transaction = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
      Effect.provideService(Transaction.run(effect), PgClient.PgClient, sql)
    /** A transaction that changes due times. */
    const change = <A, E>(effect: Effect.Effect<A, E, Transaction>) => Effect.tap(transaction(effect), changed.open)

    const waitMillis = (attempts: number) =>
      Effect.map(Backoff.millisAfter(Backoff.hold(retryBaseMillis), attempts), Math.ceil)
    const textOf = (error: MessageRejected) => error.message.slice(0, errorLength)

    /** The head was refused `hold.attempts` times: tried again later, or dead. */
    const decide = Effect.fnUntraced(function* (hold: HeldRows.LockedHold) {
      const { sql } = yield* Transaction
      // Two events with one id, a writer's mistake, can't both be dead letters: the second is retried for ever, at long intervals.
      if (hold.attempts < maxAttempts || (yield* HeldRows.isBuried(hold.eventId))) {
        yield* sql`
            UPDATE outbox_holds SET next_attempt_at = clock_now() + ${yield* waitMillis(hold.attempts)}::float8 * interval '1 ms'
            WHERE aggregate_type = ${hold.aggregateType} AND aggregate_id = ${hold.aggregateId}`
        return "retrying" as const
      }
      yield* HeldRows.buryHead(hold, "dead")
      if (!skipTopics.includes(hold.topic)) {
        yield* sql`
            UPDATE outbox_holds SET next_attempt_at = NULL
            WHERE aggregate_type = ${hold.aggregateType} AND aggregate_id = ${hold.aggregateId}`
        return "dead" as const
      }
      yield* HeldRows.release(hold)
      yield* OperatorAudit.record({
        actor: "dispatcher",
        action: "skip",
        reason: `refused ${hold.attempts} times, and ${hold.topic} may skip`,
        subject: "outbox event",
        subjectId: hold.eventId,
        before: { status: "retrying", attempts: hold.attempts },
        after: { status: "dead", attempts: hold.attempts }
      })
      return "skipped" as const
    })

    /** Counts a refusal of the head that `hold` has. */
    const count = Effect.fnUntraced(function* (hold: HeldRows.LockedHold, error: MessageRejected) {
      const { sql } = yield* Transaction
      const attempts = hold.attempts + 1
      yield* sql`
          UPDATE outbox_holds
          SET attempts = ${attempts}::int4, last_error = ${textOf(error)}::text,
              history = append_bounded(history, jsonb_build_object(
                'attempt', ${attempts}::int4,
                'at', to_char(clock_now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'error', ${textOf(error)}::text), ${historyLimit}::int4)
          WHERE aggregate_type = ${hold.aggregateType} AND aggregate_id = ${hold.aggregateId}`
      return yield* decide({ ...hold, attempts })
    })

    const hold = Effect.fn("Holds.hold")(function* (lane: Lane, event: QueuedEvent, error: MessageRejected) {
      const { aggregateId, aggregateType, eventId, seq, topic } = event
      return yield* change(
        Effect.gen(function* (): Effect.fn.Return<Refused, unknown, Transaction> {
          const { sql } = yield* Transaction
          // Locked against a late mark, and against another dispatcher with the same event.
          const head = yield* sql`
              SELECT 1 AS one FROM outbox_events
              WHERE lane = ${lane}::int2 AND seq = ${seq}::int8 AND event_id = ${eventId}::uuid FOR UPDATE`
          if (head.length === 0) return "gone"
          const made = yield* sql`
              INSERT INTO outbox_holds (aggregate_type, aggregate_id, lane, topic, event_id, seq, attempts, next_attempt_at, held_at)
              VALUES (${aggregateType}, ${aggregateId}, ${lane}::int2, ${topic}, ${eventId}::uuid, ${seq}::int8, 0, clock_now(), clock_now())
              ON CONFLICT DO NOTHING
              RETURNING 1 AS one`
          // The aggregate is held for an earlier event: this one waits its turn.
          if (made.length === 0) return "gone"
          // Under the hold no event returns to the queue. An event that returned just before it is in the topic already, but not marked: it is sent
          // first, and this event is refused again after it.
          const earlier = yield* sql`
              SELECT 1 AS one FROM outbox_events
              WHERE lane = ${lane}::int2 AND seq < ${seq}::int8
                AND aggregate_type = ${aggregateType} AND aggregate_id = ${aggregateId} LIMIT 1`
          if (earlier.length > 0) {
            yield* sql`DELETE FROM outbox_holds WHERE aggregate_type = ${aggregateType} AND aggregate_id = ${aggregateId}`
            return "gone"
          }
          yield* HeldRows.parkAggregate(event, lane)
          return yield* count(
            { aggregateType, aggregateId, lane, topic, eventId, seq, attempts: 0, dead: false },
            error
          )
        })
      ).pipe(Effect.tap((outcome) => logRefusal(event, 1, error, outcome)))
    }, Effect.orDie)

    const park = Effect.fn("Holds.park")(function* (lane: Lane, events: ReadonlyArray<QueuedEvent>) {
      return yield* transaction(
        HeldRows.parkArrivals(
          lane,
          events.map((event) => event.seq)
        )
      )
    }, Effect.orDie)

    const due = Effect.fnUntraced(function* (views: ReadonlyArray<LaneView>) {
      const paused = views.flatMap(({ lane, withoutTopics = [] }) => withoutTopics.map((topic) => ({ lane, topic })))
      // oxlint-disable-next-line paid-once/decoded-rows -- the same columns as the fetch, and as that one a part of each round
      const rows = yield* sql<HeldEvent & { readonly isFirst: boolean }>`
          SELECT * FROM (
            SELECT ${sql.literal(eventColumns("p"))}, h.attempts, h.next_attempt_at AS "nextAttemptAt",
                   row_number() OVER (PARTITION BY h.lane ORDER BY h.next_attempt_at, h.seq) AS turn,
                   NOT EXISTS (SELECT FROM outbox_parked AS q
                               WHERE q.aggregate_type = h.aggregate_type AND q.aggregate_id = h.aggregate_id AND q.seq < h.seq)
                     AS "isFirst"
            FROM outbox_holds AS h JOIN outbox_parked AS p ON p.lane = h.lane AND p.seq = h.seq
            WHERE h.lane = ANY (${views.map(({ lane }) => lane)}::int2[]) AND h.next_attempt_at <= (SELECT clock_now())
              AND (h.lane, h.topic) NOT IN (SELECT * FROM unnest(
                ${paused.map(({ lane }) => lane)}::int2[], ${paused.map(({ topic }) => topic)}::text[]))
          ) AS heads
          ORDER BY "isFirst" DESC, turn, "nextAttemptAt", seq LIMIT ${dueLimit}`
      const wrong = rows.filter((row) => !row.isFirst)
      // Rule 1 again. Only this aggregate stops.
      yield* Effect.forEach(
        wrong,
        ({ aggregateId, aggregateType, eventId, lane }) =>
          Effect.logError("a held aggregate is not tried again, for an event is parked in front of its head").pipe(
            Effect.annotateLogs({ lane, aggregate_type: aggregateType, aggregate_id: aggregateId, event_id: eventId })
          ),
        { discard: true }
      )
      return rows.filter((row) => row.isFirst)
    }, Effect.orDie)

    /** Locks the hold that the send of `event` started from; `undefined` if it has changed since. */
    const lockSame = (event: HeldEvent) =>
      Effect.map(HeldRows.lockHold(event), (hold) =>
        hold === undefined || hold.dead || hold.eventId !== event.eventId ? undefined : hold
      )

    const rejected = Effect.fn("Holds.rejected")(function* (event: HeldEvent, error: MessageRejected) {
      return yield* change(
        Effect.gen(function* (): Effect.fn.Return<Refused, unknown, Transaction> {
          const locked = yield* lockSame(event)
          return locked === undefined || locked.attempts !== event.attempts ? "gone" : yield* count(locked, error)
        })
      ).pipe(Effect.tap((outcome) => logRefusal(event, event.attempts + 1, error, outcome)))
    }, Effect.orDie)

    const published = Effect.fn("Holds.published")(function* (event: HeldEvent, receipt: Receipt) {
      return yield* change(
        Effect.gen(function* () {
          const locked = yield* lockSame(event)
          if (locked === undefined) return false
          yield* HeldRows.archiveHead(locked, receipt, archive)
          yield* HeldRows.release(locked)
          return true
        })
      )
    }, Effect.orDie)

    const nextDue: HoldsService["nextDue"] = Effect.fnUntraced(function* (lanes) {
      return yield* allNextDue(sql`
          SELECT lane, topic, wait <= 0 AS "isDue", wait AS "waitMillis"
          FROM (
            SELECT lane, topic, (extract(epoch FROM min(next_attempt_at) - clock_now()) * 1000)::float8 AS wait
            FROM outbox_holds WHERE lane = ANY (${[...lanes]}::int2[]) AND next_attempt_at IS NOT NULL
            GROUP BY lane, topic
          ) AS next`)
    }, Effect.orDie)

    const isDue: HoldsService["isDue"] = Effect.fnUntraced(function* ({
      aggregateId,
      aggregateType,
      attempts,
      eventId
    }) {
      const rows = yield* sql`
          SELECT 1 AS one FROM outbox_holds
          WHERE aggregate_type = ${aggregateType} AND aggregate_id = ${aggregateId} AND event_id = ${eventId}::uuid
            AND attempts = ${attempts}::int4 AND next_attempt_at IS NOT NULL`
      return rows.length > 0
    }, Effect.orDie)

    const counts = Effect.orDie(
      oneCounts(sql`
          SELECT (SELECT count(*) FROM (SELECT FROM outbox_parked LIMIT ${countLimit}) AS p)::int4 AS parked,
                 (SELECT count(*) FROM (SELECT FROM outbox_dead_letters WHERE status = 'dead' LIMIT ${countLimit}) AS d)::int4 AS dead`)
    )

    return Holds.of({
      hold,
      park,
      due,
      isDue,
      rejected,
      published,
      nextDue,
      counts,
      changed,
      watch: HoldRetries.make
    })
  })
)
