/**
 * Applies a slice: the records of one partition that a broker hands over at once. Each event has its effect once, in version order of its
 * aggregate.
 *
 * 1. Begin a transaction.
 * 2. Read where the consumer is with each aggregate: its cursors and its holds.
 * 3. Plan (SlicePlan.ts): which events are next, which are duplicates, which have to wait.
 * 4. Park the events that have to wait.
 * 5. Mark the next events as applied, and run their handlers.
 * 6. Move the cursors, and commit.
 * 7. Only then commit the slice's offset.
 *
 * A crash before the commit leaves nothing. A crash between the commit and the offset brings the slice again, and every event in it is found
 * applied or parked. If a handler fails, the transaction is rolled back, and holds/Holds.ts decides what becomes of the event.
 */
import { PgClient } from "@effect/sql-pg"
import { type Array, Cause, Context, Effect, Layer } from "effect"
import type { BrokerUnavailable, Slice } from "../brokers/Broker.ts"
import { Faults } from "../platform/Faults.ts"
import { Transaction } from "../platform/Transaction.ts"
import * as Arrival from "./Arrival.ts"
import { aggregateKey, Cursors } from "./Cursors.ts"
import { FastPath } from "./FastPath.ts"
import * as Handle from "./Handle.ts"
import { type ApplyPart, gapText, Holds, type Part } from "./holds/Holds.ts"
import { Inbox } from "./Inbox.ts"
import * as InboxCounters from "./InboxCounters.ts"
import * as SlicePlan from "./SlicePlan.ts"
import type { Subscriber } from "./Subscriber.ts"

/** The result of a transaction, to be counted and logged after its commit. */
interface Done {
  readonly counts: InboxCounters.Counts
  readonly held: ReadonlyArray<{ readonly arrival: Arrival.Arrival; readonly outcome: string; readonly text: string }>
}

export class ApplySlice extends Context.Service<
  ApplySlice,
  {
    /**
     * Applies the slice's new events, parks those that have to wait, and then commits the slice's offset.
     *
     * Fails, by a defect, where no event is to blame: the database or a dependency is unavailable. Without parking it also fails at an event that
     * can't be applied. Then the broker hands the slice over again.
     */
    readonly run: (subscriber: Subscriber, slice: Slice) => Effect.Effect<void, BrokerUnavailable>
    /**
     * Applies slices of several partitions in one transaction, and then commits their offsets. Fails, by a defect and with nothing applied,
     * at the first thing that is wrong with one of them; and at once while the consumer's events are applied one by one.
     */
    readonly runTogether: (
      subscriber: Subscriber,
      slices: Array.NonEmptyReadonlyArray<Slice>
    ) => Effect.Effect<void, BrokerUnavailable>
  }
>()("paid-once/inbox/ApplySlice") {
  static readonly layerNoDeps: Layer.Layer<ApplySlice, never, Inbox | Cursors | Holds | PgClient.PgClient> =
    Layer.effect(
      ApplySlice,
      Effect.gen(function* () {
        const inbox = yield* Inbox
        const cursors = yield* Cursors
        const holds = yield* Holds
        const fastPath = yield* FastPath
        const faults = yield* Faults
        const { timeoutMillis } = yield* Handle.HandleSettings
        const database = yield* PgClient.PgClient

        /** The cursors and holds of the arrivals' aggregates. Holds are locked before the cursors are read for good. */
        const locate = Effect.fnUntraced(function* (consumer: string, arrivals: ReadonlyArray<Arrival.Arrival>) {
          const aggregates = [
            ...new Map(arrivals.map(Arrival.aggregateOf).map((one) => [aggregateKey(one), one])).values()
          ]
          const found = yield* cursors.read(consumer, aggregates)
          const held = aggregates.filter((one) => found.get(aggregateKey(one))?.isHeld === true)
          if (held.length === 0) return { cursors: found, holds: new Map() }
          const locked = yield* holds.lock(consumer, [...new Set(held.map(({ aggregateId }) => aggregateId))])
          return { cursors: yield* cursors.read(consumer, aggregates), holds: locked }
        })

        /** Plans the slice. A version that an operator discarded at the outbox leaves no gap: no event waits for it. */
        const decide = Effect.fnUntraced(function* (
          { firstSight }: Subscriber,
          arrivals: ReadonlyArray<Arrival.Arrival>,
          known: Omit<SlicePlan.Known, "givenUp">
        ) {
          const givenUp = new Set<string>()
          while (true) {
            const plan = SlicePlan.make(firstSight, arrivals, { ...known, givenUp })
            const before = givenUp.size
            for (const { arrival, position, reason } of plan.holds) {
              if (reason._tag !== "Gap") continue
              const aggregate = Arrival.aggregateOf(arrival)
              if (yield* cursors.givenUp(arrival.topic, aggregate, reason.missing - 1, position)) {
                givenUp.add(SlicePlan.gapKey(arrival, reason.missing, position))
              }
            }
            if (givenUp.size === before) return plan
          }
        })

        /** Holds and parks the arrivals that have to wait. */
        const park = Effect.fnUntraced(function* (consumer: string, plan: SlicePlan.Plan) {
          const held: Array<Done["held"][number]> = []
          for (const { arrival, position, reason } of plan.holds) {
            const outcome = yield* holds.hold(consumer, { arrival, position }, reason)
            const text = reason._tag === "Failed" ? reason.error : gapText(reason.missing)
            held.push({ arrival, outcome, text })
          }
          const behind = yield* holds.park(consumer, plan.parked)
          yield* holds.wake(consumer, plan.completed)
          const dead = held.filter(({ outcome }) => outcome === "dead").length
          return { held, dead, parked: held.length - dead + behind }
        })

        /** Runs the handlers of the events in `first`, which were marked only now. Returns for how many. */
        const handle = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          events: ReadonlyArray<Arrival.ReadableArrival>,
          first: ReadonlySet<string>,
          running: Handle.Running
        ) {
          // An id is deleted when it is found: of two events with one id only the first is applied.
          const unseen = new Set(first)
          const fresh = events.filter(({ eventId }) => unseen.delete(eventId))
          yield* Handle.all(subscriber, fresh, running)
          return fresh.length
        })

        /** The rule: steps 2 to 6, in the surrounding transaction. */
        const settle = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          part: Part,
          running: Handle.Running
        ): Effect.fn.Return<Done, unknown, Transaction> {
          const consumer = subscriber.name
          const { arrivals, buried } = yield* holds.identify(consumer, part.arrivals)
          const known = yield* locate(consumer, arrivals)
          const plan = yield* decide(subscriber, arrivals, { ...known, buried, failures: part.failures })
          const { dead, held, parked } = yield* park(consumer, plan)
          const ids = plan.apply.map(({ eventId }) => eventId)
          const first = ids.length === 0 ? new Set<string>() : yield* inbox.markFirst(consumer, ids)
          const applied = yield* handle(subscriber, plan.apply, first, running)
          yield* cursors.advance(consumer, SlicePlan.movesOf(subscriber.firstSight, plan.apply, known.cursors))
          return { counts: { applied, parked, dead, duplicate: plan.duplicates.length + ids.length - applied }, held }
        })

        /** The same for a slice in which nothing is unusual, where the inbox has a fast path; else undefined. */
        const settleFast = Effect.fnUntraced(function* (
          subscriber: Subscriber,
          part: Part,
          running: Handle.Running
        ): Effect.fn.Return<Done | undefined, unknown, Transaction> {
          const marked = part.failures.size === 0 ? yield* fastPath(subscriber.name, part.arrivals) : undefined
          if (marked === undefined) return undefined
          const applied = yield* handle(subscriber, marked.events, marked.first, running)
          return { counts: { ...InboxCounters.none, applied, duplicate: part.arrivals.length - applied }, held: [] }
        })

        const settleAny = Effect.fnUntraced(function* (subscriber: Subscriber, part: Part, running: Handle.Running) {
          running.arrival = undefined
          const done = (yield* settleFast(subscriber, part, running)) ?? (yield* settle(subscriber, part, running))
          yield* faults.at("consumer.before-commit")
          return done
        })

        /** Counts and logs what a transaction did. */
        const report = (consumer: string, { counts, held }: Done) =>
          Effect.andThen(
            InboxCounters.count(consumer, counts),
            Effect.forEach(
              held,
              ({ arrival, outcome, text }) =>
                // A dead letter waits for a person.
                (outcome === "dead" ? Effect.logError : Effect.logWarning)(
                  `${consumer} holds an aggregate: its event is ${outcome === "gap" ? "too early" : outcome}: ${text}`
                ).pipe(Arrival.annotateLogs(consumer, arrival, outcome === "gap" ? 0 : 1)),
              { discard: true }
            )
          )

        const applyPart =
          (subscriber: Subscriber): ApplyPart =>
          (part, running) =>
            // A part of one event can't be divided: after a deadlock the same thing again is all that is left.
            Transaction.run(settleAny(subscriber, part, running), { retryDeadlocks: part.arrivals.length === 1 }).pipe(
              Effect.provideService(PgClient.PgClient, database),
              (transaction) => Handle.bounded(transaction, timeoutMillis),
              Effect.flatMap((done) => report(subscriber.name, done))
            )

        /** The database first, and then the offsets. */
        const thenCommitOffsets = Effect.fnUntraced(function* (
          slices: Array.NonEmptyReadonlyArray<Slice>,
          apply: (arrivals: ReadonlyArray<Arrival.Arrival>) => Effect.Effect<void, unknown>
        ) {
          const arrivals = slices.flatMap(({ partition, records, topic }) =>
            records.map((record) => Arrival.make(topic, partition, record))
          )
          yield* faults.at("consumer.after-decode")
          yield* Effect.catchCause(apply(arrivals), (cause) => Effect.failCause(asDefect(cause)))
          yield* faults.at("consumer.after-commit")
          for (const slice of slices) yield* slice.commit
          yield* faults.at("consumer.after-offset")
        })

        return ApplySlice.of({
          run: Effect.fn("ApplySlice.run")((subscriber: Subscriber, slice: Slice) =>
            thenCommitOffsets([slice], (arrivals) => holds.apply(subscriber.name, arrivals, applyPart(subscriber)))
          ),
          runTogether: Effect.fn("ApplySlice.runTogether")((subscriber, slices) =>
            thenCommitOffsets(slices, (arrivals) =>
              holds.applyTogether(subscriber.name, arrivals, applyPart(subscriber))
            )
          )
        })
      })
    )

  static readonly layer: Layer.Layer<ApplySlice, never, Inbox | Holds | PgClient.PgClient> = Layer.provide(
    this.layerNoDeps,
    Cursors.layer
  )
}

/** No caller can act on a failure that is left: the broker hands the slice over again. */
const asDefect = (cause: Cause.Cause<unknown>): Cause.Cause<never> =>
  Cause.fromReasons(
    cause.reasons.map((reason) => (reason._tag === "Fail" ? Cause.makeDieReason(reason.error) : reason))
  )
