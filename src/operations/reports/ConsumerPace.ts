/**
 * How fast records are published and consumed, from two looks at the broker's offsets. Offsets are counters that all processes share: retention
 * does not change them, and a backlog that drains counts when it drains.
 *
 * Offsets say how many records a consumer has yet to read, and not how old they are. That is told by the looks of the last minutes: a record at or
 * after an offset was there at the first look whose end was past it.
 */
import { Array, Context, Effect, Fiber, FiberSet, Layer } from "effect"
import * as Monotonic from "../../platform/Monotonic.ts"
import { ConsumerLag, type Lag } from "./ConsumerLag.ts"

/** What two looks tell. Null: not known. */
export interface Pace {
  /** Records that the topics got, each second. */
  readonly publishedPerSecond: number | null
  /** Records that each consumer has done with, each second. A consumer of which that is not known is missing. */
  readonly handledPerSecond: Readonly<Record<string, number>>
  /** The slowest consumer has yet to read a record that is at least so old; 0 when all have read all. */
  readonly lagSecondsWorst: number | null
}

/** A look, and what it tells together with those before. */
export interface Looked {
  readonly lags: ReadonlyArray<Lag>
  readonly pace: Pace
}

/**
 * How often the broker is asked, at most. Kafka is asked over a connection of its own for each consumer, which costs more than all that the overview
 * reads from the database.
 */
const freshMillis = 5_000

/** Two looks that are further apart are not compared: an average over a long gap would pass for the pace of now. */
const longestGapMillis = 30_000

/** As long as the history of the charts. Older looks would only tell of an age that is above it anyway. */
const rememberedMillis = 900_000

/** A first look is waited for so long. After that the figures come without it. */
const patienceMillis = 1_000

interface Look {
  readonly atMillis: number
  readonly lags: ReadonlyArray<Lag>
  /** The end of each partition, by topic and partition. */
  readonly ends: ReadonlyMap<string, number>
}

/** The partitions of all consumers that the broker told of. Offsets stay exact as numbers far beyond any topic's. */
const positionsOf = (lags: ReadonlyArray<Lag>) =>
  lags.flatMap(({ consumer, partitions, topic }) =>
    partitions.map(({ end, lag, partition }) => ({
      consumer,
      key: `${topic}/${partition}`,
      end: Number(end),
      position: Number(end) - lag
    }))
  )

const lookAt = (atMillis: number, lags: ReadonlyArray<Lag>): Look => {
  const ends = new Map<string, number>()
  for (const { end, key } of positionsOf(lags)) ends.set(key, Math.max(end, ends.get(key) ?? 0))
  return { atMillis, lags, ends }
}

const total = (values: Iterable<number>) => [...values].reduce((sum, value) => sum + value, 0)

/** The growth each second; null where it is not known. A topic that was made anew has smaller offsets than before. */
const growth = (before: number, now: number, seconds: number) => (now < before ? null : (now - before) / seconds)

const handledBy = (lags: ReadonlyArray<Lag>) =>
  Object.entries(Array.groupBy(positionsOf(lags), ({ consumer }) => consumer)).map(
    ([consumer, own]) => [consumer, total(own.map(({ position }) => position))] as const
  )

/** The pace of the last of these looks, oldest first. */
export const paceOf = (looks: ReadonlyArray<Look>): Pace => {
  const last = looks.at(-1)
  if (last === undefined) return { publishedPerSecond: null, handledPerSecond: {}, lagSecondsWorst: null }
  const before = looks.at(-2)
  const seconds = before === undefined ? Infinity : (last.atMillis - before.atMillis) / 1_000
  const isComparable = before !== undefined && seconds > 0 && seconds * 1_000 <= longestGapMillis
  const sameTopics = isComparable && last.ends.size > 0 && last.ends.size === before.ends.size
  const handledBefore = new Map(isComparable ? handledBy(before.lags) : [])
  const ages = positionsOf(last.lags).map(({ end, key, position }) => {
    if (position >= end) return 0
    const seen = looks.find(({ ends }) => (ends.get(key) ?? 0) > position) ?? last
    return (last.atMillis - seen.atMillis) / 1_000
  })
  return {
    publishedPerSecond: sameTopics ? growth(total(before.ends.values()), total(last.ends.values()), seconds) : null,
    handledPerSecond: Object.fromEntries(
      handledBy(last.lags).flatMap(([consumer, position]) => {
        const earlier = handledBefore.get(consumer)
        const pace = earlier === undefined ? null : growth(earlier, position, seconds)
        return pace === null ? [] : [[consumer, pace]]
      })
    ),
    lagSecondsWorst: ages.length === 0 ? null : Math.max(...ages)
  }
}

export class ConsumerPace extends Context.Service<
  ConsumerPace,
  {
    /**
     * The last look. If it is older than some seconds, the next one begins meanwhile, and nobody waits for it: a broker that is away takes seconds to
     * say so. Undefined where there has been none yet.
     */
    readonly latest: Effect.Effect<Looked | undefined>
  }
>()("paid-once/operations/reports/ConsumerPace") {
  static readonly layer: Layer.Layer<ConsumerPace, never, ConsumerLag> = Layer.effect(
    ConsumerPace,
    Effect.gen(function* () {
      const consumerLag = yield* ConsumerLag
      // Of the process, and not of the one who asks first.
      const fork = yield* FiberSet.makeRuntime<never, void, never>()
      let looks: ReadonlyArray<Look> = []
      let last: Looked | undefined
      let looking: { readonly beganMillis: number; readonly fiber: Fiber.Fiber<void> } | undefined

      const look = Effect.gen(function* () {
        const lags = yield* consumerLag.all
        const now = yield* Monotonic.millis
        looks = [...looks.filter(({ atMillis }) => now - atMillis <= rememberedMillis), lookAt(now, lags)]
        last = { lags, pace: paceOf(looks) }
      })

      const latest = Effect.gen(function* () {
        const now = yield* Monotonic.millis
        const isOver = looking === undefined || looking.fiber.pollUnsafe() !== undefined
        if (isOver && (looking === undefined || now - looking.beganMillis >= freshMillis)) {
          looking = { beganMillis: now, fiber: fork(look) }
        }
        if (last === undefined && looking !== undefined) {
          yield* Effect.timeoutOption(Fiber.await(looking.fiber), patienceMillis)
        }
        return last
      })
      return ConsumerPace.of({ latest })
    })
  )
}
