/**
 * Holds: what becomes of an event that the broker refuses by itself. An outage never comes here (Dispatcher.ts).
 *
 * Two layers answer it, and both keep the order and lose nothing:
 *
 * - {@link Holds.layerBlocking}: nothing is parked. The event fails its lane, which waits and sends the event again until the broker takes it. The
 *   other aggregates of the lane wait, too.
 * - `Parking.layer`: the event makes its own aggregate wait, and no other. A production service has this one.
 */
import { type Cause, Context, Effect, Latch, Layer, type Scope, type Stream } from "effect"
import type { MessageRejected } from "../../brokers/Broker.ts"
import type { Fibers } from "../../platform/Supervised.ts"
import type { Wakeups } from "../../platform/Wakeups.ts"
import type { Lane } from "../Lane.ts"
import type { LaneView, QueuedEvent, Receipt } from "../Queue.ts"

/** The head of a hold whose next send is due. */
export interface HeldEvent extends QueuedEvent {
  /** Refused sends so far. */
  readonly attempts: number
}

/** The outcome of a refusal. `gone`: another process has dealt with the event, and nothing was counted. */
export type Refused = "retrying" | "dead" | "skipped" | "gone"

/** When the next head of a lane and topic is due. */
export interface NextDue {
  readonly lane: Lane
  readonly topic: string
  readonly isDue: boolean
  /** Milliseconds until it may be sent; at most 0 if it may be sent now. */
  readonly waitMillis: number
}

/** The lanes whose due times are watched, and what is told of them. */
export interface WatchOptions {
  readonly lanes: Effect.Effect<ReadonlyArray<Lane>>
  /** Emits when lanes come or go. */
  readonly laneChanges: Stream.Stream<unknown>
  readonly wake: (lane: Lane) => void
  readonly pollMillis: number
}

/** Attempts of held events that ended in a defect. */
export interface Watch {
  /** An attempt ended in a defect. Only the lane's held aggregates wait; its queue continues. */
  readonly failed: (lane: Lane, cause: Cause.Cause<never>) => Effect.Effect<void>
  /** Lanes whose last attempts ended in a defect, each with the number of such attempts in a row. */
  readonly failing: () => ReadonlyMap<Lane, { readonly attempt: number }>
}

/** See {@link Holds}. */
export interface HoldsService {
  /** Decides about an event that was refused when it was sent alone from the queue: its first attempt. */
  readonly hold: (lane: Lane, event: QueuedEvent, error: MessageRejected) => Effect.Effect<Refused>
  /** Parks events of held aggregates that a fetch found in the queue. Returns how many it could move. */
  readonly park: (lane: Lane, events: ReadonlyArray<QueuedEvent>) => Effect.Effect<number>
  /** The due heads of the lanes: first the longest due head of each lane, at most {@link dueLimit} in all. */
  readonly due: (views: ReadonlyArray<LaneView>) => Effect.Effect<ReadonlyArray<HeldEvent>>
  /** Whether the head is still to be sent: an operator may have discarded it since it was found due. */
  readonly isDue: (event: HeldEvent) => Effect.Effect<boolean>
  /** Counts one more refusal of a head. */
  readonly rejected: (event: HeldEvent, error: MessageRejected) => Effect.Effect<Refused>
  /** The head is in the topic: archives it, ends the hold, and requeues the parked events. False if the hold was gone already. */
  readonly published: (event: HeldEvent, receipt: Receipt) => Effect.Effect<boolean>
  /** The earliest due time of each lane and topic with heads. */
  readonly nextDue: (lanes: ReadonlyArray<Lane>) => Effect.Effect<ReadonlyArray<NextDue>>
  /** Parked events and dead letters, counted up to a bound. */
  readonly counts: Effect.Effect<{ readonly parked: number; readonly dead: number }>
  /** Opened when this process changed a hold: due times must be read again. */
  readonly changed: Latch.Latch
  /**
   * Calls `wake` for each lane with a due head while the scope lives. It reads the due times of the `Holds` around it: a guard that decorates
   * them delays the attempts.
   */
  readonly watch: (options: WatchOptions) => Effect.Effect<Watch, never, Holds | Wakeups | Fibers | Scope.Scope>
}

/** Heads that are sent in one round of the dispatcher, so that held aggregates don't delay the others. */
export const dueLimit = 8

const name = ({ aggregateId, aggregateType, aggregateVersion, eventId, eventType }: QueuedEvent) =>
  `event ${eventId} (${eventType}, version ${aggregateVersion} of ${aggregateType} ${aggregateId})`

export class Holds extends Context.Service<Holds, HoldsService>()("paid-once/outbox/holds/Holds") {
  /** Parks nothing. A refused event is a defect, which stops its lane for a while (StoppedLanes.ts). */
  static readonly layerBlocking: Layer.Layer<Holds> = Layer.effect(
    Holds,
    Effect.map(Latch.make(false), (changed) =>
      Holds.of({
        hold: (_, event, error) =>
          Effect.die(new Error(`${name(event)} stops its lane until the broker takes it: ${error.message}`)),
        // An earlier dispatcher of this database may have parked. Its parked events come first.
        park: (_, [event]) =>
          Effect.die(
            new Error(`${event && name(event)} waits behind a hold, which only a dispatcher with parking ends`)
          ),
        due: () => Effect.succeed([]),
        isDue: () => Effect.succeed(false),
        rejected: () => Effect.succeed("gone"),
        published: () => Effect.succeed(false),
        nextDue: () => Effect.succeed([]),
        counts: Effect.succeed({ parked: 0, dead: 0 }),
        changed,
        watch: () => Effect.succeed({ failed: () => Effect.void, failing: () => new Map() })
      })
    )
  )
}
