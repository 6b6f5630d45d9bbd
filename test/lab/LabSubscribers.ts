/** The lab's subscribers: the service's own and one of the lab's. Both write a row for each effect, and fail when the case says so. */
import { Data, Effect } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import { decodeOrderEvents } from "../../src/application/OrderEvents.ts"
import { analytics } from "../../src/application/subscribers/Analytics.ts"
import { ordersTopic } from "../../src/domain/Events.ts"
import { DependencyDown, PermanentFailure, type Subscriber } from "../../src/inbox/Subscriber.ts"
import type { Envelope } from "../../src/brokers/Envelope.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { CurrentActor } from "./Actor.ts"

/** How an event fails for one consumer, until its handler is repaired. */
export interface Poison {
  /** How many attempts fail; `Infinity`: all. */
  readonly failures: number
  /** Whether it is a permanent failure. */
  readonly isRefused: boolean
  /** Whether the handler fails before it has written its effect, or after it. */
  readonly moment: "before" | "after"
}

/** A handler fails. */
export class HandlerFailed extends Data.TaggedError("HandlerFailed") {
  override readonly message = "the handler fails on purpose"
}

/** The failures of handlers that a case asks for. */
export class Troubles {
  /** Outages of a dependency, one for each of the next handlers, before or after it writes. */
  readonly outages: Array<"before" | "after"> = []
  /** Poison by `consumer event`. The event has its name in the story, since it may not be written yet. */
  readonly poisons = new Map<string, Poison>()
  /** Events whose handlers failed for another reason than an outage, as `consumer eventId`. */
  readonly failed = new Set<string>()
  private readonly tries = new Map<string, number>()
  private readonly named: (event: Envelope) => string

  constructor(named: (event: Envelope) => string) {
    this.named = named
  }

  /** The first of the events that fails in this attempt, and how it fails. */
  poisonOf(consumer: string, events: ReadonlyArray<Envelope>): (Poison & { readonly name: string }) | undefined {
    for (const event of events) {
      const name = this.named(event)
      const key = `${consumer} ${name}`
      const poison = this.poisons.get(key)
      const tries = this.tries.get(key) ?? 0
      if (poison === undefined || tries >= poison.failures) continue
      this.tries.set(key, tries + 1)
      this.failed.add(`${consumer} ${event.eventId}`)
      return { ...poison, name }
    }
    return undefined
  }
}

/** The handler, which also writes a row for each effect in its transaction, for the oracle. */
const traced = (
  consumer: string,
  troubles: Troubles,
  handle: (events: NonEmptyReadonlyArray<Envelope>) => Effect.Effect<void, unknown, Transaction>
) =>
  Effect.fnUntraced(function* (events: NonEmptyReadonlyArray<Envelope>) {
    const outage = troubles.outages.shift()
    if (outage === "before") return yield* new DependencyDown({ reason: "it fails on purpose" })
    const poison = troubles.poisonOf(consumer, events)
    const fail = Effect.gen(function* () {
      const actor = yield* CurrentActor
      actor?.tell(`fails at ${poison?.name ?? ""}`)
      return yield* poison?.isRefused === true
        ? new PermanentFailure({ reason: "nobody here knows it" })
        : new HandlerFailed()
    })
    if (poison?.moment === "before") return yield* fail
    yield* handle(events)
    const { sql } = yield* Transaction
    yield* sql`
      INSERT INTO lab_effects (consumer, aggregate_id, aggregate_version, event_id)
      SELECT ${consumer}, * FROM unnest(${events.map((event) => event.aggregateId)}::text[],
                           ${events.map((event) => event.aggregateVersion)}::int4[],
                           ${events.map((event) => event.eventId)}::uuid[])`
    if (poison !== undefined) return yield* fail
    if (outage === "after") return yield* new DependencyDown({ reason: "it fails on purpose" })
  })

/** The service's subscriber, which handles several events at once. */
export const analyticsOf = (troubles: Troubles): Subscriber => {
  const handleMany = traced(analytics.name, troubles, (events) => analytics.handleMany?.(events) ?? Effect.void)
  return { ...analytics, handle: (event) => handleMany([event]), handleMany }
}

/** The lab's subscriber, which handles events one by one. */
export const ledgerOf = (troubles: Troubles): Subscriber => {
  const handle = traced("ledger", troubles, (events) => Effect.asVoid(decodeOrderEvents(events)))
  return { name: "ledger", topic: ordersTopic, firstSight: "from-version-1", handle: (event) => handle([event]) }
}
