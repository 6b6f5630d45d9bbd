/**
 * Parking: an event that a consumer can't apply makes its own aggregate wait, for that consumer, and nothing else.
 *
 * A hold is a row per consumer and aggregate; its head is the event that can't be applied. From then on all that comes for the aggregate is
 * parked behind it, and what is parked has no row in `processed_events`. The consumer's place in the topic goes on: nothing waits in the
 * partition. ApplyHeld.ts applies what waits, in version order, and ends the hold.
 *
 * The races, one by one:
 *
 * - *Arrivals* have the hold's row FOR KEY SHARE while they park. Who ends the hold takes it FOR UPDATE, and so waits for them and sees what
 *   they have parked; an arrival that comes later finds no hold and the cursors as the hold's end left them.
 * - *Two members at the same record* (one of them has lost the partition and does not know): whatever they find, the hold, the parked row, the
 *   mark and the cursor are each made once. What one of them parks and the other applies is a duplicate when its turn comes.
 * - *One member buries what another one parks*: the tries of a hold don't wait for arrivals, so its head may become a dead letter while the same record
 *   is being parked once more. Who parks looks again before he goes on (Park.ts): no id is both among what waits and among the dead letters.
 * - *Retries in several processes* take a hold FOR NO KEY UPDATE SKIP LOCKED: one tries, the others pass by, arrivals go on parking.
 * - *Redrive, discard and skip* take it FOR UPDATE, as does a release.
 */
import { Context, Effect, Latch, Layer } from "effect"
import type { SqlError } from "effect/sql"
import * as Backoff from "../../platform/Backoff.ts"
import { toStorable } from "../../platform/StorableText.ts"
import { Transaction } from "../../platform/Transaction.ts"
import type { Arrival } from "../Arrival.ts"
import { overtaken } from "../Cursors.ts"
import { errorLength } from "../Failures.ts"
import type { Reason, Turn, Waiting } from "../SlicePlan.ts"
import { park, storedOf } from "./Park.ts"
import * as ParkedRows from "./ParkedRows.ts"

/** How long an event is tried whose handler fails. */
export const ParkingSettings = Context.Reference<{
  /** After failure n, n from 1, the next try waits random(0, base · 2ⁿ). */
  readonly retryBaseMillis: number
  /** Tries before an event is a dead letter, the first one included. */
  readonly maxAttempts: number
}>("paid-once/inbox/holds/ParkingSettings", {
  // Ten tries take some two minutes on average: a row that another service is about to write is there by then.
  defaultValue: () => ({ retryBaseMillis: Backoff.inboxHoldBaseMillis, maxAttempts: 10 })
})

/** What became of an event that failed. */
export type Refused = "retrying" | "dead"

/** Failures that a hold remembers. More than the attempts of most settings. */
const historyLimit = 20

/** See {@link Parking}. */
export interface ParkingService {
  /** The holds on these aggregates, locked against their end until the transaction is over. */
  readonly lock: (
    consumer: string,
    aggregateIds: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyMap<string, Waiting>, never, Transaction>
  /**
   * What is known of these records, which can't be read, by the ids that they have: whether they are dead letters or were discarded, and whether
   * the one that has the id is another record, from before the topic's places were given anew.
   */
  readonly known: (
    consumer: string,
    arrivals: ReadonlyArray<Arrival>
  ) => Effect.Effect<ReadonlyMap<string, { readonly isBuried: boolean; readonly isOther: boolean }>, never, Transaction>
  /** Holds the aggregate from this arrival on. */
  readonly hold: (
    consumer: string,
    turn: Turn,
    reason: Reason
  ) => Effect.Effect<Refused | "gap" | "parked", never, Transaction>
  /** Parks what comes for held aggregates; what is there already stays as it is. Returns how many are new. */
  readonly park: (consumer: string, turns: ReadonlyArray<Turn>) => Effect.Effect<number, never, Transaction>
  /** The missing events of these aggregates are there: what waits for them is due. */
  readonly wake: (consumer: string, aggregateIds: ReadonlyArray<string>) => Effect.Effect<void, never, Transaction>
  /** One more failure of the event that stands in front of its held aggregate. */
  readonly failed: (
    hold: ParkedRows.LockedHold,
    eventId: string,
    failure: { readonly error: string; readonly isFinal: boolean }
  ) => Effect.Effect<{ readonly outcome: Refused; readonly attempts: number }, never, Transaction>
  /** Opened when this process changed a hold of the consumer: due times are to be looked at again. */
  readonly changed: (consumer: string) => Latch.Latch
}

/** What an operator reads about an event that came too early. */
export const gapText = (missing: number): string => `version ${missing} of its aggregate has not come`

export class Parking extends Context.Service<Parking, ParkingService>()("paid-once/inbox/holds/Parking") {
  static readonly layer: Layer.Layer<Parking> = Layer.effect(
    Parking,
    Effect.gen(function* () {
      const { maxAttempts, retryBaseMillis } = yield* ParkingSettings
      const latches = new Map<string, Latch.Latch>()
      const changed = (consumer: string) => {
        const latch = latches.get(consumer) ?? Latch.makeUnsafe(false)
        latches.set(consumer, latch)
        return latch
      }
      const announce = (consumer: string) =>
        Effect.flatMap(Transaction, ({ afterCommit }) => afterCommit(Effect.asVoid(changed(consumer).open)))

      const lock: ParkingService["lock"] = Effect.fnUntraced(function* (consumer, aggregateIds) {
        const { sql } = yield* Transaction
        const rows = yield* sql<Waiting & { readonly id: string }>`
          SELECT h.aggregate_id AS id, h.status, coalesce((
                   SELECT max(p.position) FROM inbox_parked AS p
                   WHERE p.consumer_name = h.consumer_name AND p.aggregate_id = h.aggregate_id), 0) AS "lastPosition"
          FROM inbox_holds AS h
          WHERE h.consumer_name = ${consumer} AND h.aggregate_id = ANY (${[...aggregateIds]}::text[])
          ORDER BY h.aggregate_id FOR KEY SHARE OF h`
        return new Map(rows.map(({ id, ...waiting }) => [id, waiting]))
      }, Effect.orDie)

      const known: ParkingService["known"] = Effect.fnUntraced(function* (consumer, arrivals) {
        const { sql } = yield* Transaction
        const records = arrivals.map(({ eventId, record }) => ({ event_id: eventId, ...storedOf(record) }))
        const rows = yield* sql<{ readonly id: string; readonly isBuried: boolean; readonly isOther: boolean }>`
          SELECT came.event_id AS id, there.is_buried AS "isBuried",
                 -- Of a record that could not be stored as it is the key is not there.
                 there.record_value IS DISTINCT FROM decode(came.value, 'base64')
                   OR (there.record_key IS NOT NULL AND there.record_key IS DISTINCT FROM came.record_key) AS "isOther"
          FROM json_to_recordset(${JSON.stringify(records)}::text::json) AS came(event_id text, record_key text, value text)
          JOIN (
            SELECT consumer_name, event_id, record_key, record_value, true AS is_buried FROM inbox_dead_letters
            UNION ALL
            SELECT consumer_name, event_id, record_key, record_value, false FROM inbox_parked
          ) AS there ON there.consumer_name = ${consumer} AND there.event_id = came.event_id`
        return new Map(rows.map(({ id, ...one }) => [id, one]))
      }, Effect.orDie)

      const countFailure = Effect.fnUntraced(function* (
        hold: Pick<ParkedRows.LockedHold, "consumer" | "aggregateId" | "eventId" | "attempts">,
        eventId: string,
        failure: { readonly error: string; readonly isFinal: boolean }
      ): Effect.fn.Return<{ readonly outcome: Refused; readonly attempts: number }, SqlError.SqlError, Transaction> {
        const error = toStorable(failure.error.slice(0, errorLength))
        const attempts = (hold.eventId === eventId ? hold.attempts : 0) + 1
        yield* ParkedRows.countFailure(hold, { eventId, attempts, error, historyLimit })
        yield* announce(hold.consumer)
        if (failure.isFinal || attempts >= maxAttempts) {
          yield* ParkedRows.bury(hold, eventId, "dead")
          yield* ParkedRows.setWaiting(hold, { status: "dead", eventId, error })
          return { outcome: "dead", attempts }
        }
        const waitMillis = yield* Backoff.millisAfter(Backoff.hold(retryBaseMillis), attempts)
        yield* ParkedRows.setDue(hold, { waitMillis: Math.ceil(waitMillis) })
        return { outcome: "retrying", attempts }
      })

      const hold: ParkingService["hold"] = Effect.fnUntraced(function* (consumer, turn, reason) {
        const { arrival } = turn
        const held = { consumer, aggregateId: arrival.aggregateId }
        const made = yield* ParkedRows.makeHold(held, arrival, reason._tag === "Gap" ? "gap" : "retrying")
        if (!made) {
          // Somebody else was at the same record and was faster. What he holds may have ended by now.
          const waiting = yield* lock(consumer, [arrival.aggregateId])
          if (waiting.size === 0) return yield* overtaken(`${consumer}: a hold was made and ended meanwhile`)
        }
        const { ids, parked } = yield* park(consumer, [turn])
        const eventId = ids[0] ?? arrival.eventId
        if (!made) return "parked"
        // A hold without a head would never end.
        if (parked === 0) return yield* overtaken(`${consumer}: an event was given up meanwhile`)
        if (reason._tag === "Gap") {
          yield* ParkedRows.setWaiting(held, {
            status: "gap",
            eventId,
            error: gapText(reason.missing)
          })
          yield* announce(consumer)
          return "gap"
        }
        return (yield* countFailure({ ...held, eventId, attempts: 0 }, eventId, reason)).outcome
      }, Effect.orDie)

      const wake: ParkingService["wake"] = Effect.fnUntraced(function* (consumer, aggregateIds) {
        if (aggregateIds.length === 0) return
        const { sql } = yield* Transaction
        yield* sql`
          UPDATE inbox_holds SET status = 'retrying', next_attempt_at = clock_now()
          WHERE consumer_name = ${consumer} AND aggregate_id = ANY (${[...aggregateIds]}::text[]) AND status = 'gap'`
        yield* announce(consumer)
      }, Effect.orDie)

      return Parking.of({
        lock,
        known,
        hold,
        park: (consumer, turns) =>
          turns.length === 0
            ? Effect.succeed(0)
            : Effect.orDie(Effect.map(park(consumer, turns), ({ parked }) => parked)),
        wake,
        failed: (hold, eventId, failure) => Effect.orDie(countFailure(hold, eventId, failure)),
        changed
      })
    })
  )
}
