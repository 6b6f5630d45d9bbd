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

      const append = Effect.fnUntraced(function* (stream: Stream, version: number, events: NonEmpty<NewEvent>) {
        const transaction = yield* Transaction
        const encoded = yield* Effect.fromResult(encode(stream, events, yield* currentTrace(drawUuid)))
        const values = valuesOf(stream, encoded, version - 1)
        yield* Effect.orDie(transaction.sql.unsafe(appendText(events.length === 1), values))
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
        const [before, parameters] = sql`WITH ${sql.csv(ctes)}`.compile()
        const rows = yield* Effect.orDie(
          sql.unsafe<{ readonly aggregate_version: number }>(saveText(before, parameters.length, events.length === 1), [
            ...parameters,
            ...valuesOf(stream, encoded, events.length)
          ])
        )
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
 * The statement that writes events. Its text is made once for each that stands in front of it: put together for each event it would be a good part of
 * what an event costs its writer.
 */
const insertText = (
  before: { readonly text: string; readonly parameters: number },
  versionBefore: (parameter: string) => string,
  from: string,
  isOne: boolean
): string => {
  const $ = (index: number) => `$${before.parameters + index}`
  // A single event, which is nearly every append, is a row of constants to Postgres and needs neither arrays nor a scan and sort of them.
  const rows = isOne
    ? `(VALUES (${$(8)}::uuid, ${$(9)}::text, ${$(10)}::int2, ${$(11)}::int4, ${$(12)}::text, 1))`
    : `unnest(${$(8)}::uuid[], ${$(9)}::text[], ${$(10)}::int2[], ${$(11)}::int4[], ${$(12)}::text[]) WITH ORDINALITY`
  return (
    `${before.text} INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id,` +
    ` aggregate_version, occurred_at, trace_id, span_id, record_bytes, data)` +
    ` SELECT ${$(1)}::int2, uuid_v7(clock.now, event.random), ${$(2)}::text, event.type, event.schema_version,` +
    ` ${$(3)}::text, ${$(4)}::text, ${versionBefore(`${$(7)}::int4`)} + event.position::int4, clock.now,` +
    ` ${$(5)}::text, ${$(6)}::text, event.record_bytes, event.data::json` +
    ` FROM ${from}(SELECT clock_now() AS now) AS clock,` +
    ` ${rows} AS event(random, type, schema_version, record_bytes, data, position)` +
    ` ORDER BY event.position RETURNING aggregate_version`
  )
}

/** The parameters of {@link insertText}. `seventh`: the version before the first event, or the number of events. */
const valuesOf = (stream: Stream, encoded: Encoded, seventh: number): ReadonlyArray<unknown> => {
  const { data, lane, randoms, recordBytes, schemaVersions, spanId, traceId, types } = encoded
  const columns = [randoms, types, schemaVersions, recordBytes, data]
  return [
    lane,
    stream.topic,
    stream.aggregateType,
    stream.aggregateId,
    traceId,
    spanId,
    seventh,
    ...(data.length === 1 ? columns.map(([value]) => value) : columns)
  ]
}

const appendTexts = [false, true].map((isOne) => insertText({ text: "", parameters: 0 }, (before) => before, "", isOne))
const appendText = (isOne: boolean) => appendTexts[Number(isOne)]!

/** The texts of saves, for one event and for several, by what is in front of them: as many as a program has kinds of writes, and no more than these. */
const textLimit = 1_000
const saveTexts = [new Map<string, string>(), new Map<string, string>()] as const
const saveText = (before: string, parameters: number, isOne: boolean): string => {
  const texts = saveTexts[Number(isOne) as 0 | 1]
  const known = texts.get(before)
  if (known !== undefined) return known
  if (texts.size >= textLimit) texts.clear()
  const versionBefore = (count: string) => `written.version - ${count}`
  const text = insertText({ text: before, parameters }, versionBefore, "written, ", isOne)
  texts.set(before, text)
  return text
}

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
