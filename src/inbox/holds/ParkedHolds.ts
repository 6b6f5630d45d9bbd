/**
 * The rules of holds that park, and their races.
 *
 * A hold is a row per consumer and aggregate. Its head is the event that can't be applied. From then on everything that comes for the aggregate is
 * parked behind the hold, and a parked event has no mark in `processed_events`. The consumer's offset moves on: nothing waits in the
 * partition. HoldRetries.ts applies what is parked, in version order, and ends the hold.
 *
 * The races:
 *
 * - *Arrivals* have the hold's row FOR KEY SHARE while they park. A transaction that ends the hold takes it FOR UPDATE: it waits for them and sees
 *   what they have parked. A later arrival finds no hold, and the cursors as the end of the hold left them.
 * - *Two members with the same record*: one of them has lost the partition and does not know it. The hold, the parked row, the mark and the
 *   cursor are each made once, whatever the two of them see. If one parks an event that the other one applies, the parked row turns out to be a
 *   duplicate.
 * - *One member moves an event to the dead letters while another one parks it.* Attempts don't wait for arrivals, so this can happen to a hold's
 *   head. The member that parks looks at the dead letters once more (ParkRecords.ts): no id is both parked and a dead letter.
 * - *Attempts in several processes* take a hold FOR NO KEY UPDATE SKIP LOCKED. One process tries, the others skip the hold, and arrivals go on
 *   parking.
 * - *Redrive, discard and skip* take it FOR UPDATE, as the end of a hold does.
 */
import { Context, Effect, Latch, Layer, Result, Schema } from "effect"
import type { SqlError } from "effect/sql"
import * as Backoff from "../../platform/Backoff.ts"
import * as Rows from "../../platform/Rows.ts"
import { toStorable } from "../../platform/StorableText.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { type Arrival, otherId } from "../Arrival.ts"
import { lostToConcurrent } from "../Cursors.ts"
import { errorLength } from "../Failures.ts"
import * as HeldRows from "./HeldRows.ts"
import { gapText, type HoldsService, type Refused } from "./Holds.ts"
import { park, storedOf } from "./ParkRecords.ts"

/** How often an event is tried whose handler fails. */
export const HoldSettings = Context.Reference<{
  /** After failure n, n from 1, the next attempt waits random(0, base · 2ⁿ). */
  readonly retryBaseMillis: number
  /** Attempts before an event is a dead letter, the first one included. */
  readonly maxAttempts: number
}>("paid-once/inbox/holds/HoldSettings", {
  // Ten attempts take some two minutes on average: a row that another service is about to write is there by then.
  defaultValue: () => ({ retryBaseMillis: Backoff.inboxHoldBaseMillis, maxAttempts: 10 })
})

/** Failures that a hold remembers. More than the attempts of most settings. */
const historyLimit = 20

/** See {@link ParkedHolds}. */
export interface ParkedHoldsService extends Pick<HoldsService, "lock" | "identify" | "hold" | "park" | "wake"> {
  /** Counts one more failure of the event that is first behind its hold. */
  readonly failed: (
    hold: HeldRows.LockedHold,
    eventId: string,
    failure: { readonly error: string; readonly isPermanent: boolean }
  ) => Effect.Effect<{ readonly outcome: Refused; readonly attempts: number }, never, Transaction>
  /** Opens when this process has changed a hold of the consumer: another due time may be the earliest. */
  readonly changed: (consumer: string) => Latch.Latch
}

const lockedRows = Rows.all(
  Schema.Struct({
    id: Schema.String,
    status: Schema.Literals(["retrying", "dead", "gap"]),
    lastPosition: Schema.Number
  })
)

const knownRows = Rows.all(Schema.Struct({ id: Schema.String, isBuried: Schema.Boolean, isOther: Schema.Boolean }))

/** Of these ids of records: whether each is buried, and whether it belongs to another record. Unknown ids are absent. */
const known = Effect.fnUntraced(function* (consumer: string, arrivals: ReadonlyArray<Arrival>) {
  const { sql } = yield* Transaction
  const records = arrivals.map(({ eventId, record }) => ({ event_id: eventId, ...storedOf(record) }))
  const rows = yield* knownRows(sql`
    SELECT came.event_id AS id, there.is_buried AS "isBuried",
           -- The key of a record that could not be stored as it is was not stored.
           there.record_value IS DISTINCT FROM decode(came.value, 'base64')
             OR (there.record_key IS NOT NULL AND there.record_key IS DISTINCT FROM came.record_key) AS "isOther"
    FROM json_to_recordset(${JSON.stringify(records)}::text::json) AS came(event_id text, record_key text, value text)
    JOIN (
      SELECT consumer_name, event_id, record_key, record_value, true AS is_buried FROM inbox_dead_letters
      UNION ALL
      SELECT consumer_name, event_id, record_key, record_value, false FROM inbox_parked
    ) AS there ON there.consumer_name = ${consumer} AND there.event_id = came.event_id`)
  return new Map(rows.map(({ id, ...row }) => [id, row]))
})

const identify: HoldsService["identify"] = Effect.fnUntraced(function* (consumer, arrivals) {
  const unreadable = arrivals.filter(({ read }) => Result.isFailure(read))
  if (unreadable.length === 0) return { arrivals, buried: new Set<string>() }
  const found = yield* known(consumer, unreadable)
  const renamed = unreadable
    .filter(({ eventId }) => found.get(eventId)?.isOther === true)
    .map((arrival) => ({ ...arrival, eventId: otherId(arrival) }))
  const byRecord = new Map(renamed.map((arrival) => [arrival.record, arrival]))
  const all = new Map([...found, ...(renamed.length === 0 ? [] : yield* known(consumer, renamed))])
  return {
    arrivals: arrivals.map((arrival) => byRecord.get(arrival.record) ?? arrival),
    buried: new Set([...all].filter(([, { isBuried }]) => isBuried).map(([id]) => id))
  }
}, Effect.orDie)

const lock: HoldsService["lock"] = Effect.fnUntraced(function* (consumer, aggregateIds) {
  const { sql } = yield* Transaction
  const rows = yield* lockedRows(sql`
    SELECT h.aggregate_id AS id, h.status, coalesce((
             SELECT max(p.position) FROM inbox_parked AS p
             WHERE p.consumer_name = h.consumer_name AND p.aggregate_id = h.aggregate_id), 0) AS "lastPosition"
    FROM inbox_holds AS h
    WHERE h.consumer_name = ${consumer} AND h.aggregate_id = ANY (${[...aggregateIds]}::text[])
    ORDER BY h.aggregate_id FOR KEY SHARE OF h`)
  return new Map(rows.map(({ id, ...hold }) => [id, hold]))
}, Effect.orDie)

export class ParkedHolds extends Context.Service<ParkedHolds, ParkedHoldsService>()(
  "paid-once/inbox/holds/ParkedHolds"
) {
  static readonly layer: Layer.Layer<ParkedHolds> = Layer.effect(
    ParkedHolds,
    Effect.gen(function* () {
      const { maxAttempts, retryBaseMillis } = yield* HoldSettings
      const latches = new Map<string, Latch.Latch>()
      const changed = (consumer: string) => {
        const latch = latches.get(consumer) ?? Latch.makeUnsafe(false)
        latches.set(consumer, latch)
        return latch
      }
      const announce = (consumer: string) =>
        Effect.flatMap(Transaction, ({ afterCommit }) => afterCommit(Effect.asVoid(changed(consumer).open)))

      const countFailure = Effect.fnUntraced(function* (
        hold: Pick<HeldRows.LockedHold, "consumer" | "aggregateId" | "eventId" | "attempts">,
        eventId: string,
        failure: { readonly error: string; readonly isPermanent: boolean }
      ): Effect.fn.Return<{ readonly outcome: Refused; readonly attempts: number }, SqlError.SqlError, Transaction> {
        const error = toStorable(failure.error.slice(0, errorLength))
        const attempts = (hold.eventId === eventId ? hold.attempts : 0) + 1
        yield* HeldRows.countFailure(hold, { eventId, attempts, error, historyLimit })
        yield* announce(hold.consumer)
        if (failure.isPermanent || attempts >= maxAttempts) {
          yield* HeldRows.bury(hold, eventId, "dead")
          yield* HeldRows.setWaiting(hold, { status: "dead", eventId, error })
          return { outcome: "dead", attempts }
        }
        const waitMillis = yield* Backoff.millisAfter(Backoff.hold(retryBaseMillis), attempts)
        yield* HeldRows.setDue(hold, { waitMillis: Math.ceil(waitMillis) })
        return { outcome: "retrying", attempts }
      })

      const hold: HoldsService["hold"] = Effect.fnUntraced(function* (consumer, head, reason) {
        const { arrival } = head
        const held = { consumer, aggregateId: arrival.aggregateId }
        const made = yield* HeldRows.makeHold(held, arrival, reason._tag === "Gap" ? "gap" : "retrying")
        if (!made) {
          // Another member has the same record and was faster. Its hold may have ended by now.
          const found = yield* lock(consumer, [arrival.aggregateId])
          if (found.size === 0) return yield* lostToConcurrent(`${consumer}: a hold was made and ended meanwhile`)
        }
        const { ids, parked } = yield* park(consumer, [head])
        const eventId = ids[0] ?? arrival.eventId
        if (!made) return "parked"
        // A hold without a head would never end.
        if (parked === 0) return yield* lostToConcurrent(`${consumer}: an event was given up meanwhile`)
        if (reason._tag === "Gap") {
          yield* HeldRows.setWaiting(held, { status: "gap", eventId, error: gapText(reason.missing) })
          yield* announce(consumer)
          return "gap"
        }
        return (yield* countFailure({ ...held, eventId, attempts: 0 }, eventId, reason)).outcome
      }, Effect.orDie)

      const wake: HoldsService["wake"] = Effect.fnUntraced(function* (consumer, aggregateIds) {
        if (aggregateIds.length === 0) return
        const { sql } = yield* Transaction
        yield* sql`
          UPDATE inbox_holds SET status = 'retrying', next_attempt_at = clock_now()
          WHERE consumer_name = ${consumer} AND aggregate_id = ANY (${[...aggregateIds]}::text[]) AND status = 'gap'`
        yield* announce(consumer)
      }, Effect.orDie)

      return ParkedHolds.of({
        lock,
        identify,
        hold,
        park: (consumer, arrivals) =>
          arrivals.length === 0
            ? Effect.succeed(0)
            : Effect.orDie(Effect.map(park(consumer, arrivals), ({ parked }) => parked)),
        wake,
        failed: (hold, eventId, failure) => Effect.orDie(countFailure(hold, eventId, failure)),
        changed
      })
    })
  )
}
