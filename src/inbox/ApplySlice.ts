/**
 * The step that makes an effect happen once: next of its aggregate? first time? → effect → commit, and only then the offset.
 *
 * The marks, the cursors and the effects of a slice commit in one transaction, and so does what has to wait. A crash before the commit leaves
 * nothing; a crash after it and before the offset brings the slice again, and every event in it is found applied or parked.
 *
 * A slice that fails is done again in parts: what came before the event that failed, that event alone, and the rest; where nobody knows which
 * one failed, in halves. The event that fails alone is to blame: it is parked, and with it what comes for its aggregate, and the partition goes
 * on. So one event costs a few transactions, and never one for each of its slice.
 *
 * Slices of several partitions that write the same rows, each in the order of its records, can wait for each other in a ring. Postgres ends one of
 * them after a second (deadlock_timeout); to apply it again as it was would mostly end in the next ring. Its events go one by one then, each with
 * no more rows than it needs.
 */
import { PgClient } from "@effect/sql-pg"
import { Cause, Context, Effect, Exit, Layer, Result } from "effect"
import type { BrokerUnavailable } from "../brokers/Broker.ts"
import { Faults } from "../platform/Faults.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import { isDeadlock, Transaction } from "../platform/Transaction.ts"
import type { Slices } from "../postgres/fast/CoalescedSlices.ts"
import { OneStatementClaim } from "../postgres/fast/OneStatementClaim.ts"
import * as Arrival from "./Arrival.ts"
import { Cursors, keyOf } from "./Cursors.ts"
import { causes, judge } from "./Failures.ts"
import * as Handle from "./Handle.ts"
import { gapText, Parking } from "./holds/Parking.ts"
import { Inbox } from "./Inbox.ts"
import * as InboxCounters from "./InboxCounters.ts"
import * as SliceParts from "./SliceParts.ts"
import * as SlicePlan from "./SlicePlan.ts"
import type { Subscriber } from "./Subscriber.ts"

/** What a transaction came to, to be told of after its commit. */
interface Done {
  readonly counts: InboxCounters.Counts
  readonly held: ReadonlyArray<{ readonly arrival: Arrival.Arrival; readonly outcome: string; readonly text: string }>
}

/** How long a consumer's events go one by one after a deadlock: a backlog's next slices would mostly end in the next one, a second each. */
const aloneMillis = 30_000

export class ApplySlice extends Context.Service<
  ApplySlice,
  {
    /**
     * Applies the slices' new events, parks those that have to wait, and commits the group's places behind them: in one transaction, where
     * nothing fails. Several slices are of different partitions, and fail together at the first thing that is wrong with one of them, or at once
     * where the consumer's events are applied one by one.
     *
     * Fails, by a defect, only where nothing is wrong with an event: the database or a dependency is away. Then they come again.
     */
    readonly run: (subscriber: Subscriber, ...slices: Slices) => Effect.Effect<void, BrokerUnavailable>
  }
>()("paid-once/inbox/ApplySlice") {
  static readonly layerNoDeps: Layer.Layer<ApplySlice, never, Inbox | Cursors | Parking | PgClient.PgClient> =
    Layer.effect(
      ApplySlice,
      Effect.gen(function* () {
        const inbox = yield* Inbox
        const cursors = yield* Cursors
        const parking = yield* Parking
        const claim = yield* OneStatementClaim
        const faults = yield* Faults
        const { timeoutMillis } = yield* Handle.HandleSettings
        const database = yield* PgClient.PgClient

        /** The arrivals under names that are theirs alone, and which of them were given up before. */
        const identify = Effect.fnUntraced(function* (consumer: string, arrivals: ReadonlyArray<Arrival.Arrival>) {
          const unreadable = arrivals.filter(({ read }) => Result.isFailure(read))
          if (unreadable.length === 0) return { arrivals, buried: new Set<string>() }
          const known = yield* parking.known(consumer, unreadable)
          const renamed = unreadable
            .filter(({ eventId }) => known.get(eventId)?.isOther === true)
            .map((arrival) => ({ ...arrival, eventId: Arrival.otherId(arrival) }))
          const named = new Map(renamed.map((arrival) => [arrival.record, arrival]))
          const all = new Map([...known, ...(renamed.length === 0 ? [] : yield* parking.known(consumer, renamed))])
          return {
            arrivals: arrivals.map((arrival) => named.get(arrival.record) ?? arrival),
            buried: new Set([...all].filter(([, { isBuried }]) => isBuried).map(([id]) => id))
          }
        })

        /** Where the consumer is with the arrivals' aggregates. Where one is held, its hold is locked before the cursors are looked at. */
        const know = Effect.fnUntraced(function* (consumer: string, arrivals: ReadonlyArray<Arrival.Arrival>) {
          const aggregates = [
            ...new Map(arrivals.map(SlicePlan.aggregateOf).map((aggregate) => [keyOf(aggregate), aggregate])).values()
          ]
          const places = yield* cursors.read(consumer, aggregates)
          const held = aggregates.filter((one) => places.get(keyOf(one))?.isHeld === true)
          if (held.length === 0) return { places, waiting: new Map() }
          const waiting = yield* parking.lock(consumer, [...new Set(held.map(({ aggregateId }) => aggregateId))])
          return { places: yield* cursors.read(consumer, aggregates), waiting }
        })

        /** The plan, in which nothing waits for an event that an operator gave up before it was sent. */
        const decide = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          arrivals: ReadonlyArray<Arrival.Arrival>,
          known: Omit<SlicePlan.Known, "givenUp">
        ) {
          const givenUp = new Set<string>()
          while (true) {
            const plan = SlicePlan.make(subscriber.firstSight, arrivals, { ...known, givenUp })
            let isNew = false
            for (const { arrival, position, reason } of plan.holds) {
              if (reason._tag !== "Gap") continue
              const aggregate = SlicePlan.aggregateOf(arrival)
              if (!(yield* cursors.givenUp(arrival.topic, aggregate, reason.missing - 1, position))) continue
              givenUp.add(SlicePlan.gapKey(arrival, reason.missing, position))
              isNew = true
            }
            if (!isNew) return plan
          }
        })

        /** Applies those of the events that were marked only now. Returns how many. */
        const handle = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          events: ReadonlyArray<Arrival.ReadableArrival>,
          first: ReadonlySet<string>,
          running: Handle.Running
        ) {
          // Deleted as it is found: of two events with one id only the first is applied.
          const unseen = new Set(first)
          const fresh = events.filter(({ eventId }) => unseen.delete(eventId))
          yield* Handle.all(subscriber, fresh, running)
          return fresh.length
        })

        /** All that becomes of these arrivals, in the surrounding transaction. */
        const settle = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          { arrivals, failures }: SliceParts.Part,
          running: Handle.Running
        ): Effect.fn.Return<Done, unknown, Transaction> {
          const consumer = subscriber.name
          running.arrival = undefined
          const usual = failures.size === 0 ? yield* claim(consumer, arrivals) : undefined
          if (usual !== undefined) {
            const applied = yield* handle(subscriber, usual.events, usual.first, running)
            yield* faults.at("consumer.before-commit")
            return { counts: { applied, parked: 0, dead: 0, duplicate: arrivals.length - applied }, held: [] }
          }
          const named = yield* identify(consumer, arrivals)
          const known = yield* know(consumer, named.arrivals)
          const {
            apply,
            completed,
            duplicates,
            holds,
            parked: waiting
          } = yield* decide(subscriber, named.arrivals, {
            ...known,
            buried: named.buried,
            failures
          })
          const held: Array<Done["held"][number]> = []
          let parked = 0
          let dead = 0
          for (const { arrival, position, reason } of holds) {
            const outcome = yield* parking.hold(consumer, { arrival, position }, reason)
            if (outcome === "dead") dead += 1
            else parked += 1
            held.push({
              arrival,
              outcome,
              text: reason._tag === "Failed" ? reason.error : gapText(reason.missing)
            })
          }
          parked += yield* parking.park(consumer, waiting)
          yield* parking.wake(consumer, completed)
          const first =
            apply.length === 0
              ? new Set<string>()
              : yield* inbox.markFirst(
                  consumer,
                  apply.map(({ eventId }) => eventId)
                )
          const applied = yield* handle(subscriber, apply, first, running)
          yield* cursors.advance(consumer, SlicePlan.movesOf(apply, known.places))
          yield* faults.at("consumer.before-commit")
          return {
            counts: { applied, parked, dead, duplicate: duplicates.length + apply.length - applied },
            held
          }
        })

        const transact = (
          subscriber: Subscriber,
          part: SliceParts.Part,
          running: Handle.Running = { arrival: undefined }
        ) =>
          Handle.bounded(
            Effect.provideService(
              // Events that stand alone can't be taken apart any more.
              Transaction.run(settle(subscriber, part, running), { retryDeadlocks: part.arrivals.length === 1 }),
              PgClient.PgClient,
              database
            ),
            timeoutMillis
          )

        /** Until when the events of a consumer are applied one by one, for its slices were in each other's way. */
        const aloneUntilMillis = new Map<string, number>()
        const deadlocked = (subscriber: Subscriber, cause: Cause.Cause<unknown>) =>
          Effect.flatMap(Monotonic.millis, (now) => {
            aloneUntilMillis.set(subscriber.name, now + aloneMillis)
            return Effect.logWarning(
              `${subscriber.name}: two slices waited for each other's rows, and its events are applied one by one for ${aloneMillis / 1_000} s. ` +
                `Rows that events of several aggregates write are to be taken in one order (Subscriber.handleMany)`,
              cause
            ).pipe(Effect.annotateLogs({ consumer: subscriber.name }))
          })

        /** Says what was held, after the commit. */
        const tell = (subscriber: Subscriber, { counts, held }: Done) =>
          Effect.andThen(
            InboxCounters.count(subscriber.name, counts),
            Effect.forEach(
              held,
              ({ arrival, outcome, text }) =>
                Effect.logWarning(
                  `${subscriber.name} holds an aggregate: its event is ${outcome === "gap" ? "too early" : outcome}: ${text}`
                ).pipe(annotate(subscriber, arrival, outcome === "gap" ? 0 : 1)),
              { discard: true }
            )
          )

        /** Holds what is left of an event that can't be held as it is: no record stops its partition. */
        const setAside = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          arrival: Arrival.Arrival,
          parking: SlicePlan.Failure,
          failure: SlicePlan.Failure
        ) {
          const error = `could not be parked as it is (${parking.error}): ${failure.error}`
          const [ofAggregate, alone] = Arrival.bare(arrival, error)
          const bare = yield* Effect.exit(transact(subscriber, SliceParts.whole([ofAggregate])))
          if (Exit.isSuccess(bare)) return bare.value
          if (judge(bare.cause)._tag !== "Failed") return yield* Effect.failCause(bare.cause)
          return yield* transact(subscriber, SliceParts.whole([alone]))
        })

        /** `isShared`: by several partitions, none of which is to wait while another one's culprit is looked for. */
        const apply = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          arrivals: ReadonlyArray<Arrival.Arrival>,
          isShared: boolean
        ): Effect.fn.Return<void, unknown> {
          const isApart = (yield* Monotonic.millis) < (aloneUntilMillis.get(subscriber.name) ?? 0)
          // One by one they are no transaction to share, and would only wait for one another.
          if (isApart && isShared) return yield* Effect.fail(new Error("its events are applied one by one for now"))
          const whole = SliceParts.whole(arrivals)
          /** What has still to be applied, the next part at the end; each shorter than the one that failed. */
          const parts = isApart ? SliceParts.alone(whole).toReversed() : [whole]
          for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
            const running: Handle.Running = { arrival: undefined }
            const exit = yield* Effect.exit(transact(subscriber, part, running))
            if (Exit.isSuccess(exit)) {
              yield* tell(subscriber, exit.value)
              continue
            }
            const isRing = part.arrivals.length > 1 && isOfRing(exit.cause)
            if (isRing) yield* deadlocked(subscriber, exit.cause)
            if (isRing && !isShared) {
              parts.push(...SliceParts.alone(part).toReversed())
              continue
            }
            const verdict = judge(exit.cause)
            if (isShared || verdict._tag !== "Failed") return yield* Effect.failCause(exit.cause)
            const [arrival] = part.arrivals
            const held = arrival === undefined ? undefined : part.failures.get(arrival.record)
            if (arrival !== undefined && held !== undefined && part.arrivals.length === 1) {
              yield* tell(subscriber, yield* setAside(subscriber, arrival, verdict, held))
              continue
            }
            yield* Effect.logDebug(`${subscriber.name}: a slice failed and is done again in parts`, exit.cause)
            parts.push(
              ...SliceParts.divide(part, running.arrival, { ...verdict, isTimeout: isTimeout(exit.cause) }).toReversed()
            )
          }
        })

        const run = Effect.fn("ApplySlice.run")(function* (subscriber: Subscriber, ...slices: Slices) {
          const arrivals = slices.flatMap(({ partition, records, topic }) =>
            records.map((record) => Arrival.make(topic, partition, record))
          )
          yield* faults.at("consumer.after-decode")
          yield* Effect.catchCause(apply(subscriber, arrivals, slices.length > 1), (cause) =>
            Effect.failCause(asDefect(cause))
          )
          yield* faults.at("consumer.after-commit")
          for (const slice of slices) yield* slice.commit
          yield* faults.at("consumer.after-offset")
        })

        return ApplySlice.of({ run })
      })
    )

  static readonly layer: Layer.Layer<ApplySlice, never, Inbox | PgClient.PgClient> = Layer.provide(this.layerNoDeps, [
    Cursors.layer,
    Parking.layer
  ])
}

/** A transaction of it was the one that Postgres ended of a ring, whatever a handler has made of that. */
const isOfRing = (cause: Cause.Cause<unknown>): boolean =>
  cause.reasons.some(
    (reason) =>
      (reason._tag === "Die" && causes(reason.defect).some(isDeadlock)) ||
      (reason._tag === "Fail" && causes(reason.error).some(isDeadlock))
  )

const isTimeout = (cause: Cause.Cause<unknown>): boolean =>
  cause.reasons.some((reason) => reason._tag === "Fail" && Cause.isTimeoutError(reason.error))

/** What a log line about an event carries. */
export const annotate = (subscriber: Subscriber, arrival: Arrival.Arrival, attempt: number) =>
  Effect.annotateLogs({
    consumer: subscriber.name,
    event_id: arrival.eventId,
    event_type: Result.isSuccess(arrival.read) ? arrival.read.success.eventType : "unreadable",
    aggregate_id: arrival.aggregateId,
    ...(Result.isSuccess(arrival.read) ? { trace_id: arrival.read.success.traceId } : {}),
    attempt,
    topic: arrival.topic,
    partition: arrival.partition,
    offset: String(arrival.record.offset)
  })

/** Whatever is left is nobody's to act on but the broker's, which brings the slice again. */
const asDefect = (cause: Cause.Cause<unknown>): Cause.Cause<never> =>
  Cause.fromReasons(
    cause.reasons.map((reason) => (reason._tag === "Fail" ? Cause.makeDieReason(reason.error) : reason))
  )
