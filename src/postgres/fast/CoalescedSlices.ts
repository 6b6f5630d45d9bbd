/**
 * Coalesces slices of several partitions into one transaction. A slice is a partition's next records, in offset order.
 *
 * At some hundred events a second a slice has one or two events, so its transaction is most of its cost. Slices that arrive during a transaction
 * therefore wait for its end and share the next one. The higher the load, the more slices share a transaction.
 *
 * Partitions stay independent:
 *
 * - A full slice waits for no other slice.
 * - Slices stop waiting for a transaction that takes long.
 * - If a common transaction fails, its slices are applied again one by one, concurrently.
 * - A partition whose slice failed or took long is applied alone, until one of its slices was quick.
 */
import { Array, Deferred, Effect, Exit, Fiber, FiberSet, Latch, Layer, Scope, Semaphore } from "effect"
import type { BrokerUnavailable, Slice } from "../../brokers/Broker.ts"
import { ApplySlice } from "../../inbox/ApplySlice.ts"
import { ConsumerSettings } from "../../inbox/Consumer.ts"
import type { Subscriber } from "../../inbox/Subscriber.ts"
import * as Monotonic from "../../platform/Monotonic.ts"

/** Longer than almost every transaction. If one takes longer, it may hang, and waiting slices start beside it. */
const besideMillis = 10

/** The time limit of a common transaction. After it each slice is applied alone, with the whole time limit of its handlers. */
const togetherMillis = 2_000

/** A slice that takes longer alone would delay others: the next slices of its partition are applied alone. */
const slowMillis = 1_000

interface Entry<E> {
  readonly slice: Slice
  readonly done: Deferred.Deferred<void, E>
  /** The partition was lost: the caller waits only for the end of its transaction. */
  isAbandoned: boolean
  /** Interrupts the slice's transaction, unless other slices share it. */
  cutOff: Effect.Effect<void>
}

/**
 * Returns a function that applies a slice, alone or with others, and returns the result of its transaction. If the caller is interrupted, a
 * transaction of its own is rolled back, and a shared one is waited for.
 *
 * `apply` of several slices must fail at the first fault in one of them. It runs in a fiber of the surrounding scope.
 */
export const make = Effect.fnUntraced(function* <E>(options: {
  readonly apply: (slices: Array.NonEmptyReadonlyArray<Slice>) => Effect.Effect<void, E>
  /** The most records in one transaction. No slice has more. */
  readonly maxRecords: number
  /** The most concurrent transactions. */
  readonly sideBySide: number
}) {
  const { apply, maxRecords } = options
  const waiting: Array<Entry<E>> = []
  const arrived = Latch.makeUnsafe(false)
  const idle = Latch.makeUnsafe(true)
  const permits = Semaphore.makeUnsafe(options.sideBySide)
  const fibers = yield* FiberSet.make<void>()
  /** Partitions whose last slice failed, or took long. */
  const apart = new Set<number>()
  let running = 0

  const settle = ({ done }: Entry<E>, exit: Exit.Exit<void, E>) => Deferred.doneUnsafe(done, exit)

  /** Runs `effect` for the entries. It is interrupted once all of them are abandoned. */
  const run = Effect.fnUntraced(function* <A, E1>(
    entries: ReadonlyArray<Entry<E>>,
    effect: Effect.Effect<A, E1>
  ): Effect.fn.Return<Exit.Exit<A, E1>> {
    const fiber = yield* Effect.forkChild(effect)
    const cutOff = Effect.suspend(() =>
      entries.every(({ isAbandoned }) => isAbandoned) ? Fiber.interrupt(fiber) : Effect.void
    )
    for (const entry of entries) entry.cutOff = cutOff
    // All entries may have been abandoned before the fiber existed.
    yield* cutOff
    return yield* Fiber.await(fiber)
  })

  const alone = Effect.fnUntraced(function* (entry: Entry<E>) {
    const began = yield* Monotonic.millis
    const exit = yield* run([entry], apply([entry.slice]))
    const isSlow = (yield* Monotonic.millis) - began > slowMillis
    if (Exit.isSuccess(exit) && !isSlow) apart.delete(entry.slice.partition)
    else apart.add(entry.slice.partition)
    return settle(entry, exit)
  })
  const together = Effect.fnUntraced(function* (batch: Array.NonEmptyReadonlyArray<Entry<E>>) {
    if (batch.length === 1) return yield* alone(batch[0])
    const exit = yield* run(batch, Effect.timeout(apply(Array.map(batch, ({ slice }) => slice)), togetherMillis))
    if (Exit.isSuccess(exit)) return batch.forEach((entry) => settle(entry, Exit.void))
    return yield* Effect.forEach(batch, alone, { concurrency: "unbounded", discard: true })
  })

  /** Takes the slice that has waited longest, and the slices that share its transaction. */
  const take = (): ReadonlyArray<Entry<E>> => {
    const [first, ...rest] = waiting
    if (first === undefined) return []
    const batch = [first]
    if (!apart.has(first.slice.partition)) {
      let records = first.slice.records.length
      for (const entry of rest) {
        records += entry.slice.records.length
        if (records > maxRecords) break
        if (!apart.has(entry.slice.partition)) batch.push(entry)
      }
    }
    const taken = new Set(batch)
    waiting.splice(0, waiting.length, ...waiting.filter((entry) => !taken.has(entry)))
    return batch
  }
  const isFull = () => waiting.reduce((records, { slice }) => records + slice.records.length, 0) >= maxRecords

  const next = Effect.gen(function* () {
    yield* arrived.await
    if (running > 0 && !isFull()) yield* Effect.timeoutOption(idle.await, besideMillis)
    yield* permits.take(1)
    const batch = take()
    if (waiting.length === 0) arrived.closeUnsafe()
    if (!Array.isReadonlyArrayNonEmpty(batch)) {
      yield* permits.release(1)
      return
    }
    running += 1
    idle.closeUnsafe()
    const ended = Effect.suspend(() => {
      // When the scope closes, no caller may wait for ever, or treat its slice as applied.
      for (const entry of batch) settle(entry, Exit.interrupt())
      running -= 1
      if (running === 0) idle.openUnsafe()
      return permits.release(1)
    })
    yield* FiberSet.run(fibers, Effect.ensuring(Effect.asVoid(together(batch)), ended))
  })
  yield* Effect.forkScoped(Effect.forever(next))

  return (slice: Slice): Effect.Effect<void, E> =>
    Effect.suspend(() => {
      const entry: Entry<E> = {
        slice,
        done: Deferred.makeUnsafe(),
        isAbandoned: false,
        cutOff: Effect.void
      }
      waiting.push(entry)
      arrived.openUnsafe()
      return Effect.onInterrupt(Deferred.await(entry.done), () =>
        Effect.suspend(() => {
          entry.isAbandoned = true
          const index = waiting.indexOf(entry)
          if (index < 0) return Effect.andThen(entry.cutOff, Effect.exit(Deferred.await(entry.done)))
          waiting.splice(index, 1)
          return Effect.void
        })
      )
    })
})

/**
 * Coalesces the slices of each consumer. Without this layer each slice has a transaction of its own.
 *
 * `sideBySide` bounds the concurrent transactions of a consumer, except for the slices of a common one that failed. More of them than there are
 * connections would only queue for one. All consumers share the connections: handlers that hang on all of them hold up the other consumers until their time
 * limit.
 */
export const layer = (options: { readonly sideBySide: number }): Layer.Layer<ApplySlice, never, ApplySlice> =>
  Layer.effect(
    ApplySlice,
    Effect.gen(function* () {
      const applySlice = yield* ApplySlice
      const { sliceSize } = yield* ConsumerSettings
      const scope = yield* Effect.scope
      const making = yield* Semaphore.make(1)
      const made = new WeakMap<Subscriber, (slice: Slice) => Effect.Effect<void, BrokerUnavailable>>()
      const coalescerOf = Effect.fnUntraced(function* (subscriber: Subscriber) {
        const found = made.get(subscriber)
        if (found !== undefined) return found
        const coalescer = yield* Scope.provide(
          make({
            apply: (slices) =>
              slices.length === 1 ? applySlice.run(subscriber, slices[0]) : applySlice.runTogether(subscriber, slices),
            maxRecords: sliceSize,
            sideBySide: options.sideBySide
          }),
          scope
        )
        made.set(subscriber, coalescer)
        return coalescer
      })
      return ApplySlice.of({
        ...applySlice,
        run: (subscriber, slice) =>
          Effect.flatMap(making.withPermit(coalescerOf(subscriber)), (coalesce) => coalesce(slice))
      })
    })
  )
