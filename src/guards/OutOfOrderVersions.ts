/**
 * Finds aggregates with out-of-order versions in the queue: an event has a version that is not above the versions before it. Only a faulty writer
 * causes this. Sending such events would break the aggregate's order for good. None of its events is sent until an operator has removed the wrong
 * row, and the lane continues without it.
 *
 * This is rule 1 where it is cheap to check: within one fetch. Events that are sent are not compared, marked or not. Versions must rise, but need not
 * be contiguous. The late mark of a dispatcher that lost its lane may delete events behind a parked one. When that one returns, versions are missing
 * behind it. Nothing is lost: the missing events were acknowledged, together with all events before them.
 *
 * Decorates the {@link Queue}. Without it such an aggregate is sent in the order of the queue.
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { Lane } from "../outbox/Lane.ts"
import { PollRequests } from "../outbox/PollRequests.ts"
import { type Aggregate, aggregateKey, type Fetched, Queue, type QueuedEvent } from "../outbox/Queue.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as Rows from "../platform/Rows.ts"

/** How often the aggregates of a lane are checked again: at the interval of the poll. */
const checkMillis = 1_000
/** A check reads the whole lane. The next one waits for this multiple of its duration, so checks take at most a tenth of the time. */
const checkFactor = 10

/** If a lane has more such aggregates, the fault is not a single aggregate's: the lane stops with an error. */
const aggregateLimit = 1_000

/** Returns those of the aggregates that have out-of-order versions in the lane's queue. */
export type Check = (lane: Lane, aggregates: ReadonlyArray<Aggregate>) => Effect.Effect<ReadonlyArray<Aggregate>>

const allAggregates = Rows.all(Schema.Struct({ aggregateType: Schema.String, aggregateId: Schema.String }))

export class OutOfOrderVersions extends Context.Service<
  OutOfOrderVersions,
  {
    /** How many such aggregates each lane has, as of its last fetch, for health. */
    readonly counts: Effect.Effect<ReadonlyArray<{ readonly lane: Lane; readonly aggregates: number }>>
  }
>()("paid-once/guards/OutOfOrderVersions") {
  static readonly layerWith = (check: Check): Layer.Layer<OutOfOrderVersions | Queue, never, Queue | PollRequests> =>
    Layer.effectContext(
      Effect.gen(function* () {
        const queue = yield* Queue
        const pollRequests = yield* PollRequests
        const known = new Map<
          Lane,
          { readonly aggregates: ReadonlyMap<string, Aggregate>; readonly checkAtMillis: number }
        >()

        const note = Effect.fnUntraced(function* (
          lane: Lane,
          aggregates: ReadonlyMap<string, Aggregate>,
          waitMillis: number
        ) {
          if (aggregates.size === 0) known.delete(lane)
          else {
            known.set(lane, { aggregates, checkAtMillis: (yield* Monotonic.millis) + waitMillis })
            yield* pollRequests.after(waitMillis)
          }
          return [...aggregates.values()]
        })

        const checkAgain = Effect.fnUntraced(function* (lane: Lane, aggregates: ReadonlyArray<Aggregate>) {
          const began = yield* Monotonic.millis
          const still = new Map((yield* check(lane, aggregates)).map((one) => [aggregateKey(one), one]))
          const tookMillis = (yield* Monotonic.millis) - began
          for (const { aggregateId, aggregateType } of aggregates.filter((one) => !still.has(aggregateKey(one)))) {
            yield* Effect.logInfo("an aggregate is sent again: its versions rise").pipe(
              Effect.annotateLogs({ lane, aggregate_type: aggregateType, aggregate_id: aggregateId })
            )
          }
          return yield* note(lane, still, Math.max(checkMillis, checkFactor * tookMillis))
        })

        /** The aggregates that are not fetched from the lane. */
        const leftOut = Effect.fnUntraced(function* (lane: Lane) {
          const those = known.get(lane)
          if (those === undefined) return []
          const aggregates = [...those.aggregates.values()]
          if ((yield* Monotonic.millis) < those.checkAtMillis) return aggregates
          return yield* Effect.catchCause(checkAgain(lane, aggregates), (cause) =>
            // If the lane is so long that the check times out, the aggregates stay left out.
            Effect.logWarning("aggregates with out-of-order versions could not be checked", cause).pipe(
              Effect.annotateLogs({ lane }),
              Effect.andThen(note(lane, those.aggregates, checkFactor * checkMillis))
            )
          )
        })

        /** The lane's events without those of out-of-order aggregates, which are noted. */
        const sift = Effect.fnUntraced(function* (fetched: Fetched) {
          const { events, lane } = fetched
          const found = outOfOrderIn(events)
          if (found.size === 0) return fetched
          const all = new Map<string, Aggregate>([...(known.get(lane)?.aggregates ?? []), ...found])
          if (all.size > aggregateLimit) {
            return yield* Effect.die(
              new Error(
                `more than ${aggregateLimit} aggregates of the lane have out-of-order versions: nothing of it is sent`
              )
            )
          }
          yield* note(lane, all, checkMillis)
          for (const { aggregateId, aggregateType, sentence } of found.values()) {
            yield* Effect.logError(`an aggregate with out-of-order versions is not sent any more: ${sentence}`).pipe(
              Effect.annotateLogs({ lane, aggregate_type: aggregateType, aggregate_id: aggregateId })
            )
          }
          return { ...fetched, events: events.filter((event) => !found.has(aggregateKey(event))) }
        })

        return Context.make(
          Queue,
          Queue.of({
            ...queue,
            ready: Effect.fnUntraced(function* (views) {
              const ready = yield* queue.ready(views)
              if (known.size === 0) return ready
              // A fetch checks them again, so the lane must be fetched even if it has no other event.
              return [...new Set([...ready, ...views.map(({ lane }) => lane).filter((lane) => known.has(lane))])]
            }),
            fetch: Effect.fnUntraced(function* (parts, without) {
              const fetched = yield* queue.fetch(
                known.size === 0
                  ? parts
                  : yield* Effect.forEach(parts, (part) =>
                      Effect.map(leftOut(part.lane), (aggregates) =>
                        aggregates.length === 0
                          ? part
                          : { ...part, withoutAggregates: [...(part.withoutAggregates ?? []), ...aggregates] }
                      )
                    ),
                without
              )
              // Effects for the lanes run only where there is something to sift.
              return fetched.every(({ events }) => events.length < 2 || outOfOrderIn(events).size === 0)
                ? fetched
                : yield* Effect.forEach(fetched, sift)
            })
          })
        ).pipe(
          Context.add(OutOfOrderVersions, {
            counts: Effect.sync(() =>
              [...known].map(([lane, { aggregates }]) => ({ lane, aggregates: aggregates.size }))
            )
          })
        )
      })
    )

  static readonly layer: Layer.Layer<OutOfOrderVersions | Queue, never, Queue | PollRequests | SqlClient.SqlClient> =
    Layer.unwrap(
      Effect.map(SqlClient.SqlClient, (sql) =>
        OutOfOrderVersions.layerWith((lane, aggregates) =>
          Effect.orDie(
            allAggregates(sql`
            SELECT DISTINCT aggregate_type AS "aggregateType", aggregate_id AS "aggregateId"
            FROM (
              SELECT aggregate_type, aggregate_id,
                     aggregate_version <= lag(aggregate_version) OVER (PARTITION BY aggregate_type, aggregate_id ORDER BY seq) AS falls
              FROM outbox_events
              WHERE lane = ${lane}::int2 AND (aggregate_type, aggregate_id) IN (SELECT * FROM unnest(
                ${aggregates.map(({ aggregateType }) => aggregateType)}::text[], ${aggregates.map(({ aggregateId }) => aggregateId)}::text[]))
            ) AS versions
            WHERE falls`)
          )
        )
      )
    )
}

/** The aggregates with out-of-order versions in `events`, and where they are. Events of one aggregate that are not in order of `seq` are a defect. */
const outOfOrderIn = (
  events: ReadonlyArray<QueuedEvent>
): ReadonlyMap<string, Aggregate & { readonly sentence: string }> => {
  const last = new Map<string, QueuedEvent>()
  const found = new Map<string, Aggregate & { readonly sentence: string }>()
  for (const event of events) {
    const key = aggregateKey(event)
    const before = last.get(key)
    if (before !== undefined && event.aggregateVersion <= before.aggregateVersion) {
      const { aggregateId, aggregateType } = event
      const sentence = `${aggregateType} ${aggregateId}: version ${event.aggregateVersion} follows ${before.aggregateVersion} in the queue`
      if (event.seq <= before.seq) throw new Error(sentence)
      found.set(key, { aggregateType, aggregateId, sentence })
    }
    last.set(key, event)
  }
  return found
}
