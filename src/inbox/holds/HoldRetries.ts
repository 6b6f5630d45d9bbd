/**
 * Tries the consumers' holds again when their times have come. Attempts run beside the reading of the partitions, so they delay nothing but
 * their own aggregates.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Exit, type Latch, Layer, Schema, type Scope, Semaphore } from "effect"
import * as Backoff from "../../platform/Backoff.ts"
import * as Rows from "../../platform/Rows.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { Transaction } from "../../platform/Transaction.ts"
import type { Wakeups } from "../../platform/Wakeups.ts"
import type { Cursors } from "../Cursors.ts"
import { judge } from "../Failures.ts"
import type { Inbox } from "../Inbox.ts"
import type { Subscriber } from "../Subscriber.ts"
import * as HeldRows from "./HeldRows.ts"
import * as HoldWakeup from "./HoldWakeup.ts"
import { ParkedHolds } from "./ParkedHolds.ts"
import * as RetryHold from "./RetryHold.ts"
import * as RetryRound from "./RetryRound.ts"

/** Attempts of all consumers of a process side by side: they take connections of the pool, and slices must have some left. */
const processLimit = 6

/** The longest wait between two rounds, for a wake-up that was lost and an event that came while its gap was written down. */
const pollMillis = 10_000

/** The shortest wait between two rounds: another process may be at the hold that is due. */
const pauseMillis = 10

const dueHold = Rows.first(Schema.Struct({ aggregateId: Schema.String }))
const earliestDue = Rows.one(Schema.Struct({ waitMillis: Schema.NullOr(Schema.Number) }))

export class HoldRetries extends Context.Service<
  HoldRetries,
  {
    /** Runs one round: tries the consumer's due holds, some side by side, for a bounded time. Returns how many it tried. */
    readonly retryHeld: (subscriber: Subscriber) => Effect.Effect<number>
    /** Milliseconds until the consumer's next hold is due, 0 or less where one is due; undefined where none has a due time. */
    readonly nextDueMillis: (consumer: string) => Effect.Effect<number | undefined>
    /** Makes gaps due whose missing events have come. `ParkedHolds.wake` does so at once; this finds what it missed. */
    readonly sweepGaps: (consumer: string) => Effect.Effect<void>
    /** Opens when this process has changed a hold of the consumer. */
    readonly changed: (consumer: string) => Latch.Latch
  }
>()("paid-once/inbox/holds/HoldRetries") {
  static readonly layerNoDeps: Layer.Layer<HoldRetries, never, Inbox | Cursors | ParkedHolds | PgClient.PgClient> =
    Layer.effect(
      HoldRetries,
      Effect.gen(function* () {
        const client = yield* PgClient.PgClient
        const retry = yield* RetryHold.make
        const { changed } = yield* ParkedHolds
        /** How often in a row a hold could not be tried, by consumer and aggregate. */
        const transients = new Map<string, number>()
        const nameOf = ({ aggregateId, consumer }: HeldRows.Held) => `${consumer} ${aggregateId}`
        const attempts = yield* Semaphore.make(processLimit)

        /** Waits with the hold, and counts no attempt of its head. */
        const postpone = Effect.fnUntraced(function* (held: HeldRows.Held) {
          const failures = transients.get(nameOf(held)) ?? 0
          transients.set(nameOf(held), failures + 1)
          const waitMillis = yield* Backoff.millisAfter(Backoff.inboxTransient, failures + 1)
          yield* Transaction.run(
            Effect.gen(function* () {
              const hold = yield* HeldRows.lockHold(held, "attempt")
              if (hold?.isDue === true) yield* HeldRows.setDue(held, { waitMillis: Math.ceil(waitMillis) })
            })
          ).pipe(Effect.provideService(PgClient.PgClient, client))
        })

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
            `${name} could not try the parked events of ${aggregateId}, and tries them again`,
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

        /** A due hold of the consumer. Heads that have never failed come first: the event that they waited for is there now. */
        const takeDue = (consumer: string, taken: ReadonlySet<string>, onlyFresh: boolean) =>
          Effect.map(
            dueHold(client`
              SELECT aggregate_id AS "aggregateId" FROM inbox_holds
              WHERE consumer_name = ${consumer} AND next_attempt_at <= (SELECT clock_now())
                AND aggregate_id <> ALL (${[...taken]}::text[]) AND (attempts = 0 OR NOT ${onlyFresh}::bool)
              ORDER BY attempts > 0, next_attempt_at LIMIT 1`),
            (due) => due?.aggregateId
          )

        const retryHeld = Effect.fn("HoldRetries.retryHeld")(
          (subscriber: Subscriber) =>
            RetryRound.run({
              take: (taken, onlyFresh) => takeDue(subscriber.name, taken, onlyFresh),
              attempt: (aggregateId) => attempts.withPermit(attempt(subscriber, aggregateId))
            }),
          Effect.orDie
        )

        const nextDueMillis = Effect.fnUntraced(function* (consumer: string) {
          const { waitMillis } = yield* earliestDue(client`
            SELECT (extract(epoch FROM min(next_attempt_at) - clock_now()) * 1000)::float8 AS "waitMillis"
            FROM inbox_holds WHERE consumer_name = ${consumer} AND next_attempt_at IS NOT NULL`)
          return waitMillis ?? undefined
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

        return HoldRetries.of({ retryHeld, nextDueMillis, sweepGaps, changed })
      })
    )
}

/** Tries the consumer's holds for as long as the scope lives: at their due times, after a change or a wake-up, and at a slow poll. */
export const forkLoop = Effect.fnUntraced(function* (
  subscriber: Subscriber
): Effect.fn.Return<void, never, HoldRetries | Wakeups | Supervised.Fibers | Scope.Scope> {
  const { name } = subscriber
  const retries = yield* HoldRetries
  const changed = retries.changed(name)
  yield* HoldWakeup.onWake(name, () => void changed.openUnsafe())
  yield* Supervised.forkLoop(`consumer ${name} held`, (stamp) =>
    Effect.gen(function* () {
      // Closed first: a change during the round causes one more.
      yield* changed.close
      yield* retries.sweepGaps(name)
      yield* retries.retryHeld(subscriber)
      const dueMillis = (yield* retries.nextDueMillis(name)) ?? pollMillis
      const waitMillis = Math.min(pollMillis, Math.max(pauseMillis, Math.ceil(dueMillis)))
      yield* changed.await.pipe(Effect.timeoutOption(waitMillis), Effect.andThen(stamp))
    })
  )
})
