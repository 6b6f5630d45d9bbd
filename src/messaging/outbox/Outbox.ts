/**
 * The outbox: events that commit together with the change they announce, or not at all.
 */
import { Context, Effect, Layer, Result, Schema } from "effect"
import type { Statement } from "effect/sql"
import { Transaction } from "../../platform/database/Transaction.ts"
import { Faults } from "../../platform/Faults.ts"
import { RandomUuid } from "../../platform/RandomUuid.ts"
import * as Tracing from "../../platform/Tracing.ts"
import * as Envelope from "../Envelope.ts"
import { Lane, laneCount, laneOf } from "./Lane.ts"
import { Wakeup } from "./Wakeup.ts"

/** The aggregate that events belong to. All of an aggregate's events go to one topic, in order. */
export interface Stream {
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
}

/** An event to be announced. */
export interface NewEvent {
  readonly eventType: string
  readonly schemaVersion: number
  /** Anything that `JSON.stringify` encodes. It is sent as it is encoded here. */
  readonly data: unknown
}

export type NonEmpty<A> = readonly [A, ...ReadonlyArray<A>]

/** The event could never be published: it is too large, or it is no JSON. Nothing was written. */
export class EventRefused extends Schema.TaggedError<EventRefused>()("EventRefused", {
  eventType: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `event ${this.eventType} can't be published: ${this.reason}`
  }
}

/** The aggregate's statement changed no row: the version it expected is not the present one. Nothing was written. */
export class NothingWritten extends Schema.TaggedError<NothingWritten>()("NothingWritten", {
  aggregateId: Schema.String
}) {
  override get message() {
    return `aggregate ${this.aggregateId} has changed since it was read, or is not there`
  }
}

/** Bounds of an append. */
export const OutboxSettings = Context.Reference<{ readonly maxEventBytes: number }>(
  "paid-once/messaging/outbox/OutboxSettings",
  {
    // Below Kafka's default max.message.bytes (1,048,588), with room for the batch around the record.
    defaultValue: () => ({ maxEventBytes: 900_000 })
  }
)

/** See {@link Outbox}. */
export interface OutboxService {
  /**
   * Writes `events` in the surrounding transaction: they will be published if it commits, and never were if it rolls back.
   *
   * **Details**
   *
   * `version` is the version of the first event; the others follow it. Versions of an aggregate are contiguous from 1, and
   * must be taken under a lock that all writers of the aggregate take (its row's), for then version order is commit order.
   * {@link Outbox.save} does both in one statement; prefer it.
   */
  readonly append: (
    stream: Stream,
    version: number,
    events: NonEmpty<NewEvent>
  ) => Effect.Effect<void, EventRefused, Transaction>
  /**
   * Runs the aggregate's own `write` and appends `events`, in one statement: a row that changes without an event, an event
   * without its row, and a gap in the versions can't be.
   *
   * **Details**
   *
   * `write` inserts or updates exactly the aggregate's row, adds the number of events to its version, and returns the new
   * version: `UPDATE … SET version = version + 1 … WHERE id = … AND version = … RETURNING version`. Where it hits no row the
   * whole statement writes nothing and fails with {@link NothingWritten}. `also` are further writes of the same statement
   * (an order's lines); each must select from the relation `written`, which is empty where nothing was written.
   * Returns the new version.
   */
  readonly save: (
    stream: Stream,
    events: NonEmpty<NewEvent>,
    write: Statement.Statement<{ readonly version: number }>,
    also?: (written: Statement.Fragment) => ReadonlyArray<Statement.Statement<unknown>>
  ) => Effect.Effect<number, EventRefused | NothingWritten, Transaction>
}

export class Outbox extends Context.Service<Outbox, OutboxService>()("paid-once/messaging/outbox/Outbox") {
  static readonly layer = Layer.effect(
    Outbox,
    Effect.gen(function* () {
      const wakeup = yield* Wakeup
      const faults = yield* Faults
      const { maxEventBytes } = yield* OutboxSettings
      const drawUuid = yield* RandomUuid

      /** The events as columns, for one INSERT. Plain code: it is part of every business transaction. */
      const encode = (
        stream: Stream,
        events: NonEmpty<NewEvent>,
        trace: Trace
      ): Result.Result<Encoded, EventRefused> => {
        const columns = { randoms: events.map(drawUuid), types: [], schemaVersions: [], recordBytes: [], data: [] } as {
          readonly [Name in keyof Columns]: Array<Columns[Name][number]>
        }
        for (const event of events) {
          const encoded = encodeData(event, stream, trace, maxEventBytes)
          if (Result.isFailure(encoded)) return Result.fail(encoded.failure)
          columns.types.push(event.eventType)
          columns.schemaVersions.push(event.schemaVersion)
          columns.recordBytes.push(encoded.success.recordBytes)
          columns.data.push(encoded.success.data)
        }
        return Result.succeed({ ...columns, ...trace, lane: laneOf(stream.aggregateId) })
      }

      /** What happens after the commit, by lane: made once, for it is the same each time. */
      const wakes = Array.from({ length: laneCount }, (_, lane) =>
        Effect.andThen(faults.at("outbox.after-commit"), wakeup.wake([Lane.make(lane)])).pipe(
          Effect.andThen(faults.at("outbox.after-wake"))
        )
      )
      const announce = (lane: Lane, { afterCommit }: Context.Service.Shape<typeof Transaction>) =>
        Effect.andThen(faults.at("outbox.after-append"), afterCommit(wakes[lane] ?? Effect.void))

      const insert = (
        sql: Statement.Constructor,
        stream: Stream,
        encoded: Encoded,
        versionBefore: Statement.Fragment,
        from: Statement.Fragment
      ) =>
        sql`
          INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id,
                                     aggregate_version, occurred_at, trace_id, span_id, record_bytes, data)
          SELECT ${encoded.lane}::int2, uuid_v7(clock.now, event.random), ${stream.topic}::text, event.type, event.schema_version,
                 ${stream.aggregateType}::text, ${stream.aggregateId}::text, ${versionBefore} + event.position::int4, clock.now,
                 ${encoded.traceId}::text, ${encoded.spanId}::text, event.record_bytes, event.data::json
          FROM ${from} (SELECT clock_now() AS now) AS clock,
               ${rowsOf(sql, encoded)} AS event(random, type, schema_version, record_bytes, data, position)
          ORDER BY event.position
          RETURNING aggregate_version`

      const append = Effect.fnUntraced(function* (stream: Stream, version: number, events: NonEmpty<NewEvent>) {
        const transaction = yield* Transaction
        const { sql } = transaction
        const encoded = yield* Effect.fromResult(encode(stream, events, yield* currentTrace(drawUuid)))
        yield* Effect.orDie(insert(sql, stream, encoded, sql`${version - 1}::int4`, sql``))
        yield* announce(encoded.lane, transaction)
      })

      const save = Effect.fnUntraced(function* (
        stream: Stream,
        events: NonEmpty<NewEvent>,
        write: Statement.Statement<{ readonly version: number }>,
        also: (written: Statement.Fragment) => ReadonlyArray<Statement.Statement<unknown>> = () => []
      ) {
        const transaction = yield* Transaction
        const { sql } = transaction
        const encoded = yield* Effect.fromResult(encode(stream, events, yield* currentTrace(drawUuid)))
        const ctes = [
          sql`written AS (${write})`,
          ...also(sql`written`).map((statement, index) => sql`${sql(`also_${index}`)} AS (${statement})`)
        ]
        const rows = yield* Effect.orDie(sql<{ readonly aggregate_version: number }>`
          WITH ${sql.csv(ctes)}
          ${insert(sql, stream, encoded, sql`written.version - ${events.length}::int4`, sql`written, `)}`)
        const last = rows.at(-1)
        if (last === undefined) return yield* new NothingWritten({ aggregateId: stream.aggregateId })
        yield* announce(encoded.lane, transaction)
        return last.aggregate_version
      })

      return Outbox.of({ append, save })
    })
  )
}

/** The columns of an append's events, one value an event. */
interface Columns {
  readonly randoms: ReadonlyArray<string>
  readonly types: ReadonlyArray<string>
  readonly schemaVersions: ReadonlyArray<number>
  readonly recordBytes: ReadonlyArray<number>
  readonly data: ReadonlyArray<string>
}

/**
 * The events as a relation. A single one, which is nearly every append, is a row of constants to Postgres and needs neither arrays nor a
 * scan and sort of what comes out of them.
 */
const rowsOf = (
  sql: Statement.Constructor,
  { data, randoms, recordBytes, schemaVersions, types }: Columns
): Statement.Fragment =>
  data.length === 1
    ? sql`(VALUES (${randoms[0]}::uuid, ${types[0]}::text, ${schemaVersions[0]}::int2, ${recordBytes[0]}::int4, ${data[0]}::text, 1))`
    : sql`unnest(${randoms}::uuid[], ${types}::text[], ${schemaVersions}::int2[], ${recordBytes}::int4[], ${data}::text[])
            WITH ORDINALITY`

/** What {@link Outbox} writes of an append: its events, where they go, and the trace they belong to. */
interface Encoded extends Columns, Trace {
  readonly lane: Lane
}

interface Trace {
  readonly traceId: string
  readonly spanId: string
}

/** The trace of the request that is being served, or one of its own for work that nobody traces. */
const currentTrace = (drawUuid: () => string): Effect.Effect<Trace> =>
  Effect.map(Tracing.current, (span) => ({
    // A tracer may number its spans otherwise; the wire wants 32 and 16 hex digits.
    traceId: span !== undefined && /^[0-9a-f]{32}$/.test(span.traceId) ? span.traceId : hex(drawUuid()),
    spanId: span !== undefined && /^[0-9a-f]{16}$/.test(span.spanId) ? span.spanId : hex(drawUuid()).slice(0, 16)
  }))

const hex = (uuid: string) => uuid.replaceAll("-", "")

const nilUuid = "00000000-0000-0000-0000-000000000000"

/** The data as JSON text, once it is sure that its record fits into the topic. */
const encodeData = (
  event: NewEvent,
  stream: Stream,
  trace: { readonly traceId: string; readonly spanId: string },
  maxEventBytes: number
): Result.Result<{ readonly data: string; readonly recordBytes: number }, EventRefused> => {
  const refuse = (reason: string) => Result.fail(new EventRefused({ eventType: event.eventType, reason }))
  let data: string | undefined
  try {
    data = JSON.stringify(event.data)
  } catch (error) {
    return refuse(`its data is no JSON: ${String(error)}`)
  }
  if (data === undefined) return refuse("its data is no JSON: undefined")
  const bytes = Envelope.bytesOf({
    ...stream,
    ...trace,
    eventId: nilUuid,
    eventType: event.eventType,
    schemaVersion: event.schemaVersion,
    // The widest version and time there can be: the real ones are known only once it is written.
    aggregateVersion: 2 ** 31 - 1,
    occurredAt: "2000-01-01T00:00:00.000Z",
    data
  })
  return bytes > maxEventBytes
    ? refuse(`it takes ${bytes} bytes, and ${maxEventBytes} are allowed (OUTBOX_MAX_EVENT_BYTES)`)
    : Result.succeed({ data, recordBytes: bytes })
}
