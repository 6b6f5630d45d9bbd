/**
 * The outbox: events that commit together with the change they announce, or not at all.
 */
import { Context, Effect, Layer, Result, Schema } from "effect"
import type { Statement } from "effect/sql"
import { topicName } from "../brokers/Broker.ts"
import * as Envelope from "../brokers/Envelope.ts"
import { Faults } from "../platform/Faults.ts"
import { Ids } from "../platform/Ids.ts"
import { RandomUuid } from "../platform/RandomUuid.ts"
import * as Tracing from "../platform/Tracing.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Lane, laneCount, laneOf } from "./Lane.ts"
import { LaneWakeup } from "./LaneWakeup.ts"

/** The aggregate that events belong to. All of an aggregate's events go to one topic, in order. */
export interface Stream {
  readonly topic: string
  /** At most 500 characters and 1,000 bytes, as the id and an event's type (`Envelope.faultOfName`). */
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

/** The event could never be published or read: it is too large, a name is none or too long, or its data is no JSON. Nothing was written. */
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

/** What the column, a smallint, holds. */
const maxSchemaVersion = 32_767

/** Bounds of an append. */
export const OutboxSettings = Context.Reference<{ readonly maxEventBytes: number }>("paid-once/outbox/OutboxSettings", {
  // Below Kafka's default max.message.bytes (1,048,588), with room for the batch around the record.
  defaultValue: () => ({ maxEventBytes: 900_000 })
})

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
   * Runs the aggregate's own `write` and appends `events`, in one statement: a row that changes without an event and an event
   * without its row can't be, nor can a gap in the versions, where `write` does as it is asked to.
   *
   * **Details**
   *
   * `write` inserts or updates exactly the aggregate's row, adds the number of events to its version, and returns the new
   * version: `UPDATE … SET version = version + 1 … WHERE id = … AND version = … RETURNING version`. Where it hits no row the
   * whole statement writes nothing and fails with {@link NothingWritten}. `also` are further writes of the same statement
   * (an order's lines); each must select from the relation `written`, which is empty where nothing was written.
   * Returns the new version. A `write` that hits several rows is a defect.
   */
  readonly save: (
    stream: Stream,
    events: NonEmpty<NewEvent>,
    write: Statement.Statement<{ readonly version: number }>,
    also?: (written: Statement.Fragment) => ReadonlyArray<Statement.Statement<unknown>>
  ) => Effect.Effect<number, EventRefused | NothingWritten, Transaction>
}

export class Outbox extends Context.Service<Outbox, OutboxService>()("paid-once/outbox/Outbox") {
  static readonly layer = Layer.effect(
    Outbox,
    Effect.gen(function* () {
      const wakeup = yield* LaneWakeup
      const faults = yield* Faults
      const { maxEventBytes } = yield* OutboxSettings
      const drawUuid = yield* RandomUuid
      const ids = yield* Ids

      /** The events as rows to be inserted. Plain code: it is part of every business transaction. */
      const encode = (
        stream: Stream,
        events: NonEmpty<NewEvent>,
        trace: Trace
      ): Result.Result<Encoded, EventRefused> => {
        const refuse = (reason: string) => Result.fail(new EventRefused({ eventType: events[0].eventType, reason }))
        if (!topicName.test(stream.topic)) return refuse(`its topic "${stream.topic}" is no name that a broker has`)
        for (const name of ["aggregateType", "aggregateId"] as const) {
          const fault = Envelope.faultOfName(stream[name])
          if (fault !== undefined) return refuse(`its ${name} ${fault}`)
        }
        const rows: Array<Row> = []
        for (const event of events) {
          const row = encodeEvent(event, stream, maxEventBytes, ids.next)
          if (Result.isFailure(row)) return Result.fail(row.failure)
          rows.push(row.success)
        }
        return Result.succeed({ rows, trace, lane: laneOf(stream.aggregateId) })
      }

      /** What happens after the commit, by lane: made once, for it is the same each time. */
      const wakes = Array.from({ length: laneCount }, (_, lane) =>
        Effect.andThen(faults.at("outbox.after-commit"), wakeup.wake(Lane.make(lane))).pipe(
          Effect.andThen(faults.at("outbox.after-wake"))
        )
      )
      const announce = ({ lane }: Encoded, { afterCommit }: Handle) =>
        Effect.andThen(faults.at("outbox.after-append"), afterCommit(wakes[lane] ?? Effect.void))

      const append: OutboxService["append"] = (stream, version, events) =>
        Effect.contextWith((context: Context.Context<Transaction>) => {
          const transaction = Context.get(context, Transaction)
          const encoded = encode(stream, events, traceOf(context, drawUuid))
          if (Result.isFailure(encoded)) return Effect.fail(encoded.failure)
          const values = [...valuesOf(stream, encoded.success), version]
          return Effect.orDie(transaction.sql.unsafe(events.length === 1 ? appendText : appendManyText, values)).pipe(
            Effect.andThen(announce(encoded.success, transaction))
          )
        })

      const save: OutboxService["save"] = (stream, events, write, also) =>
        Effect.contextWith((context: Context.Context<Transaction>) => {
          const transaction = Context.get(context, Transaction)
          const { sql } = transaction
          const encoded = encode(stream, events, traceOf(context, drawUuid))
          if (Result.isFailure(encoded)) return Effect.fail<EventRefused | NothingWritten>(encoded.failure)
          const [before, parameters] = writes(sql, write, also)
          const text = before + saveText(parameters.length, events.length === 1)
          const values = [...parameters, ...valuesOf(stream, encoded.success)]
          return Effect.flatMap(
            Effect.orDie(sql.unsafe<{ readonly aggregate_version: number }>(text, values)),
            (rows): Effect.Effect<number, NothingWritten> => {
              const last = rows.at(-1)
              if (rows.length > events.length) {
                return Effect.die(
                  new Error(`the write of ${stream.aggregateType} ${stream.aggregateId} hits several rows`)
                )
              }
              return last === undefined
                ? Effect.fail(new NothingWritten({ aggregateId: stream.aggregateId }))
                : Effect.as(announce(encoded.success, transaction), last.aggregate_version)
            }
          )
        })

      return Outbox.of({ append, save })
    })
  )
}

/** What of an event's row is its own, and not its aggregate's. */
interface Row {
  readonly eventId: string
  readonly eventType: string
  readonly schemaVersion: number
  readonly recordBytes: number
  /** JSON text. */
  readonly data: string
}

/** What {@link Outbox} writes of an append: its events, where they go, and the trace they belong to. */
interface Encoded {
  readonly rows: ReadonlyArray<Row>
  readonly trace: Trace
  readonly lane: Lane
}

type Handle = Context.Service.Shape<typeof Transaction>

interface Trace {
  readonly traceId: string
  readonly spanId: string
}

/** What stands in front of a save's INSERT: the aggregate's write, and further ones. */
const writes = (
  sql: Statement.Constructor,
  write: Statement.Statement<unknown>,
  also: ((written: Statement.Fragment) => ReadonlyArray<Statement.Statement<unknown>>) | undefined
): readonly [text: string, parameters: ReadonlyArray<unknown>] => {
  if (also === undefined) {
    // Nearly every save, and a template around it would cost as much as the write's own.
    const [text, parameters] = write.compile()
    return [`WITH written AS (${text})`, parameters]
  }
  const more = also(sql`written`).map((statement, index) => sql`${sql(`also_${index}`)} AS (${statement})`)
  return sql`WITH ${sql.csv([sql`written AS (${write})`, ...more])}`.compile()
}

/**
 * The statement that writes events, less what stands in front of it with its own `parameters`. The events' versions end at that of `written`, where
 * the statement has written the aggregate, and else begin at the last parameter.
 */
const insertText = (parameters: number, version: "written" | "given", isOne: boolean): string => {
  const $ = (index: number, type: string) => `$${parameters + index}::${type}`
  const list = isOne ? "" : "[]"
  const own = [
    $(7, `uuid${list}`),
    $(8, `text${list}`),
    $(9, `int2${list}`),
    $(10, `int4${list}`),
    $(11, `text${list}`)
  ]
  // A single event, which is nearly every append, is its parameters: to scan and sort a list of one would cost as much as the row.
  const [eventId, type, schemaVersion, recordBytes, data] = isOne
    ? own
    : ["event.event_id", "event.type", "event.schema_version", "event.record_bytes", "event.data"]
  const versions = {
    written: isOne ? "written.version" : `written.version - cardinality(${own[0]}) + event.position::int4`,
    given: isOne ? $(12, "int4") : `${$(12, "int4")} - 1 + event.position::int4`
  }
  return (
    ` INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id,` +
    ` aggregate_version, occurred_at, trace_id, span_id, record_bytes, data)` +
    ` SELECT ${$(1, "int2")}, ${eventId}, ${$(2, "text")}, ${type}, ${schemaVersion}, ${$(3, "text")}, ${$(4, "text")},` +
    ` ${versions[version]}, clock.now, ${$(5, "text")}, ${$(6, "text")}, ${recordBytes}, ${data}::json` +
    ` FROM (SELECT clock_now() AS now) AS clock${version === "written" ? ", written" : ""}` +
    (isOne
      ? ""
      : `, unnest(${own.join(", ")}) WITH ORDINALITY AS event(event_id, type, schema_version, record_bytes, data, position)` +
        ` ORDER BY event.position`) +
    ` RETURNING aggregate_version`
  )
}

/** The parameters of {@link insertText}, but for the version where it is given. */
const valuesOf = (
  { aggregateId, aggregateType, topic }: Stream,
  { lane, rows, trace: { spanId, traceId } }: Encoded
): ReadonlyArray<unknown> => {
  const column = (name: keyof Row) => (rows.length === 1 ? rows[0]?.[name] : rows.map((row) => row[name]))
  const own = [column("eventId"), column("eventType"), column("schemaVersion"), column("recordBytes"), column("data")]
  return [lane, topic, aggregateType, aggregateId, traceId, spanId, ...own]
}

const appendText = insertText(0, "given", true)
const appendManyText = insertText(0, "given", false)

/**
 * The ends of a save's text, for one event and for several, by the parameters in front: put together for each save they would be a good part of
 * its cost. Beyond so many a write has a list in it, and its numbers are too many to be remembered.
 */
const rememberedParameters = 64
const saveTexts = [true, false].map((isOne) =>
  Array.from({ length: rememberedParameters }, (_, parameters) => insertText(parameters, "written", isOne))
)
const saveText = (parameters: number, isOne: boolean): string =>
  saveTexts[isOne ? 0 : 1]?.[parameters] ?? insertText(parameters, "written", isOne)

/** The trace of the request that is being served, or one of its own for work that nobody traces. */
const traceOf = (context: Context.Context<never>, drawUuid: () => string): Trace => {
  const span = Tracing.spanOf(context)
  return {
    // A tracer may number its spans otherwise; the wire wants 32 and 16 hex digits.
    traceId: span !== undefined && /^[0-9a-f]{32}$/.test(span.traceId) ? span.traceId : hex(drawUuid()),
    spanId: span !== undefined && /^[0-9a-f]{16}$/.test(span.spanId) ? span.spanId : hex(drawUuid()).slice(0, 16)
  }
}

const hex = (uuid: string) => uuid.replaceAll("-", "")

/** The event's row, once it is sure that its record fits into the topic. */
const encodeEvent = (
  { data, eventType, schemaVersion }: NewEvent,
  { aggregateId, aggregateType }: Stream,
  maxEventBytes: number,
  nextId: () => string
): Result.Result<Row, EventRefused> => {
  const refuse = (reason: string) => Result.fail(new EventRefused({ eventType, reason }))
  const fault = Envelope.faultOfName(eventType)
  if (fault !== undefined) return refuse(`its eventType ${fault}`)
  if (!(Number.isInteger(schemaVersion) && schemaVersion >= 1 && schemaVersion <= maxSchemaVersion)) {
    return refuse(`its schemaVersion ${schemaVersion} is not between 1 and ${maxSchemaVersion}`)
  }
  let text: string | undefined
  try {
    text = JSON.stringify(data)
  } catch (error) {
    return refuse(`its data is no JSON: ${String(error)}`)
  }
  if (text === undefined) return refuse("its data is no JSON: undefined")
  const recordBytes = Envelope.widestRecordBytes({ eventType, schemaVersion, aggregateType, aggregateId, data: text })
  return recordBytes > maxEventBytes
    ? refuse(`it takes ${recordBytes} bytes, and ${maxEventBytes} are allowed (OUTBOX_MAX_EVENT_BYTES)`)
    : Result.succeed({ eventId: nextId(), eventType, schemaVersion, recordBytes, data: text })
}
