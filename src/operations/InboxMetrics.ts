/** Samples of each consumer: how far it is behind, and how many events wait. Scrapes read the last sample, and query nothing. */
import { Cause, Clock, Context, Effect, Exit, Layer, Metric, type Scope } from "effect"
import type { ConsumedRecord } from "../brokers/Broker.ts"
import * as Envelope from "../brokers/Envelope.ts"
import { GroupProgress } from "../brokers/GroupProgress.ts"
import { ApplySlice } from "../inbox/ApplySlice.ts"
import * as InboxCounters from "../inbox/InboxCounters.ts"
import type { Subscriber } from "../inbox/Subscriber.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Supervised from "../platform/Supervised.ts"
import { InboxReport } from "./reports/InboxReport.ts"

const lag = Metric.gauge("inbox_lag", { description: "Records of the topic behind the consumer's offsets, sampled" })
const lagSeconds = Metric.gauge("inbox_lag_seconds", {
  description:
    "Age of the oldest event that this process is applying or failing to apply; 0 when there is none, sampled"
})
const parked = Metric.gauge("inbox_parked", {
  description: "Events that are held, the first of each order included, sampled"
})
const dead = Metric.gauge("inbox_dead_letters", { description: "Events that wait for an operator, sampled" })
const gaps = Metric.gauge("inbox_gaps", {
  description: "Aggregates that wait for an event that has not come, sampled"
})

/** Often enough for alerts that look at minutes; a round is three short counts and one request to the broker. */
const sampleMillis = 5_000

/** The age of the oldest of these records, by their events' `occurredAt`; a record that can't be read has none. */
export const ageSeconds = (records: Iterable<ConsumedRecord>, nowMillis: number): number => {
  let oldest = nowMillis
  for (const record of records) {
    const read = Envelope.decode(record)
    const millis = read._tag === "Success" ? Date.parse(read.success.occurredAt) : Number.NaN
    if (millis < oldest) oldest = millis
  }
  return (nowMillis - oldest) / 1_000
}

/** The first records of the slices that a consumer is applying, or that failed and come again. */
export class SlicesUnderWay extends Context.Service<
  SlicesUnderWay,
  { readonly firstRecords: (consumer: string) => Effect.Effect<ReadonlyArray<ConsumedRecord>> }
>()("paid-once/operations/SlicesUnderWay") {}

interface UnderWay {
  readonly consumer: string
  readonly record: ConsumedRecord
  /** When it failed last; undefined while it is being applied. */
  readonly failedMillis: number | undefined
}

/** Notes the slices that go through {@link ApplySlice}, for the age of the oldest event. */
export const layerUnderWay: Layer.Layer<ApplySlice | SlicesUnderWay, never, ApplySlice> = Layer.effectContext(
  Effect.gen(function* () {
    const applySlice = yield* ApplySlice
    const underWay = new Map<string, UnderWay>()
    const run: ApplySlice["Service"]["run"] = (subscriber, slice) => {
      const key = `${subscriber.name} ${slice.topic} ${slice.partition}`
      const note = (failedMillis: number | undefined) =>
        underWay.set(key, { consumer: subscriber.name, record: slice.records[0], failedMillis })
      return Effect.acquireUseRelease(
        Effect.sync(() => note(undefined)),
        () => applySlice.run(subscriber, slice),
        (_, exit) =>
          Effect.map(Monotonic.millis, (now) => {
            // After an interrupt the slice goes to another member, or comes again.
            if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) underWay.delete(key)
            else note(now)
          })
      )
    }
    const firstRecords = (consumer: string) =>
      Effect.map(Monotonic.millis, (now) => {
        // A failure that is older than any wait between two attempts belongs to a partition that has gone to another member.
        for (const [key, { failedMillis }] of underWay) {
          if (failedMillis !== undefined && now - failedMillis >= Supervised.stuckAfterMillis) underWay.delete(key)
        }
        return [...underWay.values()].filter((slice) => slice.consumer === consumer).map(({ record }) => record)
      })
    return Context.make(ApplySlice, ApplySlice.of({ ...applySlice, run })).pipe(
      Context.add(SlicesUnderWay, SlicesUnderWay.of({ firstRecords }))
    )
  })
)

/** Samples one consumer for as long as the scope lives. */
const forkSampler = Effect.fnUntraced(function* ({
  name: consumer,
  topic
}: Pick<Subscriber, "name" | "topic">): Effect.fn.Return<
  void,
  never,
  GroupProgress | InboxReport | SlicesUnderWay | Supervised.Fibers | Scope.Scope
> {
  const progress = yield* GroupProgress
  const report = yield* InboxReport
  const underWay = yield* SlicesUnderWay
  const set = (gauge: typeof lag, value: number) => Metric.update(Metric.withAttributes(gauge, { consumer }), value)
  // There at 0 from the start: an alert compares with the value before the first event.
  for (const outcome of InboxCounters.outcomes) yield* Metric.value(InboxCounters.ofOutcome(consumer, outcome))

  yield* Supervised.forkLoop(
    `consumer ${consumer} metrics`,
    Effect.gen(function* () {
      const counts = yield* report.counts(consumer)
      yield* set(parked, counts.retrying + counts.gaps + counts.parked)
      yield* set(dead, counts.dead)
      yield* set(gaps, counts.gaps)
      yield* set(lagSeconds, ageSeconds(yield* underWay.firstRecords(consumer), yield* Clock.currentTimeMillis))
      // Other metrics report a broker that is unavailable; here the last figure stays.
      yield* Effect.matchEffect(progress.of(consumer, topic), {
        onSuccess: (partitions) =>
          set(
            lag,
            partitions.reduce((sum, partition) => sum + partition.lag, 0)
          ),
        onFailure: (error) => Effect.logDebug(`${consumer}: the lag could not be read`, error)
      })
      yield* Effect.sleep(sampleMillis)
    })
  )
})

/** Samples these consumers for as long as the layer lives. */
export const layer = (
  subscribers: ReadonlyArray<Pick<Subscriber, "name" | "topic">>
): Layer.Layer<never, never, GroupProgress | InboxReport | SlicesUnderWay | Supervised.Fibers> =>
  Layer.effectDiscard(Effect.forEach(subscribers, forkSampler, { discard: true }))
