/**
 * Lets slices of several partitions share a transaction.
 *
 * At some hundred events a second a partition's next slice has one or two of them, and what is spent is spent on the transaction around
 * them. So what arrives while one is under way waits for its end, and goes together: the more there is to do, the more goes at once.
 *
 * Partitions stay apart where it matters. A full slice waits for nobody. A transaction that takes long is not waited for. One that fails is
 * done again slice by slice, side by side; and where a slice fails or takes long by itself its partition goes alone, until one was quick.
 */
import { Array, Deferred, Effect, Exit, Fiber, FiberSet, Latch, Semaphore } from "effect"
import type { Slice } from "../../brokers/Broker.ts"
import * as Monotonic from "../../platform/Monotonic.ts"

/**
 * What comes within {@link busyMillis} of the last transaction is waited for a little: one event in a transaction of its own takes as much
 * of the machine as ten, and who takes less is faster. An event that comes out of the blue waits for nothing.
 */
const lingerMillis = 3
const busyMillis = 50

/** As long as a transaction of ours takes when it takes long. One that takes longer may hang, and what waits goes on without it. */
const besideMillis = 10

/** What is applied together is given up after so long, and each slice has all the time again that handlers may take. */
const togetherMillis = 2_000

/** A slice that takes longer by itself would keep others waiting: the next ones of its partition go alone. */
const slowMillis = 1_000

export type Slices = Array.NonEmptyReadonlyArray<Slice>

interface Entry<E> {
  readonly slice: Slice
  readonly done: Deferred.Deferred<void, E>
  /** Its partition was lost: nobody waits for it but for its end. */
  isAbandoned: boolean
  /** Ends what is under way for it, unless others need that. */
  cutOff: Effect.Effect<void>
}

/**
 * Applies each slice that is handed over, alone or with others, and ends as it did. A caller that is interrupted takes its slice back: what is
 * under way for it alone is rolled back, and a transaction that it shares is waited for.
 *
 * `apply` of several slices must fail at the first thing that is wrong with one of them.
 */
export const make = Effect.fnUntraced(function* <E>(options: {
  readonly apply: (slices: Slices) => Effect.Effect<void, E>
  /** Records in one transaction. A slice has no more. */
  readonly maxRecords: number
  /** Transactions side by side. */
  readonly sideBySide: number
}) {
  const { apply, maxRecords } = options
  const waiting: Array<Entry<E>> = []
  const arrived = Latch.makeUnsafe(false)
  const idle = Latch.makeUnsafe(true)
  const places = Semaphore.makeUnsafe(options.sideBySide)
  const fibers = yield* FiberSet.make<void>()
  /** Partitions whose last slice failed, or took long. */
  const apart = new Set<number>()
  let running = 0
  let takenMillis = Number.NEGATIVE_INFINITY

  const settle = ({ done }: Entry<E>, exit: Exit.Exit<void, E>) => Deferred.doneUnsafe(done, exit)

  /** Runs `effect` for the entries, of which each can cut it off once all want that. */
  const run = Effect.fnUntraced(function* <A, E1>(
    entries: ReadonlyArray<Entry<E>>,
    effect: Effect.Effect<A, E1>
  ): Effect.fn.Return<Exit.Exit<A, E1>> {
    const fiber = yield* Effect.forkChild(effect)
    const cutOff = Effect.suspend(() =>
      entries.every(({ isAbandoned }) => isAbandoned) ? Fiber.interrupt(fiber) : Effect.void
    )
    for (const entry of entries) entry.cutOff = cutOff
    // They may have been abandoned before there was anything to cut off.
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

  /** The longest waiting slice, and what goes with it. */
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
    if ((yield* Monotonic.millis) - takenMillis < busyMillis && !isFull()) yield* Effect.sleep(lingerMillis)
    if (running > 0 && !isFull()) yield* Effect.timeoutOption(idle.await, besideMillis)
    yield* places.take(1)
    const batch = take()
    takenMillis = yield* Monotonic.millis
    if (waiting.length === 0) arrived.closeUnsafe()
    if (!Array.isReadonlyArrayNonEmpty(batch)) {
      yield* places.release(1)
      return
    }
    running += 1
    idle.closeUnsafe()
    const ended = Effect.suspend(() => {
      // Where all of it is stopped, nobody waits for ever, or takes its slice for applied.
      for (const entry of batch) settle(entry, Exit.interrupt())
      running -= 1
      if (running === 0) idle.openUnsafe()
      return places.release(1)
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
          const place = waiting.indexOf(entry)
          if (place < 0) return Effect.andThen(entry.cutOff, Effect.exit(Deferred.await(entry.done)))
          waiting.splice(place, 1)
          return Effect.void
        })
      )
    })
})
