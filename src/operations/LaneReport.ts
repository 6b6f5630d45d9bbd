/** The operator's view of the lanes: which process owns each, and what waits in it. */
import { Schema } from "effect"

/** A lane, as far as it carries one topic. */
export const LaneView = Schema.Struct({
  topic: Schema.String,
  lane: Schema.Int,
  /** The partition that the lane's events go to; null before the topic is first used. */
  partition: Schema.NullOr(Schema.Int),
  /** The process that owns the lane, as `pg_stat_activity` names it; null while nobody does. */
  owner: Schema.NullOr(Schema.String),
  /** Events in the queue that may be sent, counted up to `laneCountLimit`. */
  ready: Schema.Int,
  /** Age of the oldest of them; null where there is none. */
  oldestReadySeconds: Schema.NullOr(Schema.Number),
  /** Events that were refused or wait behind one that was. */
  parked: Schema.Int,
  /** Events that wait for an operator. */
  dead: Schema.Int,
  /** Whether an operator has paused the topic. */
  isPaused: Schema.Boolean
}).annotate({ identifier: "Lane" })
export type LaneView = typeof LaneView.Type
