/**
 * Hands events that a consumer has applied to its handler once more: those of a time, an aggregate or a type, from the archive.
 *
 * Marks and cursors stay as they are. So the consumer goes on where it was, and its own duplicates are still recognised. Only a subscriber that says so
 * gets an event again: one whose handler has a key of its own, which keeps the effect from happening twice. What it gets is
 *
 * - what it has applied: an event that it holds, or has not read yet, comes by itself, and one that was given up stays given up;
 * - in version order of each aggregate, with the aggregate's cursor locked, so that no later event of it is applied in between;
 * - page by page, each in a transaction with its entry in the audit. A replay that was cut off is run again: what it has done does nothing.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Option, Result, Schema } from "effect"
import { type SqlClient, SqlError } from "effect/sql"
import { toRecord } from "../../brokers/Envelope.ts"
import * as Arrival from "../../inbox/Arrival.ts"
import { aggregateKey } from "../../inbox/Cursors.ts"
import * as Handle from "../../inbox/Handle.ts"
import type { Subscriber } from "../../inbox/Subscriber.ts"
import { innermost } from "../../platform/Innermost.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import { keptSince } from "../../platform/Retention.ts"
import * as Rows from "../../platform/Rows.ts"
import { isTransient, Transaction } from "../../platform/Transaction.ts"
import { History, type ReplayCursor, type ReplayedEvent } from "../History.ts"
import * as Alone from "../rebuild/Alone.ts"
import * as AppliedRuns from "../rebuild/AppliedRuns.ts"

/** Which events; a field that is not set matches all. The time is that of the event, in `[from, to)`. */
export interface ReplayFilter {
  readonly aggregateId?: string
  readonly eventType?: string
  readonly from?: Date
  readonly to?: Date
}

const inWords = ({ aggregateId, eventType, from, to }: ReplayFilter): string =>
  [
    ...(eventType === undefined ? [] : [` of type ${eventType}`]),
    ...(aggregateId === undefined ? [] : [` of the aggregate ${aggregateId}`]),
    ...(from === undefined ? [] : [` from ${from.toISOString()} on`]),
    ...(to === undefined ? [] : [` before ${to.toISOString()}`])
  ].join("")

/** The events of a replay, by what becomes of them. */
export interface Counts {
  /** Handed over, or in a dry run those that would be. */
  readonly replayed: number
  /** Not applied yet, or held: they come by themselves. */
  readonly waiting: number
  /** Discarded or skipped for this consumer. */
  readonly givenUp: number
  /** So old that the handler's key may be forgotten, and the effect would happen twice. */
  readonly tooOld: number
}

export interface Replayed extends Counts {
  readonly consumer: string
  readonly dryRun: boolean
}

/** Nothing was handed over, or nothing more. `reason` is the rest of a sentence that begins with the consumer. */
export class ReplayRefused extends Schema.TaggedError<ReplayRefused>()("ReplayRefused", {
  consumer: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `${this.consumer} ${this.reason}`
  }
}

const cursorRows = Rows.all(
  Schema.Struct({ aggregateId: Schema.String, aggregateType: Schema.String, version: Schema.Int })
)
const floorRow = Rows.one(Schema.Struct({ floor: Schema.Number }))
const firstNow = Rows.one(Schema.Struct({ now: Schema.DateFromString }))

const nothing: Counts = { replayed: 0, waiting: 0, givenUp: 0, tooOld: 0 }
const sum = (a: Counts, b: Counts): Counts => ({
  replayed: a.replayed + b.replayed,
  waiting: a.waiting + b.waiting,
  givenUp: a.givenUp + b.givenUp,
  tooOld: a.tooOld + b.tooOld
})

/** Why the subscriber gets no event again; undefined where it may. */
const refusalOf = ({ name, replay }: Subscriber): string | undefined =>
  replay === undefined
    ? "gets no event again: its effect would happen twice"
    : replay === "rebuild"
      ? `gets no event again, for its effect would happen twice: paid-once rebuild ${name} makes its tables anew`
      : undefined

/**
 * The cursors of the events' aggregates, by {@link aggregateKey}. With `locks` the consumer applies no later version of them until the transaction ends.
 */
const cursorsOf = Effect.fnUntraced(function* (consumer: string, events: ReadonlyArray<ReplayedEvent>, locks: boolean) {
  const { sql } = yield* Transaction
  const aggregates = [...new Map(events.map((event) => [aggregateKey(event), event])).entries()]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([, event]) => event)
  const rows = yield* cursorRows(sql`
    SELECT c.aggregate_id AS "aggregateId", c.aggregate_type AS "aggregateType", c.version
    FROM unnest(${aggregates.map(({ aggregateId }) => aggregateId)}::text[],
                ${aggregates.map(({ aggregateType }) => aggregateType)}::text[]) WITH ORDINALITY AS a(id, type, at)
    JOIN consumer_cursors AS c ON c.consumer_name = ${consumer} AND c.aggregate_id = a.id AND c.aggregate_type = a.type
    ORDER BY a.at ${sql.literal(locks ? "FOR SHARE OF c" : "")}`)
  return new Map(rows.map((row) => [aggregateKey(row), row.version]))
})

/**
 * The time before which the subscriber's keys may be forgotten, in milliseconds. With `locks` upkeep deletes no further task until the
 * transaction ends.
 */
const floorOf = Effect.fnUntraced(function* ({ replay }: Subscriber, locks: boolean) {
  if (replay === "again") return Number.NEGATIVE_INFINITY
  const { sql } = yield* Transaction
  if (locks) yield* sql`SELECT FROM retention WHERE table_name = 'outbox_tasks' FOR SHARE`
  const { floor } = yield* floorRow(sql`
    SELECT extract(epoch FROM ${sql.literal(keptSince("outbox_tasks"))})::float8 * 1000 AS floor`)
  return floor
})

/** The events that the handler may get, and how many others there are, by why it may not. */
const select = Effect.fnUntraced(function* (
  consumer: string,
  events: ReadonlyArray<ReplayedEvent>,
  floor: number,
  locks: boolean
) {
  const cursors = yield* cursorsOf(consumer, events, locks)
  const topic = events[0]?.topic ?? ""
  const ids = [...new Set(events.map(({ aggregateId }) => aggregateId))]
  const gaps = Map.groupBy(yield* AppliedRuns.givenUp(consumer, topic, ids), aggregateKey)
  const chosen: Array<ReplayedEvent> = []
  let counts = nothing
  for (const event of events) {
    const key = aggregateKey(event)
    const version = event.aggregateVersion
    const isGivenUp = gaps.get(key)?.some(({ after, until }) => version > after && version <= until) === true
    if (version > (cursors.get(key) ?? 0)) counts = sum(counts, { ...nothing, waiting: 1 })
    else if (isGivenUp) counts = sum(counts, { ...nothing, givenUp: 1 })
    else if (Date.parse(event.occurredAt) < floor) counts = sum(counts, { ...nothing, tooOld: 1 })
    else chosen.push(event)
  }
  return { chosen, counts: { ...counts, replayed: chosen.length } }
})

/** The event as its consumer got it from the topic. */
const arrivalOf = (event: ReplayedEvent): ReadonlyArray<Arrival.ReadableArrival> => {
  const arrival = Arrival.make(event.topic, event.partition, { ...toRecord(event), offset: event.offset })
  return Result.isSuccess(arrival.read) ? [{ ...arrival, event: arrival.read.success }] : []
}

export class Replay extends Context.Service<
  Replay,
  {
    /**
     * Hands the filter's events to the subscriber's handler, and tells the counts after each page. Without an operator it is a dry run: it counts,
     * and changes nothing. Fails where the subscriber may get no event again, while another replay of it runs, and where the archive has no such event. It
     * also fails at an event that its handler can't apply; the pages before that one stand.
     */
    readonly run: (
      subscriber: Subscriber,
      filter: ReplayFilter,
      operator: OperatorAudit.Operator | undefined,
      tell: (counts: Counts) => Effect.Effect<void>
    ) => Effect.Effect<Replayed, ReplayRefused>
  }
>()("paid-once/operations/Replay") {
  static readonly layerNoDeps: Layer.Layer<Replay, never, PgClient.PgClient | History> = Layer.effect(
    Replay,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const history = yield* History
      const transact = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
        Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)

      const page = Effect.fnUntraced(function* (
        subscriber: Subscriber,
        events: ReadonlyArray<ReplayedEvent>,
        filter: ReplayFilter,
        operator: OperatorAudit.Operator | undefined
      ) {
        const consumer = subscriber.name
        const floor = yield* floorOf(subscriber, operator !== undefined)
        const { chosen, counts } = yield* select(consumer, events, floor, operator !== undefined)
        const [first] = chosen
        if (operator === undefined || first === undefined) return counts
        const running: Handle.Running = { arrival: undefined }
        yield* Effect.catch(Handle.all(subscriber, chosen.flatMap(arrivalOf), running), (error) =>
          isTransient(error)
            ? Effect.die(error)
            : new ReplayRefused({
                consumer,
                reason: `can't apply ${running.arrival?.eventId ?? `an event of ${first.aggregateId} or after it`}: ${innermost(error)}`
              })
        )
        yield* OperatorAudit.record({
          ...operator,
          action: "replay",
          subject: "consumer",
          subjectId: consumer,
          before: {},
          after: { filter, events: counts.replayed, firstEvent: first.eventId, lastEvent: chosen.at(-1)?.eventId }
        })
        const { afterCommit } = yield* Transaction
        yield* afterCommit(OperatorAudit.log(operator, `replayed ${counts.replayed} events to ${consumer}`))
        return counts
      })

      const replay: Replay["Service"]["run"] = Effect.fnUntraced(function* (subscriber, filter, operator, tell) {
        const { now } = yield* Effect.orDie(firstNow(client`SELECT clock_now()::timestamptz(3)::text AS now`))
        const range = { ...filter, topic: subscriber.topic, to: filter.to ?? now }
        let counts = nothing
        let after: ReplayCursor | undefined
        while (true) {
          const { events, next } = yield* history.replay(range, after)
          if (next === undefined) break
          counts = sum(counts, yield* transact(page(subscriber, events, filter, operator)))
          yield* tell(counts)
          after = next
        }
        // "0 events" would pass for good news where an id is misspelt.
        if (after === undefined) {
          return yield* new ReplayRefused({
            consumer: subscriber.name,
            reason: `gets no event again: the archive has no event of topic ${subscriber.topic}${inWords(filter)}`
          })
        }
        return { consumer: subscriber.name, dryRun: operator === undefined, ...counts }
      })

      return Replay.of({
        run: Effect.fn("Replay.run")(function* (subscriber, filter, operator, tell) {
          const consumer = subscriber.name
          const refusal = refusalOf(subscriber)
          if (refusal !== undefined) return yield* new ReplayRefused({ consumer, reason: refusal })
          const work = replay(subscriber, filter, operator, tell)
          if (operator === undefined) return yield* work
          const done = yield* Alone.run(`replay to ${consumer}`, work).pipe(
            Effect.provideService(PgClient.PgClient, client),
            Effect.catchIf(SqlError.isSqlError, Effect.die)
          )
          if (Option.isSome(done)) return done.value
          return yield* new ReplayRefused({ consumer, reason: "gets a replay already: one runs at a time" })
        })
      })
    })
  )

  static readonly layer: Layer.Layer<Replay, never, PgClient.PgClient | SqlClient.SqlClient> = Layer.provide(
    this.layerNoDeps,
    History.layer
  )
}
