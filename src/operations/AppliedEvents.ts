/** Which events consumers have applied, for an order's timeline and other reports. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { keptSince } from "../platform/Retention.ts"
import * as Rows from "../platform/Rows.ts"
import * as Skips from "./Skips.ts"

/** The state of an event that a consumer has not applied. `parked` waits behind another event, or for one that has not come. */
export const WaitingState = Schema.Literals(["retrying", "parked", "dead", "discarded"])
export type WaitingState = typeof WaitingState.Type

const pairs = Rows.all(Schema.Struct({ pair: Schema.String }))
const held = Rows.all(Schema.Struct({ pair: Schema.String, state: WaitingState }))

export class AppliedEvents extends Context.Service<
  AppliedEvents,
  {
    /**
     * Which of an aggregate's events have been applied, as `consumer eventId`. `events` are all that are known of the aggregate: the record of a
     * skip names the event that the consumer went on with.
     *
     * Retention drops marks. An event whose mark may be gone counts as applied if the consumer's cursor has passed its version. A cursor
     * can pass a version without an effect in three ways: the event was discarded at the inbox, an operator skipped its version, or it is a
     * dead letter of the outbox. Each of them leaves a row.
     *
     * Two rare answers are wrong once a mark may be gone: a consumer with `firstSight: "any-version"` counts as having applied the versions before
     * its first event. And the events of a skip count as applied if the event that the skip names is not among `events`.
     */
    readonly applied: (
      consumers: ReadonlyArray<string>,
      aggregateId: string,
      events: ReadonlyArray<{ readonly eventId: string; readonly version: number }>
    ) => Effect.Effect<ReadonlySet<string>>
    /**
     * Which of these events a consumer holds or has given up, as `consumer eventId`, with their states. An event that never came, and without which
     * an operator let the consumer go on, is `discarded`. It may have come after all: an applied one is applied.
     */
    readonly waiting: (
      consumers: ReadonlyArray<string>,
      events: ReadonlyArray<{ readonly eventId: string; readonly version: number }>
    ) => Effect.Effect<ReadonlyMap<string, WaitingState>>
    /** Which of these events an operator skipped for a consumer, who and why. A skip is found if the event that it names is among `events`. */
    readonly skips: (
      consumers: ReadonlyArray<string>,
      events: ReadonlyArray<{ readonly eventId: string; readonly version: number }>
    ) => Effect.Effect<ReadonlyArray<Skips.Skip>>
  }
>()("paid-once/operations/AppliedEvents") {
  static readonly layer: Layer.Layer<AppliedEvents, never, SqlClient.SqlClient> = Layer.effect(
    AppliedEvents,
    Effect.map(SqlClient.SqlClient, (client) =>
      AppliedEvents.of({
        applied: Effect.fn("AppliedEvents.applied")(function* (consumers, aggregateId, events) {
          const ids = events.map(({ eventId }) => eventId)
          const rows = yield* pairs(client`
            SELECT consumer_name || ' ' || event_id::text AS pair FROM processed_events
            WHERE event_id = ANY(${ids}::uuid[]) AND consumer_name = ANY(${[...consumers]}::text[])
            UNION
            SELECT c.consumer_name || ' ' || e.id::text
            FROM unnest(${ids}::uuid[], ${events.map(({ version }) => version)}::int4[]) AS e(id, version)
            JOIN consumer_cursors AS c ON c.version >= e.version
            WHERE c.consumer_name = ANY(${[...consumers]}::text[]) AND c.aggregate_id = ${aggregateId}
              AND uuid_v7_time(e.id) < ${client.literal(keptSince("processed_events"))}
              AND NOT EXISTS (SELECT FROM inbox_dead_letters AS d
                              WHERE d.consumer_name = c.consumer_name AND d.event_id = e.id::text)
              AND NOT EXISTS (SELECT FROM outbox_dead_letters AS d WHERE d.event_id = e.id)
              AND NOT EXISTS (
                SELECT FROM operator_audit AS a
                WHERE a.subject = 'inbox event' AND a.action = 'skip'
                  -- An ARRAY is looked up in the index. Without it Postgres would read every skip there ever was.
                  AND a.subject_id = ANY (ARRAY(SELECT c.consumer_name || ' ' || id::text FROM unnest(${ids}::uuid[]) AS id))
                  AND (a.before ->> 'version')::int4 < e.version AND (a.after ->> 'version')::int4 >= e.version)`)
          return new Set(rows.map((row) => row.pair))
        }, Effect.orDie),

        waiting: Effect.fn("AppliedEvents.waiting")(function* (consumers, events) {
          const ids = events.map(({ eventId }) => eventId)
          const rows = yield* held(client`
            SELECT p.consumer_name || ' ' || p.event_id AS pair,
                   CASE WHEN h.event_id = p.event_id AND h.status = 'retrying' THEN 'retrying' ELSE 'parked' END AS state
            FROM inbox_parked AS p JOIN inbox_holds AS h USING (consumer_name, aggregate_id)
            WHERE p.event_id = ANY (${ids}::text[]) AND p.consumer_name = ANY (${[...consumers]}::text[])
            UNION ALL
            SELECT consumer_name || ' ' || event_id, status FROM inbox_dead_letters
            WHERE event_id = ANY (${ids}::text[]) AND consumer_name = ANY (${[...consumers]}::text[])
`)
          const skipped = yield* Skips.of(client, consumers, events)
          return new Map([
            ...rows.map(({ pair, state }) => [pair, state] as const),
            ...skipped.map(({ consumer, eventId }) => [`${consumer} ${eventId}`, "discarded"] as const)
          ])
        }, Effect.orDie),

        skips: Effect.fn("AppliedEvents.skips")(
          (consumers, events) => Skips.of(client, consumers, events),
          Effect.orDie
        )
      })
    )
  )
}
