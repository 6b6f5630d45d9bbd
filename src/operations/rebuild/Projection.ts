/** A projection that can be rebuilt: what a subscriber makes of a topic's events, in tables of its own. */
import type { Effect } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import type { Envelope } from "../../brokers/Envelope.ts"
import type { Subscriber } from "../../inbox/Subscriber.ts"
import type { Transaction } from "../../platform/Transaction.ts"

/** A table of a projection. */
export interface ProjectionTable {
  /** The table that is read, and that the subscriber writes. */
  readonly live: string
  /** The table in which a rebuild makes it anew: `CREATE TABLE … (LIKE live INCLUDING ALL)` in a migration. Nobody reads it. */
  readonly rebuilt: string
  /** The columns of the primary key. */
  readonly key: NonEmptyReadonlyArray<string>
}

/**
 * How a subscriber's tables are made anew. A subscriber has one where its effect is a function of its aggregates' events:
 *
 * - It writes these tables alone, in the transaction that it is given.
 * - It reads these tables and the event alone.
 * - It changes a row in one statement, or reads it FOR UPDATE first. Otherwise it could compute from a row that a swap has replaced.
 * - Its result does not depend on the order in which events of different aggregates come.
 * - Their columns have an equality (`jsonb`, not `json`). A column that takes the time of the write is new after a rebuild.
 */
export interface Projection {
  /** The subscriber. It has to begin at version 1: of an aggregate that it met later nothing says where it began. */
  readonly subscriber: Pick<Subscriber, "name" | "topic" | "firstSight">
  readonly tables: NonEmptyReadonlyArray<ProjectionTable>
  /** The effect of the subscriber's handler, on the `rebuilt` tables instead of the `live` ones: the same code, with other names. */
  readonly handleMany: (events: NonEmptyReadonlyArray<Envelope>) => Effect.Effect<void, unknown, Transaction>
}
