/**
 * A consumer as a scoped resource: acquiring its layer joins the group, releasing it ends the slice under way and leaves.
 */
import { Cause, Context, Effect, Exit, Layer, Metric } from "effect"
import { Broker, type BrokerUnavailable, type ConsumedRecord, type Slice, TopicSettings } from "../brokers/Broker.ts"
import * as InboxMetrics from "../operations/InboxMetrics.ts"
import { InboxReport } from "../operations/InboxReport.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Supervised from "../platform/Supervised.ts"
import type { Wakeups } from "../platform/Wakeups.ts"
import * as Database from "../postgres/Database.ts"
import * as CoalescedSlices from "../postgres/fast/CoalescedSlices.ts"
import { annotate, ApplySlice } from "./ApplySlice.ts"
import * as Arrival from "./Arrival.ts"
import { HandleSettings } from "./Handle.ts"
import { ApplyHeld } from "./holds/ApplyHeld.ts"
import * as HoldWakeup from "./holds/HoldWakeup.ts"
import { bind, type Subscriber } from "./Subscriber.ts"

/** How many records a consumer applies in one transaction. */
export const ConsumerSettings = Context.Reference<{ readonly sliceSize: number }>("paid-once/inbox/ConsumerSettings", {
  // Two hundred one-row effects are some ten milliseconds: the commit is shared, and a redone slice costs little.
  defaultValue: () => ({ sliceSize: 200 })
})

const failuresTotal = Metric.counter("inbox_slice_failures_total", {
  description: "Slices that failed and came again",
  incremental: true
})

/**
 * Connections that a process's consumers have for themselves: in one line with the requests a slice would wait as long as they do. As many as
 * a topic has partitions by default; more slices at once only queue in Postgres.
 */
export const consumerConnections = 8

/**
 * How Postgres is to plan on those connections, for handlers too. A slice's statements take arrays, for each of which it would plan anew, and
 * that costs more than running them. And a plan that was made while a table was small must not read all of it once it is large.
 */
export const consumerPlans: Readonly<Record<string, string>> = {
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off"
}

/** A transaction that is silent for so much longer than handlers may take has lost its process, not its handler. */
const silenceSlackMillis = 5_000

/**
 * The consumers' own connections: as the dispatcher's, they are not those that requests queue for. A process that freezes in the middle of a slice
 * loses its rows there when its handlers would have ended: its successors wait for them.
 */
export const consumerDatabase = Layer.unwrap(
  Effect.gen(function* () {
    const { timeoutMillis } = yield* HandleSettings
    const bounds = yield* Database.lockBounds(timeoutMillis + silenceSlackMillis)
    return Database.layerReserved("consumers", consumerConnections, { ...consumerPlans, ...bounds })
  })
)

/** The steps that a consumer needs around itself. */
export const steps = Layer.mergeAll(ApplySlice.layer, ApplyHeld.layer, InboxReport.layer)

/** The net under a signal that was lost, and under an event that came while its gap was written down. */
const heldPollMillis = 10_000

/** A hold that is due may be in another process's hands: it is not looked at without a pause. */
const heldPauseMillis = 10

/**
 * The longest wait before a consumer joins again. One that brokers have thrown out time after time must not keep its partitions waiting for half
 * a minute when they are well again; a join costs them little.
 */
const rejoinCapMillis = 10_000

/** How often a consumer shows that none of its slices hangs. */
const stampMillis = 5_000

/** Consumes the subscriber's topic for as long as the layer lives, supervised: whatever ends it, it joins again. */
export const layer = <R = never>(
  given: Subscriber<R>
): Layer.Layer<never, never, Broker | ApplySlice | ApplyHeld | InboxReport | Wakeups | Supervised.Fibers | R> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const subscriber = bind(given, yield* Effect.context<R>())
      const broker = yield* Broker
      const apply = yield* ApplySlice
      const held = yield* ApplyHeld
      const { sliceSize } = yield* ConsumerSettings
      const { partitions } = yield* TopicSettings
      const fibers = yield* Supervised.Fibers
      const name = `consumer ${subscriber.name}`
      /** Since when each slice is being applied, by its partition. */
      const startedMillis = new Map<number, number>()
      /** The first record of each slice that is being applied, or failed and comes again. */
      const firstRecords = new Map<number, ConsumedRecord>()
      /** When a slice of a partition last failed that comes again, and how often in a row. */
      const failures = new Map<number, { readonly millis: number; readonly count: number }>()
      const failedTotal = Metric.withAttributes(failuresTotal, { consumer: subscriber.name })

      /** A slice that fails waits for its next try; whoever runs the service hears of it each time, and health is degraded. */
      const failed = (slice: Slice, cause: Cause.Cause<unknown>) =>
        Effect.gen(function* () {
          const count = (failures.get(slice.partition)?.count ?? 0) + 1
          failures.set(slice.partition, { millis: yield* Monotonic.millis, count })
          yield* Metric.update(failedTotal, 1)
          yield* fibers.update(name, (state) => ({
            ...state,
            status: "restarting",
            lastError: String(Cause.squash(cause))
          }))
          // Which one it was nobody knows, or it would be held: the line names the first.
          const { length, 0: first } = slice.records
          yield* Effect.logWarning(
            `${subscriber.name} could not apply a slice of ${length} records, which comes again`,
            cause
          ).pipe(annotate(subscriber, Arrival.make(slice.topic, slice.partition, first), count))
        })

      const consume = (applyGathered: (slice: Slice) => Effect.Effect<void, BrokerUnavailable>) =>
        broker.consume({ group: subscriber.name, topic: subscriber.topic, sliceSize }, (slice) =>
          Effect.acquireUseRelease(
            Effect.map(Monotonic.millis, (now) => {
              startedMillis.set(slice.partition, now)
              firstRecords.set(slice.partition, slice.records[0])
            }),
            () => applyGathered(slice),
            (_, exit) =>
              Effect.sync(() => {
                startedMillis.delete(slice.partition)
                if (Exit.isSuccess(exit)) failures.delete(slice.partition)
                // Cut off, it goes to another member, or comes again: its age is not ours to tell any more.
                if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) firstRecords.delete(slice.partition)
              })
          ).pipe(Effect.tapCause((cause) => (Cause.hasInterruptsOnly(cause) ? Effect.void : failed(slice, cause))))
        )

      /**
       * Stamps progress unless a slice hangs or keeps failing: an idle consumer is healthy, and one that never ends its slice is
       * not. A failure that is older than any wait between two tries belongs to a partition that has gone to another member.
       */
      const watch = (stamp: Effect.Effect<void>) =>
        Effect.flatMap(Monotonic.millis, (now) => {
          const isRecent = (millis: number) => now - millis < Supervised.stuckAfterMillis
          failures.forEach(({ millis }, partition) => {
            if (isRecent(millis)) return
            failures.delete(partition)
            if (!startedMillis.has(partition)) firstRecords.delete(partition)
          })
          return [...startedMillis.values()].every(isRecent) &&
            ![...failures.values()].some(({ millis }) => isRecent(millis))
            ? stamp
            : Effect.void
        }).pipe(Effect.andThen(Effect.sleep(stampMillis)), Effect.forever)

      yield* Supervised.forkLoop(
        name,
        (stamp) =>
          Effect.andThen(
            // A consumer may be the first to come: the topic is there before its group is.
            broker.ensureTopic(subscriber.topic, partitions),
            Effect.scoped(
              // Outlives the consuming: slices under way end before it does.
              Effect.flatMap(
                CoalescedSlices.make({
                  apply: (slices) => apply.run(subscriber, ...slices),
                  maxRecords: sliceSize,
                  sideBySide: consumerConnections
                }),
                (applyGathered) => Effect.raceFirst(consume(applyGathered), watch(stamp))
              )
            )
          ),
        { restartCapMillis: rejoinCapMillis }
      )

      yield* InboxMetrics.forkSampler(subscriber, () => firstRecords.values())

      const changed = held.changed(subscriber.name)
      yield* HoldWakeup.onWake(subscriber.name, Effect.asVoid(changed.open))
      yield* Supervised.forkLoop(`${name} held`, (stamp) =>
        Effect.gen(function* () {
          // Closed before the look: what changes during it is looked at once more.
          yield* changed.close
          yield* held.sweepGaps(subscriber.name)
          yield* held.retryHeld(subscriber)
          const dueMillis = yield* held.nextDueMillis(subscriber.name)
          const waitMillis = Math.min(heldPollMillis, Math.max(heldPauseMillis, Math.ceil(dueMillis ?? heldPollMillis)))
          yield* changed.await.pipe(Effect.timeoutOption(waitMillis), Effect.andThen(stamp))
        })
      )
    })
  )
