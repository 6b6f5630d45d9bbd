/** Gauges of a consumer: its lag, its holds, its dead letters. They are sampled; a scrape reads the last sample. */
import { Clock, Effect, Metric, type Scope } from "effect"
import * as Supervised from "../platform/Supervised.ts"
import { Broker, type ConsumedRecord } from "../brokers/Broker.ts"
import * as Envelope from "../brokers/Envelope.ts"
import * as InboxCounters from "../inbox/InboxCounters.ts"
import { InboxReport } from "./InboxReport.ts"
import type { Subscriber } from "../inbox/Subscriber.ts"

const lag = Metric.gauge("inbox_lag", {
  description: "Records of the topic that the consumer has not applied yet, sampled"
})
const lagSeconds = Metric.gauge("inbox_lag_seconds", {
  description:
    "Age of the oldest event that this process is applying or failing to apply; 0 when there is none, sampled"
})
const parked = Metric.gauge("inbox_parked", { description: "Events that wait behind a hold, sampled" })
const dead = Metric.gauge("inbox_dead_letters", { description: "Events that wait for an operator, sampled" })
const gaps = Metric.gauge("inbox_gaps", {
  description: "Aggregates that wait for an event that has not come, sampled"
})

/** Alerts look at minutes. A sample is three short counts and one request to the broker. */
const sampleMillis = 5_000

/** The age of the oldest of these records, in seconds, by their `occurredAt`. A record that can't be read has no age; 0 where none has. */
export const ageSeconds = (records: Iterable<ConsumedRecord>, nowMillis: number): number => {
  let oldest = nowMillis
  for (const record of records) {
    const read = Envelope.decode(record)
    const millis = read._tag === "Success" ? Date.parse(read.success.occurredAt) : Number.NaN
    if (millis < oldest) oldest = millis
  }
  return (nowMillis - oldest) / 1_000
}

/** Samples for as long as the scope lives. `underWay` gives the first record of each slice that is being applied. */
export const forkSampler = Effect.fnUntraced(function* (
  subscriber: Subscriber,
  underWay: () => Iterable<ConsumedRecord>
): Effect.fn.Return<void, never, Broker | InboxReport | Supervised.Fibers | Scope.Scope> {
  const broker = yield* Broker
  const report = yield* InboxReport
  const consumer = subscriber.name
  const set = (gauge: typeof lag, value: number) => Metric.update(Metric.withAttributes(gauge, { consumer }), value)
  // Each series starts at 0: an alert's rule needs a value from before the first event.
  for (const outcome of InboxCounters.outcomes) yield* Metric.value(InboxCounters.ofOutcome(consumer, outcome))

  yield* Supervised.forkLoop(
    `consumer ${consumer} metrics`,
    Effect.gen(function* () {
      const counts = yield* report.counts(consumer)
      yield* set(parked, counts.parked)
      yield* set(dead, counts.dead)
      yield* set(gaps, counts.gaps)
      yield* set(lagSeconds, ageSeconds(underWay(), yield* Clock.currentTimeMillis))
      // While the broker is unreachable the gauge keeps its last value; broker health reports the outage.
      if (broker.lag !== undefined) {
        yield* Effect.matchEffect(broker.lag(consumer, subscriber.topic), {
          onSuccess: (records) => set(lag, records),
          onFailure: (error) => Effect.logDebug(`${consumer}: the lag could not be read`, error)
        })
      }
      yield* Effect.sleep(sampleMillis)
    })
  )
})
