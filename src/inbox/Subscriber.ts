/** A subscriber: a consumer's name, its topic, and what an event does. And the failures that its handler can report. */
import { Context, Effect, Schema } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import type { Envelope } from "../brokers/Envelope.ts"
import type { Transaction } from "../platform/Transaction.ts"

/**
 * A consumer's name, its topic, and what an event does.
 *
 * **When a handler fails**
 *
 * - With {@link DependencyDown}, or with an error by which the database says that it is not available (a lost connection, a deadlock, a
 *   serialization failure): the event is not to blame. Its partition waits and tries the slice again, without limit, and no attempt is
 *   counted.
 * - With {@link PermanentFailure}: another attempt can't help. The event becomes a dead letter at once.
 * - With anything else, defects, cancelled statements and an interrupt of the handler's own included: the event has failed. It is tried
 *   again, INBOX_MAX_ATTEMPTS times at most, while only its aggregate waits behind it. After that it is a dead letter.
 *
 * A service without parking (holds/Holds.ts) has no dead letters. Each of these failures stops the partition until the event can be applied.
 */
export interface Subscriber<R = never> {
  /** The consumer's name: its group at the broker, and the `consumer_name` of its marks, cursors and holds. */
  readonly name: string
  readonly topic: string
  /**
   * How the consumer treats an aggregate that it first hears of above version 1. `from-version-1`: it holds the aggregate until the
   * earlier versions come. `any-version`: it starts there, and applies no smaller version later.
   */
  readonly firstSight: "from-version-1" | "any-version"
  /**
   * How an operator may have applied events taken up once more (docs/replay.md). Absent: not at all. `rebuild`: its tables are made anew.
   * `again`: its handler may get such an event once more, for it has a key of its own that keeps the effect from happening twice, for ever.
   * `again-while-tasks-are-kept`: the key is a task's, and lasts as long as tasks are kept.
   */
  readonly replay?: "rebuild" | "again" | "again-while-tasks-are-kept"
  /**
   * The effect of an event, which commits once per event and in version order of its aggregate. The handler writes only in the transaction
   * that it is given. It may run again after a rollback. The services that it needs come from the layers around its consumer.
   */
  readonly handle: (event: Envelope) => Effect.Effect<void, unknown, Transaction | R>
  /**
   * The effects of several events at once, in their order: one statement instead of one for each event, where speed counts. It must have
   * the same effect as {@link handle} for each event, which is called for an event that is applied alone. After a failure it is called
   * again with fewer events.
   *
   * Write rows that events of several aggregates share (a day's total) in one order, by their key for example: slices of other partitions
   * write them at the same time. Two slices that deadlock on such rows are applied event by event.
   */
  readonly handleMany?: (events: NonEmptyReadonlyArray<Envelope>) => Effect.Effect<void, unknown, Transaction | R>
}

/** A service that the handler needs is unavailable. The event is not to blame: its partition waits. */
export class DependencyDown extends Schema.TaggedError<DependencyDown>()("DependencyDown", { reason: Schema.String }) {
  override get message() {
    return `a dependency is down: ${this.reason}`
  }
}

/** The handler can never apply this event: it does not know its type, its schema version or its data. */
export class PermanentFailure extends Schema.TaggedError<PermanentFailure>()("PermanentFailure", {
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

const servicesKey = Symbol("paid-once/inbox/Subscriber/services")
interface Bound extends Subscriber {
  readonly [servicesKey]?: Context.Context<never>
}

/** The subscriber with the services that it needs beside its transaction. Its handlers run inside of {@link withServices}. */
export const bind = <R>(subscriber: Subscriber<R>, services: Context.Context<R>): Subscriber =>
  ({ ...subscriber, [servicesKey]: services }) as Bound

/**
 * Runs `effect`, which calls the subscriber's handlers, with their services. The services around it, its transaction and its span among them,
 * take precedence. Once for a slice: to put some hundred services into scope costs as much as a small handler.
 */
export const withServices = <E>(
  subscriber: Subscriber,
  effect: Effect.Effect<void, E, Transaction>
): Effect.Effect<void, E, Transaction> => {
  const services = (subscriber as Bound)[servicesKey]
  return services === undefined
    ? effect
    : Effect.updateContext(effect, (around: Context.Context<Transaction>) => Context.merge(services, around))
}
