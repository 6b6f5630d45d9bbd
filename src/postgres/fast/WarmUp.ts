/**
 * Makes the way of the first event as quick as that of the later ones, before this process takes its first lane.
 *
 * A new process has no connections, Postgres has planned none of its statements, and V8 has compiled none of its code. The first events pay for
 * all of it, one after the other. A deploy does that to everybody.
 *
 * Nothing is sent or written. The statements look at lanes that nothing lies in, and mark no event. They go to the {@link Queue} below the decorators
 * that count. A start never fails by it, and is never held back for longer than a limit.
 */
import { Array, Context, Effect, Layer } from "effect"
import { Broker } from "../../brokers/Broker.ts"
import { type StoredEvent, toRecords } from "../../brokers/Envelope.ts"
import { type Lane, laneCount } from "../../outbox/Lane.ts"
import { type Acknowledged, Queue } from "../../outbox/Queue.ts"

export const WarmUpSettings = Context.Reference<{
  /** The topics that events go to. */
  readonly topics: ReadonlyArray<string>
  /** A start waits no longer for it. */
  readonly limitMillis: number
}>("paid-once/postgres/WarmUpSettings", {
  // Far above what it takes on slow cores. A start without a broker or a database waits longer for other parts.
  defaultValue: () => ({ topics: [], limitMillis: 2_000 })
})

/** The widths that the queue pads a mark to, up to a run of each lane. Marks of several topics or turns may have more. */
const widths = [1, 2, 4, 8, 16, 32, 64]

/** V8 compiles a function's hot loops within some dozen runs. Not measured more finely. */
const repetitions = 50

/** How often the statements of a small turn are run, for each form of the fetch. docs/performance-log.md has the p99 of the first events with and without. */
const turns = 60

/** No event has these lanes. The queue orders a mark's runs by lane, so each run has its own. */
const nowhere = (index: number) => (laneCount + index) as Lane

const event: StoredEvent = {
  eventId: "00000000-0000-7000-8000-000000000000",
  topic: "",
  eventType: "WarmedUp",
  schemaVersion: 1,
  aggregateType: "WarmUp",
  aggregateId: "00000000-0000-7000-8000-000000000000",
  aggregateVersion: 1,
  occurredAt: "2000-01-01T00:00:00.000Z",
  traceId: "0".repeat(32),
  spanId: "0".repeat(16),
  data: JSON.stringify({ text: "x".repeat(200) })
}

/** Plans the statements, and repeats those of a small turn. */
const statements = Effect.gen(function* () {
  const queue = yield* Queue
  const runs = (width: number): ReadonlyArray<Acknowledged> =>
    Array.makeBy(width, (index) => ({
      lane: nowhere(index),
      topic: "",
      events: [],
      receipt: { partition: 0, baseOffset: 0n }
    }))
  // With low-water marks, which the lanes get after a second, other statements fetch them: the queue's own if the marks lie far apart, and else
  // a scan of few lanes, or of many (SmallTurns.ts).
  const from = { seq: 0n, server: "none" }
  const looks = [
    [{ lane: nowhere(0) }],
    [
      { lane: nowhere(0), from },
      { lane: nowhere(1), from: { ...from, seq: 1_000_000n } }
    ],
    [{ lane: nowhere(0), from }],
    Array.makeBy(laneCount, (index) => ({ lane: nowhere(index), from }))
  ]
  // No event has this number.
  const one = { ...runs(1)[0]!, events: [{ ...event, lane: nowhere(0), seq: 0n, recordBytes: 1 }] }
  for (const width of widths) yield* queue.mark(runs(width))
  for (let turn = 0; turn < turns; turn++) {
    for (const views of looks) {
      yield* queue.ready(views)
      const parts = views.map((view) => ({ ...view, events: 1, bytes: 1 }))
      yield* Effect.all([queue.mark([one]), queue.fetch(parts)], { concurrency: 2 })
    }
  }
})

const rehearsal = Effect.fnUntraced(function* (topic: string) {
  const { rehearse } = yield* Broker
  for (let count = 0; count < repetitions; count++) {
    const records = toRecords([event, ...Array.makeBy(count % 16, () => event)])
    if (rehearse !== undefined) yield* rehearse({ topic, partition: 0, records })
  }
})

/** A failure is only logged: the first events fail the same way, and report it. */
const tried = <A, E, R>(part: Effect.Effect<A, E, R>) =>
  Effect.catchCause(part, (cause) => Effect.logDebug("warming up was cut short", cause))

/** Belongs below the ownership of lanes: it is built first. */
export const layer: Layer.Layer<never, never, Queue | Broker> = Layer.effectDiscard(
  Effect.gen(function* () {
    const { limitMillis, topics } = yield* WarmUpSettings
    const rehearsed = Effect.forEach(topics, rehearsal, { discard: true })
    yield* Effect.timeoutOption(
      Effect.all([tried(statements), tried(rehearsed)], { concurrency: "unbounded", discard: true }),
      limitMillis
    )
  })
)
