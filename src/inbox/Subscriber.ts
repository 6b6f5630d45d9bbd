/** What a subscriber is, and how it says what went wrong. */
import { Context, Effect, Schema } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import type { Envelope } from "../brokers/Envelope.ts"
import type { Transaction } from "../platform/Transaction.ts"

/**
 * Who consumes, and what an event does.
 *
 * **When a handler fails**
 *
 * - {@link DependencyDown}, and what the database says of itself (a lost connection, a deadlock, a serialization failure): nothing is wrong
 *   with the event. The partition waits and tries again, without limit, and nothing is counted.
 * - {@link EventRefused}: trying again can't help. The event is a dead letter at once.
 * - Anything else, defects, cancelled statements and an interrupt of its own included: the event's own failure. It is tried again up to INBOX_MAX_ATTEMPTS, while its aggregate, and only
 *   that, waits behind it; then it is a dead letter.
 */
export interface Subscriber<R = never> {
  /** The consumer's name: its group at the broker, and its half of the key against duplicates. */
  readonly name: string
  readonly topic: string
  /**
   * What to think of an aggregate that is first heard of above version 1. `from-version-1`: the versions before are missing, and it is held
   * until they come. `any-version`: this consumer starts there, and what comes later with a smaller version is not applied.
   */
  readonly firstSight: "from-version-1" | "any-version"
  /**
   * The effect of an event, called once per event and in version order of its aggregate. It can write only in the transaction that it
   * is given: everything that it needs beside it is taken from the layers around its consumer.
   */
  readonly handle: (event: Envelope) => Effect.Effect<void, unknown, Transaction | R>
  /**
   * The effects of several events at once, in their order, for a subscriber that has to be fast: one statement instead of one for each.
   * It must come to the same as {@link handle} for each, which is what an event gets that stands alone; when this fails,
   * it is called again for fewer of them.
   *
   * Rows that events of several aggregates write (a day's total) are to be taken in one order, say by key: slices of other partitions write
   * them at the same time, and those that meet in a ring are applied event by event.
   */
  readonly handleMany?: (events: NonEmptyReadonlyArray<Envelope>) => Effect.Effect<void, unknown, Transaction | R>
}

/** What a handler needs is away: a service, not the event. The partition waits for it. */
export class DependencyDown extends Schema.TaggedError<DependencyDown>()("DependencyDown", { reason: Schema.String }) {
  override get message() {
    return `a dependency is down: ${this.reason}`
  }
}

/** The event can't ever be applied as it is: a type, a schema version or data that nobody here knows. */
export class EventRefused extends Schema.TaggedError<EventRefused>()("EventRefused", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}

/** The subscriber with the services that it needs beside its transaction. What is around each call comes first: its transaction, its span. */
export const bind = <R>(subscriber: Subscriber<R>, services: Context.Context<R>): Subscriber => {
  const provide = <E>(effect: Effect.Effect<void, E, Transaction | R>): Effect.Effect<void, E, Transaction> =>
    Effect.updateContext(effect, (around: Context.Context<Transaction>) => Context.merge(services, around))
  const { handle, handleMany } = subscriber
  return {
    name: subscriber.name,
    topic: subscriber.topic,
    firstSight: subscriber.firstSight,
    handle: (event) => provide(handle(event)),
    ...(handleMany === undefined ? {} : { handleMany: (events) => provide(handleMany(events)) })
  }
}
