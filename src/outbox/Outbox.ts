/**
 * The outbox: events that commit together with the change they announce, or not at all.
 *
 * `save` is the way to change an aggregate: its row and its events are written by one statement, and the events take their versions from
 * the row. An event without its change, a change without its event, and a gap in the versions therefore can't commit.
 */
import { Context, Effect, Layer, Result, Schema } from "effect"
import type { Statement } from "effect/sql"
import { topicName } from "../brokers/Broker.ts"
import * as Envelope from "../brokers/Envelope.ts"
import { Faults } from "../platform/Faults.ts"
import { Ids } from "../platform/Ids.ts"
import { RandomUuid } from "../platform/RandomUuid.ts"
import { Transaction } from "../platform/Transaction.ts"
import { appendText, beforeInsert, encodeEvent, type EventRow, saveText, traceOf, valuesOf } from "./EventRows.ts"
import { Lane, laneCount, laneOf } from "./Lane.ts"
import { LaneWakeup } from "./LaneWakeup.ts"
import type { AggregateRef, NewEvent, NonEmpty } from "./NewEvent.ts"

export type { AggregateRef, NewEvent, NonEmpty } from "./NewEvent.ts"

/** The event could never be published or read: it is too large, a name is invalid, or its data is not JSON. Nothing was written. */
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
export const OutboxSettings = Context.Reference<{ readonly maxEventBytes: number }>("paid-once/outbox/OutboxSettings", {
  // Below Kafka's default max.message.bytes (1,048,588), with room for the batch around the record.
  defaultValue: () => ({ maxEventBytes: 900_000 })
})

/** See {@link Outbox}. */
export interface OutboxService {
  /**
   * Writes `events` in the surrounding transaction. They will be published if it commits, and never if it rolls back.
   *
   * **Details**
   *
   * `version` is the version of the first event; the others follow it. Versions of an aggregate are contiguous from 1. They
   * must be taken under a lock that all writers of the aggregate take (its row's): then version order is commit order.
   * {@link OutboxService.save} does both in one statement; prefer it.
   */
  readonly append: (
    aggregate: AggregateRef,
    version: number,
    events: NonEmpty<NewEvent>
  ) => Effect.Effect<void, EventRefused, Transaction>
  /**
   * Runs the aggregate's own `write` and appends `events`, in one statement. Returns the row that `write` returned, as it is.
   *
   * **Details**
   *
   * `write` inserts or updates exactly the aggregate's row, adds the number of events to its version, and returns at
   * least the new version: `UPDATE … SET version = version + 1 … WHERE id = … AND version = … RETURNING version`. If it hits no row, the
   * whole statement writes nothing and fails with {@link NothingWritten}. A `write` that hits several rows is a defect.
   * `also` are further writes of the same statement (an order's lines). Each must select from the relation `written`, which
   * is empty if `write` hit no row.
   */
  readonly save: <Row extends { readonly version: number }>(
    aggregate: AggregateRef,
    events: NonEmpty<NewEvent>,
    write: Statement.Statement<Row>,
    also?: (written: Statement.Fragment) => ReadonlyArray<Statement.Statement<unknown>>
  ) => Effect.Effect<Row, EventRefused | NothingWritten, Transaction>
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

      /** The events as rows. Plain code, without an Effect: it is part of every business transaction. */
      const encode = (
        aggregate: AggregateRef,
        events: NonEmpty<NewEvent>
      ): Result.Result<ReadonlyArray<EventRow>, EventRefused> => {
        const refuse = (eventType: string, reason: string) => Result.fail(new EventRefused({ eventType, reason }))
        const [{ eventType }] = events
        if (!topicName.test(aggregate.topic))
          return refuse(eventType, `its topic "${aggregate.topic}" is not a topic's name`)
        for (const name of ["aggregateType", "aggregateId"] as const) {
          const fault = Envelope.faultOfName(aggregate[name])
          if (fault !== undefined) return refuse(eventType, `its ${name} ${fault}`)
        }
        const rows: Array<EventRow> = []
        for (const event of events) {
          const row = encodeEvent(event, aggregate, maxEventBytes, ids.next)
          if (Result.isFailure(row)) return refuse(event.eventType, row.failure)
          rows.push(row.success)
        }
        return Result.succeed(rows)
      }

      /** For each lane, the effect of a commit. Made once, since it is the same each time. */
      const wakes = Array.from({ length: laneCount }, (_, lane) =>
        Effect.andThen(faults.at("outbox.after-commit"), wakeup.wake(Lane.make(lane))).pipe(
          Effect.andThen(faults.at("outbox.after-wake"))
        )
      )
      /** After the commit the lane is woken. That is a hint: the rows are the promise. */
      const announce = (lane: Lane, { afterCommit }: Context.Service.Shape<typeof Transaction>) =>
        Effect.andThen(faults.at("outbox.after-append"), afterCommit(wakes[lane] ?? Effect.void))

      const append: OutboxService["append"] = (aggregate, version, events) =>
        Effect.contextWith((context: Context.Context<Transaction>) => {
          const transaction = Context.get(context, Transaction)
          const rows = encode(aggregate, events)
          if (Result.isFailure(rows)) return Effect.fail(rows.failure)
          const lane = laneOf(aggregate.aggregateId)
          const values = [...valuesOf(aggregate, lane, rows.success, traceOf(context, drawUuid)), version]
          return Effect.orDie(transaction.sql.unsafe(appendText(events.length === 1), values)).pipe(
            Effect.andThen(announce(lane, transaction))
          )
        })

      const save: OutboxService["save"] = (aggregate, events, write, also) =>
        Effect.contextWith((context: Context.Context<Transaction>) => {
          const transaction = Context.get(context, Transaction)
          const { sql } = transaction
          const encoded = encode(aggregate, events)
          if (Result.isFailure(encoded)) return Effect.fail<EventRefused | NothingWritten>(encoded.failure)
          const lane = laneOf(aggregate.aggregateId)
          const [before, parameters] = beforeInsert(sql, write, also)
          const text = before + saveText(parameters.length, events.length === 1)
          const values = [...parameters, ...valuesOf(aggregate, lane, encoded.success, traceOf(context, drawUuid))]
          return Effect.flatMap(
            // oxlint-disable-next-line paid-once/decoded-rows -- part of every business transaction, and the caller's own row
            Effect.orDie(sql.unsafe<Effect.Success<typeof write>[number]>(text, values)),
            ([row, ...others]) => {
              const { aggregateId, aggregateType } = aggregate
              if (row === undefined) return Effect.fail(new NothingWritten({ aggregateId }))
              return others.length === 0
                ? Effect.as(announce(lane, transaction), row)
                : Effect.die(new Error(`the write of ${aggregateType} ${aggregateId} hits several rows`))
            }
          )
        })

      return Outbox.of({ append, save })
    })
  )
}
