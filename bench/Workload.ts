/**
 * The measured events: rows of 400 bytes of data, spread evenly over 1,000 aggregates, committed before the clock starts.
 */
import { Effect, Schedule } from "effect"
import { randomUUID } from "node:crypto"
import * as Envelope from "../src/brokers/Envelope.ts"
import { laneOf } from "../src/outbox/Lane.ts"
import { QueueSettings } from "../src/outbox/Queue.ts"
import { idAt } from "../test/support/SqlIds.ts"
import { Side } from "./Environment.ts"

export const aggregateCount = 1_000
export const topic = "bench"

/** A JSON text of exactly `bytes` bytes, similar to an event's data. */
export const dataOf = (bytes: number): string => {
  const head = `{"customerId":"ada","lines":[{"sku":"book","quantity":2,"unitAmountMinor":1250}],"total":{"amountMinor":2500,"currency":"EUR"},"note":"`
  return `${head}${"x".repeat(Math.max(0, bytes - head.length - 2))}"}`
}

const dataBytes = 400

/** An event as the queue returns it, for clients that are measured without a queue. */
export const sampleEvent = (aggregateId: string, aggregateVersion: number): Envelope.StoredEvent => ({
  eventId: randomUUID(),
  topic,
  eventType: "Measured",
  schemaVersion: 1,
  aggregateType: "Bench",
  aggregateId,
  aggregateVersion,
  occurredAt: "2026-01-01T00:00:00.000Z",
  traceId: "0af7651916cd43dd8448eb211c80319c",
  spanId: "b7ad6b7169203331",
  data: dataOf(dataBytes)
})

export const recordBytes = Envelope.recordBytes(Envelope.toRecord(sampleEvent(randomUUID(), 1_000_000)))

export const aggregates = () => Array.from({ length: aggregateCount }, () => randomUUID())

/** Commits `count` events of new aggregates in one transaction, one event for each aggregate in turn. `count` is rounded to whole rounds. */
export const fill = Effect.fnUntraced(function* (count: number, table = "outbox_events", to = topic) {
  const sql = yield* Side
  const ids = aggregates()
  const sample = sampleEvent(ids[0]!, 1)
  yield* sql`
    INSERT INTO ${sql(table)} (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id,
                               aggregate_version, occurred_at, trace_id, span_id, record_bytes, data)
    SELECT aggregate.lane, ${sql.literal(idAt("clock_now()"))}, ${to}, ${sample.eventType}, 1::int2, ${sample.aggregateType},
           aggregate.id, turn.version, clock_now(), ${sample.traceId}, ${sample.spanId}, ${recordBytes}::int4, ${sample.data}::text::json
    FROM generate_series(1, ${Math.ceil(count / aggregateCount)}::int4) AS turn(version),
         unnest(${ids}::text[], ${ids.map(laneOf)}::int2[]) AS aggregate(id, lane)
    ORDER BY turn.version`
})

/** Resets the database between two blocks: nothing queued, nothing archived, no dead rows, no checkpoint due. */
export const reset = Effect.gen(function* () {
  const sql = yield* Side
  yield* sql`TRUNCATE outbox_events, event_log`
  yield* sql`VACUUM ANALYZE outbox_events`
  yield* sql`CHECKPOINT`
})

/** The number of these records in a full batch: OUTBOX_BATCH_SIZE or OUTBOX_BATCH_BYTES limits it. */
export const fullBatch = Effect.runSync(
  Effect.map(QueueSettings, ({ batchBytes, batchSize }) => Math.min(batchSize, Math.floor(batchBytes / recordBytes)))
)

/** The poll for the end of a block: a millisecond is little compared with the second that a block takes. */
export const until = <E, R>(condition: Effect.Effect<boolean, E, R>) =>
  Effect.repeat(condition, { until: (holds) => holds, schedule: Schedule.spaced("1 millis") })

/** A load at a steady pace. */
export interface Load {
  readonly seconds: number
  /** Transactions a second. */
  readonly rate: number
}

/**
 * A load's first second is not measured: connections plan their statements anew after a {@link reset}, and a new process opens its
 * connections.
 */
const settleSeconds = 1

/** More than ever run at once, so that the clock alone decides when the next transaction begins. */
const writers = 64

/** Runs `one` for a new aggregate at each tick of the clock, however long the last one takes. Returns the aggregates to measure. */
export const steadily = Effect.fnUntraced(function* <E, R>(
  { rate, seconds }: Load,
  one: (id: string) => Effect.Effect<void, E, R>
) {
  const ids = Array.from({ length: (settleSeconds + seconds) * rate }, () => randomUUID() as string)
  const began = performance.now()
  const ticks = ids.entries()
  yield* Effect.forEach(
    Array.from({ length: writers }),
    Effect.fnUntraced(function* () {
      for (const [index, id] of ticks) {
        const early = began + (index * 1_000) / rate - performance.now()
        if (early > 0) yield* Effect.sleep(early)
        yield* one(id)
      }
    }),
    { concurrency: "unbounded", discard: true }
  )
  return ids.slice(settleSeconds * rate)
})
