/** The shape of an order's journey: what has happened to it, hop by hop, and what it waits for. Journey.ts tells it. */
import { Schema } from "effect"
import { OrderId } from "../../domain/Ids.ts"
import { OrderSummary } from "../Orders.ts"

/**
 * How far a hop is. `done`; `now`: under way; `retrying`: it failed, and is tried again; `gap`: an earlier version has not come to the consumer; `parked`: behind an earlier event of the order; `waiting`:
 * for something else that `why` names; `dead`: for an operator; `discarded`: an operator has ended it; `dropped`: retention has deleted what would tell.
 */
export const HopState = Schema.Literals([
  "done",
  "now",
  "retrying",
  "gap",
  "parked",
  "waiting",
  "dead",
  "discarded",
  "dropped"
])
export type HopState = typeof HopState.Type

/**
 * What a hop is. `commit` is the transaction that holds the order's row and its event. `task` is what a consumer asks for, such as a mail.
 */
export const HopKind = Schema.Literals([
  "request",
  "intent",
  "charge",
  "commit",
  "lane",
  "broker",
  "consumer",
  "task",
  "mail"
])
export type HopKind = typeof HopKind.Type

/** A fact for a person to read, such as `partition` and `5`. */
export const Fact = Schema.Struct({ name: Schema.String, value: Schema.String })

/** One step of the way. */
export const Hop = Schema.Struct({
  /** Unique within its leg, and the same each time that the journey is read. */
  id: Schema.String,
  kind: HopKind,
  /** The hop that it follows; null for the first one. Several hops may follow one: each consumer reads the same record. */
  after: Schema.NullOr(Schema.String),
  /** A few words: `Intent`, `Lane 37`, `billing`. */
  title: Schema.String,
  state: HopState,
  /**
   * When it reached its state, ISO 8601 in UTC; null where that is not stored. A request's is that of the first id that it drew. A lane's is the
   * commit, which puts the event into it, and a broker's the mark, which follows the acknowledgement.
   */
  at: Schema.NullOr(Schema.String),
  /** Since the hop `since`, never negative; null where there is none. */
  millis: Schema.NullOr(Schema.Number),
  /**
   * The last hop on its way whose time is known and not after its own; null where there is none. A consumer may be done before the mark of its
   * event is written, and is then timed from the lane.
   */
  since: Schema.NullOr(Schema.String),
  /** The process that has it now. Null where it is done: no row says who did it, and its trace does. */
  process: Schema.NullOr(Schema.String),
  traceId: Schema.NullOr(Schema.String),
  facts: Schema.Array(Fact),
  /** Why it waits, is dead or discarded, in a sentence; null where it is done. */
  why: Schema.NullOr(Schema.String),
  /** What would free it, in a sentence, for all that waits; null where nothing holds it. */
  frees: Schema.NullOr(Schema.String),
  /** The console's page where a person can act, relative to /console/; null where there is nothing to do. */
  page: Schema.NullOr(Schema.String),
  /** The command that does the same. */
  command: Schema.NullOr(Schema.String)
}).annotate({ identifier: "Hop" })
export type Hop = typeof Hop.Type

/** One change of the order on its way from the request to its effects. A payment without an outcome has a leg without an event. */
export const Leg = Schema.Struct({
  /** `Placed`, `Paid`, `Payment declined`, `Paying`, `Cancelled`, `Refunded`, `Refunding`. */
  title: Schema.String,
  /** The worst state of its hops: dead, retrying, parked, waiting, now, done. */
  state: HopState,
  /** The order's version; null before there is an event. */
  version: Schema.NullOr(Schema.Int),
  eventId: Schema.NullOr(Schema.String),
  eventType: Schema.NullOr(Schema.String),
  paymentId: Schema.NullOr(Schema.String),
  /** From the first known time to the last one; null while it is under way. */
  millis: Schema.NullOr(Schema.Number),
  hops: Schema.Array(Hop)
}).annotate({ identifier: "Leg" })
export type Leg = typeof Leg.Type

/** The whole story of an order, oldest first. */
export const JourneyView = Schema.Struct({
  orderId: OrderId,
  /** When it was read, by the database's clock. */
  at: Schema.String,
  order: OrderSummary,
  /** False where retention has dropped events of this page. */
  complete: Schema.Boolean,
  legs: Schema.Array(Leg),
  /** The last version of this page; null where the order has no more. */
  nextCursor: Schema.NullOr(Schema.Int)
}).annotate({ identifier: "Journey" })
export type JourneyView = typeof JourneyView.Type
