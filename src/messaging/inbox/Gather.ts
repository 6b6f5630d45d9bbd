/**
 * Lets slices of several partitions share a transaction.
 *
 * At some hundred events a second a partition's next slice has one or two of them, and what is spent is spent on the transaction around
 * them. So what arrives while one is under way waits for its end, and goes together: the more there is to do, the more goes at once.
 *
 * Partitions stay apart where it matters. A full slice waits for nobody. A transaction that takes long is not waited for. One that fails is
 * done again slice by slice, side by side; and a slice that fails by itself goes alone from then on, until it has succeeded.
 */
import { Array, Clock, Deferred, Effect, Exit, FiberSet, Latch, Semaphore } from "effect"
import type { Slice } from "../broker/Broker.ts"

/**
 * What comes within {@link busyMillis} of the last transaction is waited for a little: one event in a transaction of its own takes as much
 * of the machine as ten, and who takes less is faster. An event that comes out of the blue waits for nothing.
 */
const lingerMillis = 3
const busyMillis = 50

/** As long as a transaction of ours takes when it takes long. One that takes longer may hang, and what waits goes on without it. */
const besideMillis = 10

/** What is applied together is given up after so long, and each slice has all the time again that handlers may take. */
const togetherMillis = 5_000

export type Slices = Array.NonEmptyReadonlyArray<Slice>

interface Entry<E> {
  readonly slice: Slice
  readonly done: Deferred.Deferred<void, E>
}

/**
 * Applies each slice that is handed over, alone or with others, and ends as it did. What is under way is interrupted with the scope; a
 * caller that is interrupted leaves it to its fate, which a slice of a lost partition has to bear anyway.
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
  /** Partitions whose last slice failed. */
  const apart = new Set<number>()
  let running = 0
  let takenMillis = Number.NEGATIVE_INFINITY

  const settle = ({ done, slice }: Entry<E>, exit: Exit.Exit<void, E>) => {
    if (Exit.isSuccess(exit)) apart.delete(slice.partition)
    else apart.add(slice.partition)
    Deferred.doneUnsafe(done, exit)
  }
  const alone = (entry: Entry<E>) => Effect.map(Effect.exit(apply([entry.slice])), (exit) => settle(entry, exit))
  const together = (batch: Array.NonEmptyReadonlyArray<Entry<E>>) =>
    batch.length === 1
      ? alone(batch[0])
      : Effect.flatMap(
          Effect.exit(Effect.timeout(apply(Array.map(batch, ({ slice }) => slice)), togetherMillis)),
          (exit) =>
            Exit.isSuccess(exit)
              ? Effect.sync(() => batch.forEach((entry) => settle(entry, Exit.void)))
              : Effect.forEach(batch, alone, { concurrency: "unbounded", discard: true })
        )

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
    if ((yield* Clock.currentTimeMillis) - takenMillis < busyMillis && !isFull()) yield* Effect.sleep(lingerMillis)
    if (running > 0 && !isFull()) yield* Effect.timeoutOption(idle.await, besideMillis)
    yield* places.take(1)
    const batch = take()
    takenMillis = yield* Clock.currentTimeMillis
    if (waiting.length === 0) arrived.closeUnsafe()
    if (!Array.isReadonlyArrayNonEmpty(batch)) {
      yield* places.release(1)
      return
    }
    running += 1
    idle.closeUnsafe()
    const ended = Effect.suspend(() => {
      running -= 1
      if (running === 0) idle.openUnsafe()
      return places.release(1)
    })
    yield* FiberSet.run(fibers, Effect.ensuring(together(batch), ended))
  })
  yield* Effect.forkScoped(Effect.forever(next))

  return (slice: Slice): Effect.Effect<void, E> =>
    Effect.suspend(() => {
      const entry: Entry<E> = { slice, done: Deferred.makeUnsafe() }
      waiting.push(entry)
      arrived.openUnsafe()
      return Effect.onInterrupt(Deferred.await(entry.done), () =>
        Effect.sync(() => {
          const place = waiting.indexOf(entry)
          if (place >= 0) waiting.splice(place, 1)
        })
      )
    })
})
