/**
 * Fills the archive from the topic: the events that a consumer has applied and that the archive lacks, because retention has dropped them or it was off. A
 * rebuild and a replay then find them as if they had never been gone.
 *
 * It may run beside the service, be killed at any moment, and be run again: it only adds rows, a slice of records in a transaction. A row that is there
 * stays as it is. It counts the events that it does not add, and names those at which a person should look.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Option, Schema, Semaphore } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import type { BrokerUnavailable, ConsumedRecord, TopicUnavailable } from "../../brokers/Broker.ts"
import * as SentEvents from "../../brokers/SentEvents.ts"
import { TopicReader, type TopicSlice } from "../../brokers/TopicReader.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import * as Retention from "../../platform/Retention.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import * as ArchiveRows from "./ArchiveRows.ts"
import * as Alone from "../rebuild/Alone.ts"
import { type Standing, standingsOf, type TopicEvent } from "./Standings.ts"

/** What is filled from. */
export interface Source {
  readonly topic: string
  /** All consumers of the topic: what none of them has applied is left out. */
  readonly consumers: ReadonlyArray<string>
  /** Only records that the topic got in the last so many seconds; all of them where it is absent. */
  readonly sinceSeconds?: number
  readonly erasable?: Erasable
}

/** What an erasure takes out of events: the topic has it still, and the archive must not get it back. */
export interface Erasable {
  /** The field of the events' data in whose value's place an erasure leaves `erased-` and the aggregate's id. */
  readonly field: string
  /** The ids of those of the events' aggregates that an erasure has been at. It locks them all against one that begins meanwhile. */
  readonly erasedOf: (
    events: ReadonlyArray<Pick<TopicEvent, "aggregateType" | "aggregateId">>
  ) => Effect.Effect<ReadonlySet<string>, SqlError.SqlError, Transaction>
}

/** The records of the topic, by what became of them. */
export interface Counts {
  readonly read: number
  /** Events that the archive lacked, and has now; of a dry run, would have. */
  readonly filled: number
  readonly present: number
  /** Events that came before the time that was asked for. */
  readonly older: number
  /** Records that no outbox has sent, and tombstones. */
  readonly foreign: number
  /** Events that no consumer has applied. */
  readonly unknown: number
  /** Events that the archive has as an erasure has left them. */
  readonly erased: number
  /** Events that differ from what the archive has under their id, or under their version. */
  readonly different: number
}

/** An event that was not filled in. */
export interface NamedEvent {
  readonly eventId: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly version: number
}

export interface Refilled extends Counts {
  readonly topic: string
  readonly dryRun: boolean
  /** The first of the events that are counted under these names. */
  readonly named: { readonly unknown: ReadonlyArray<NamedEvent>; readonly different: ReadonlyArray<NamedEvent> }
}

/** How far a refill is. `total` counts the topic's records when it began, at most; once it has read them all, those that it has read. */
export interface Progress extends Counts {
  readonly phase: "reading" | "read"
  readonly total: number
}

/** Nothing was changed. */
export class RefillRefused extends Schema.TaggedError<RefillRefused>()("RefillRefused", {
  topic: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the archive is not filled from topic ${this.topic}: ${this.reason}`
  }
}

/** How many events of a kind are named: enough to look at. */
const namedEvents = 5

const nothing: Counts = { read: 0, filled: 0, present: 0, older: 0, foreign: 0, unknown: 0, erased: 0, different: 0 }
const firstNow = Rows.one(Schema.Struct({ now: Schema.DateFromString }))

/** The event in a record that an outbox has sent; undefined for any other record. */
const eventOf = (topic: string, partition: number, record: ConsumedRecord): TopicEvent | undefined => {
  const event = SentEvents.toStored(topic, record)
  // The archive's days are in ids of version 7, which an outbox draws.
  return event === undefined || event.eventId[14] !== "7"
    ? undefined
    : {
        ...event,
        partition,
        offset: record.offset,
        timestampMillis: record.timestampMillis ?? Date.parse(event.occurredAt)
      }
}

/** The event as an erasure leaves it. The same expression as in `standingsOf`. */
const erasedEvent = (event: TopicEvent, field: string): TopicEvent => ({
  ...event,
  data: event.data.replace(
    new RegExp(`"${field}":"(?:[^"\\\\]|\\\\.)*"`),
    () => `"${field}":"erased-${event.aggregateId}"`
  )
})

export class Refill extends Context.Service<
  Refill,
  {
    /**
     * Reads the whole topic, fills in what is lost, and tells the counts after each slice and at the end. Without an operator it is a dry run: it counts, and changes
     * nothing. It is refused while another refill of the topic runs, and where upkeep would soon drop the events again.
     */
    readonly run: (
      source: Source,
      operator: OperatorAudit.Operator | undefined,
      tell: (progress: Progress) => Effect.Effect<void>
    ) => Effect.Effect<Refilled, RefillRefused | BrokerUnavailable | TopicUnavailable>
  }
>()("paid-once/operations/Refill") {
  static readonly layer: Layer.Layer<Refill, never, PgClient.PgClient | SqlClient.SqlClient | TopicReader> =
    Layer.effect(
      Refill,
      Effect.gen(function* () {
        const client = yield* PgClient.PgClient
        const { read } = yield* TopicReader
        const own = yield* Retention.RetentionSettings
        const onDatabase = <A>(
          effect: Effect.Effect<A, SqlError.SqlError, PgClient.PgClient | SqlClient.SqlClient>
        ): Effect.Effect<A> =>
          effect.pipe(
            Effect.provideService(PgClient.PgClient, client),
            Effect.provideService(SqlClient.SqlClient, client),
            Effect.orDie
          )
        const transact = <A>(effect: Effect.Effect<A, SqlError.SqlError, Transaction>) =>
          onDatabase(Transaction.run(effect))

        /** Writes lost events into the partitions of their days, those of erased aggregates as the erasure would have left them. */
        const fill = Effect.fnUntraced(function* (events: ReadonlyArray<TopicEvent>, erasable: Erasable | undefined) {
          yield* onDatabase(ArchiveRows.makeDays(events))
          return yield* transact(
            Effect.gen(function* () {
              if (erasable === undefined) return yield* ArchiveRows.insert(events)
              const erased = yield* erasable.erasedOf(events)
              return yield* ArchiveRows.insert(
                events.map((event) => (erased.has(event.aggregateId) ? erasedEvent(event, erasable.field) : event))
              )
            })
          )
        })

        const refill = Effect.fnUntraced(function* (
          { consumers, erasable, sinceSeconds, topic }: Source,
          operator: OperatorAudit.Operator | undefined,
          tell: (progress: Progress) => Effect.Effect<void>
        ) {
          const { now } = yield* onDatabase(firstNow(client`SELECT clock_now()::timestamptz(3)::text AS now`))
          const floor = sinceSeconds === undefined ? -Infinity : now.getTime() - sinceSeconds * 1_000
          let counts = nothing
          const named = { unknown: [] as Array<NamedEvent>, different: [] as Array<NamedEvent> }

          const slice = Effect.fnUntraced(function* ({ ofAll, partition, records }: TopicSlice) {
            const all = records.flatMap((record) => eventOf(topic, partition, record) ?? [])
            const events = all.filter(({ timestampMillis }) => timestampMillis >= floor)
            const standings =
              events.length === 0 ? [] : yield* onDatabase(standingsOf(topic, consumers, events, erasable?.field))
            const of = (standing: Standing) => events.filter((_, index) => standings[index] === standing)
            const lost = of("lost")
            const filled = operator === undefined || lost.length === 0 ? lost.length : yield* fill(lost, erasable)
            for (const kind of ["unknown", "different"] as const) {
              const room = namedEvents - named[kind].length
              named[kind].push(
                ...of(kind)
                  .slice(0, room)
                  .map(({ aggregateId, aggregateType, aggregateVersion, eventId }) => ({
                    eventId,
                    aggregateType,
                    aggregateId,
                    version: aggregateVersion
                  }))
              )
            }
            counts = {
              read: counts.read + records.length,
              filled: counts.filled + filled,
              present: counts.present + of("present").length + lost.length - filled,
              older: counts.older + all.length - events.length,
              foreign: counts.foreign + records.length - all.length,
              unknown: counts.unknown + of("unknown").length,
              erased: counts.erased + of("erased").length,
              different: counts.different + of("different").length
            }
            yield* tell({ ...counts, phase: "reading", total: Math.max(ofAll, counts.read) })
          })
          // Partitions come concurrently. One slice at a time spares the service that runs beside.
          const turn = Semaphore.makeUnsafe(1)
          const record = (after: object) =>
            operator === undefined
              ? Effect.void
              : transact(
                  Effect.gen(function* () {
                    yield* OperatorAudit.record({
                      ...operator,
                      action: "refill",
                      subject: "archive",
                      subjectId: topic,
                      before: {},
                      after: { ...after }
                    })
                    const { afterCommit } = yield* Transaction
                    yield* afterCommit(
                      OperatorAudit.log(operator, `fills the archive from ${topic}: ${JSON.stringify(after)}`)
                    )
                  })
                )
          // Of one that is killed the audit has the beginning.
          yield* record({ status: "begun", ...(sinceSeconds === undefined ? {} : { sinceSeconds }) })
          yield* read(topic, (one) => turn.withPermit(slice(one)))
          yield* tell({ ...counts, phase: "read", total: counts.read })
          yield* record({ status: "ended", ...counts })
          const refilled: Refilled = { topic, dryRun: operator === undefined, ...counts, named }
          return refilled
        })

        return Refill.of({
          run: Effect.fn("Refill.run")(function* (source, operator, tell) {
            const { sinceSeconds = Infinity, topic } = source
            const work = refill(source, operator, tell)
            if (operator === undefined) return yield* work
            const noted = yield* onDatabase(Retention.noted)
            const outboxDays = noted.get("event_log")?.days ?? own.outboxDays
            if (outboxDays > 0 && sinceSeconds > outboxDays * 86_400) {
              return yield* new RefillRefused({
                topic,
                reason:
                  `it keeps events ${Retention.inWords(outboxDays)} (OUTBOX_RETENTION_DAYS), and older ones would be ` +
                  `dropped again. Start the service with OUTBOX_RETENTION_DAYS=0 first, or fill in --since ${outboxDays}d`
              })
            }
            const done = yield* Alone.run(`refill from ${topic}`, work).pipe(
              Effect.provideService(PgClient.PgClient, client),
              Effect.catchIf(SqlError.isSqlError, Effect.die)
            )
            if (Option.isSome(done)) return done.value
            return yield* new RefillRefused({ topic, reason: "that is under way already: one refill runs at a time" })
          })
        })
      })
    )
}
