/** What health says of the partitions that can't be reached, topic by topic. */
import { Array } from "effect"

/** A topic with at least one partition whose last send failed. */
export interface PausedTopic {
  readonly topic: string
  /** Failures in a row, of the partition with the most. */
  readonly attempt: number
  readonly reason: string
  /** The failed partitions, in ascending order; none where the topic's partitions are not known. */
  readonly partitions: ReadonlyArray<number>
  /** Since the first of them failed. */
  readonly lastingMillis: number
  /** Until the first of them may be tried; 0 where one is being tried, or may be. */
  readonly nextTryMillis: number
}

/** A failed partition, as far as it is told. Times are those of Monotonic.ts. */
interface Failure {
  readonly topic: string
  readonly place: { readonly partition: number } | undefined
  readonly attempt: number
  readonly sinceMillis: number
  readonly untilMillis: number
  readonly reason: string
}

/** These failures by topic. */
export const byTopic = (failures: Iterable<Failure>, nowMillis: number): ReadonlyArray<PausedTopic> =>
  Object.entries(Array.groupBy([...failures], ({ topic }) => topic)).map(([topic, failed]) => {
    const { attempt, reason } = failed.reduce((most, one) => (one.attempt > most.attempt ? one : most))
    return {
      topic,
      attempt,
      reason,
      partitions: failed.flatMap(({ place }) => place?.partition ?? []).toSorted((a, b) => a - b),
      lastingMillis: nowMillis - Math.min(...failed.map(({ sinceMillis }) => sinceMillis)),
      nextTryMillis: Math.max(0, Math.min(...failed.map(({ untilMillis }) => untilMillis)) - nowMillis)
    }
  })
