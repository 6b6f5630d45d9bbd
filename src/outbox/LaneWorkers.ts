/**
 * Keeps a process's lanes drained: owns a fair share of them, and lets a fixed number of workers take turns on those that have
 * something to send.
 *
 * A lane is drained by one worker at a time, and by one process at a time (Shares): one batch in flight per lane.
 */
import { type Cause, Clock, Context, Effect, Latch, Layer, Metric, Option, Queue, Stream } from "effect"
import * as Reach from "../guards/BrokerReachability.ts"
import * as OutOfOrderVersions from "../guards/OutOfOrderVersions.ts"
import * as Backoff from "../platform/Backoff.ts"
import { ControlSettings } from "../platform/ControlConnection.ts"
import { Faults } from "../platform/Faults.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import { Ownership } from "../platform/Ownership.ts"
import * as Supervised from "../platform/Supervised.ts"
import type { Wakeups } from "../platform/Wakeups.ts"
import * as Database from "../postgres/Database.ts"
import { Dispatcher } from "./Dispatcher.ts"
import * as HoldRetries from "./holds/HoldRetries.ts"
import { Holds } from "./holds/Holds.ts"
import { Lane, laneCount } from "./Lane.ts"
import { LaneWakeup } from "./LaneWakeup.ts"
import { OutboxQueue } from "./OutboxQueue.ts"
import { Publisher } from "./Publisher.ts"

/** How the workers pace themselves. */
export const LaneWorkersSettings = Context.Reference<{
  /** The net under lost wake-ups: how often all owned lanes are looked at. */
  readonly pollMillis: number
  /** Lanes drained side by side: sends in flight. */
  readonly lanesSideBySide: number
  /** Topics that are looked at (and made) before the first event. */
  readonly topics: ReadonlyArray<string>
}>("paid-once/outbox/LaneWorkersSettings", {
  // Eight keep a broker and two cores busy; more only queue in the client.
  defaultValue: () => ({ pollMillis: 1_000, lanesSideBySide: 8, topics: [] })
})

/** Connections that a dispatcher can use at once: one for each of eight lanes, one for a poll, one for floors and samples. */
const dispatcherConnections = 10

/**
 * How Postgres is to plan on those connections. To its statistics the queue is a small table, which it would rather read from one end to
 * the other, or by a bitmap; but each look is a probe of the index, and only a plain index scan marks the entries of deleted rows as dead,
 * so that the next one steps past them. And as it can't know how long an array will be it would plan each statement anew, which costs more
 * than running it.
 */
const dispatcherPlans: Readonly<Record<string, string>> = {
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_bitmapscan: "off"
}

/**
 * The dispatcher's own connections: requests that queue for theirs are no reason for events to wait.
 *
 * A process that freezes in the middle of a transaction loses the rows that it has locked there when it loses its lanes, after the session
 * timeout: its successor marks these rows, and would wait for them.
 */
export const dispatcherDatabase = Layer.unwrap(
  Effect.gen(function* () {
    const { sessionTimeoutMillis } = yield* ControlSettings
    const bounds = yield* Database.lockBounds(sessionTimeoutMillis)
    return Database.layerReserved("dispatcher", dispatcherConnections, { ...dispatcherPlans, ...bounds })
  })
)

const pendingGauge = Metric.gauge("outbox_events_pending", { description: "Events in the queue, sampled" })
const oldestGauge = Metric.gauge("outbox_oldest_pending_age_seconds", {
  description: "Age of the oldest event in the queue, sampled"
})
const parkedGauge = Metric.gauge("outbox_events_parked", {
  description: "Events that were refused or wait behind one that was, sampled"
})
const deadGauge = Metric.gauge("outbox_dead_letters", { description: "Events that wait for an operator, sampled" })

/** A worker that got no lane looks up this often, so that its silence means that it hangs. */
const idleMillis = 5_000

const laneFailuresTotal = Metric.counter("outbox_lane_failures_total", {
  description: "Turns of a lane that ended in a defect, after which it waits",
  incremental: true
})

const allLanes: ReadonlyArray<Lane> = Array.from({ length: laneCount }, (_, lane) => Lane.make(lane))

/** How often the queue's length is sampled: often enough for an alert of minutes, seldom enough to cost nothing. */
const sampleMillis = 5_000

/** A lane's dead entries pile up for so long before the next look steps past them: at 5,000 events/s some eighty a lane. */
const floorsMillis = 1_000

/** A lane whose last turn, or last try of its refused events, ended in a defect. The others go on. */
export interface StoppedLane {
  readonly lane: Lane
  /** Failures in a row. */
  readonly attempt: number
}

export class LaneWorkers extends Context.Service<
  LaneWorkers,
  {
    /** The lanes that this process owns now. */
    readonly lanes: Effect.Effect<ReadonlyArray<number>>
    /** Whether the broker can be reached from here, as far as anybody had to ask. */
    readonly reachesBroker: Effect.Effect<boolean>
    /** Those of them that wait, after a turn that ended in a defect, for health. */
    readonly stopped: Effect.Effect<ReadonlyArray<StoppedLane>>
  }
>()("paid-once/outbox/LaneWorkers") {
  /** Works in supervised fibers of the layer's scope. Closing it ends the batches in flight, then frees the lanes. */
  static readonly layer: Layer.Layer<
    LaneWorkers,
    never,
    Dispatcher | Holds | OutboxQueue | Publisher | LaneWakeup | Ownership | Wakeups | Supervised.Fibers
  > = Layer.effect(
    LaneWorkers,
    Effect.gen(function* () {
      const dispatcher = yield* Dispatcher
      const holds = yield* Holds
      const queue = yield* OutboxQueue
      const publisher = yield* Publisher
      const wakeup = yield* LaneWakeup
      const shares = yield* Ownership
      const faults = yield* Faults
      const settings = yield* LaneWorkersSettings

      // There at 0 from the start: a rule compares with what was before the first failure.
      yield* Metric.value(laneFailuresTotal)
      const membership = yield* shares.join("dispatcher", laneCount)
      const reach = yield* Reach.watch(membership)
      const owns = (lane: Lane) => Effect.map(membership.held, (held) => held.includes(lane))
      const heldLanes = Effect.map(membership.held, (shares) => shares.map((share) => Lane.make(share)))

      // FIFO among ready lanes: a lane stands in the line at most once, so a busy one can't crowd out the others.
      const line = yield* Queue.bounded<Lane>(laneCount)
      const queued = new Set<Lane>()
      const inFlight = new Set<Lane>()
      const again = new Set<Lane>()
      const stopped = new Map<Lane, { readonly attempt: number; readonly untilMillis: number }>()
      const isWaiting = (lane: Lane, clock: Clock.Clock) =>
        (stopped.get(lane)?.untilMillis ?? 0) > Monotonic.millisUnsafe(clock)
      const enqueue = (lane: Lane) =>
        Effect.clockWith((clock) => {
          // The poll comes back to it when its wait is over.
          if (stopped.size > 0 && isWaiting(lane, clock)) return Effect.void
          if (inFlight.has(lane)) {
            again.add(lane)
            return Effect.void
          }
          if (queued.has(lane)) return Effect.void
          queued.add(lane)
          return Effect.asVoid(Queue.offer(line, lane))
        })

      /** Opened when the poll has something to look at, or one more moment to wait for: lanes came or went, or one stopped. */
      const look = yield* Latch.make(true)
      const retries = yield* HoldRetries.make({
        lanes: heldLanes,
        laneChanges: membership.changes,
        enqueue,
        pollMillis: settings.pollMillis
      })

      /** What goes wrong in a lane is that lane's business: a worker that slept for it would be missing to all the others. */
      const failed = Effect.fnUntraced(function* (lane: Lane, cause: Cause.Cause<never>) {
        const attempt = (stopped.get(lane)?.attempt ?? 0) + 1
        const waitMillis = yield* Backoff.millisAfter(Backoff.lane, attempt)
        // One that was lost meanwhile is somebody else's to tell of.
        if (yield* owns(lane)) {
          stopped.set(lane, { attempt, untilMillis: (yield* Monotonic.millis) + waitMillis })
          yield* look.open
        }
        yield* Metric.update(laneFailuresTotal, 1)
        yield* Effect.logError(`lane ${lane} failed; next try in ${Math.round(waitMillis)} ms`, cause)
        return Option.none<"idle" | "more">()
      })

      /**
       * A lane that has found something to be away goes behind the others of which that is so: the poll puts them in order. It knows nothing of
       * refused events.
       */
      const comeBack = (lane: Lane) =>
        Effect.suspend(() =>
          dispatcher.failedMillis(lane) > 0 && !retries.isDue(lane) ? Effect.asVoid(look.open) : enqueue(lane)
        )

      const work = (lane: Lane) =>
        Effect.suspend(() => {
          queued.delete(lane)
          inFlight.add(lane)
          return membership.use(lane, Effect.andThen(retries.run(lane), dispatcher.drainOnce(lane)))
        }).pipe(
          Effect.tap(() => Effect.sync(() => stopped.delete(lane))),
          Effect.catchCause((cause) => failed(lane, cause)),
          Effect.ensuring(Effect.sync(() => inFlight.delete(lane))),
          Effect.flatMap((result) =>
            again.delete(lane) || Option.getOrUndefined(result) === "more" ? comeBack(lane) : Effect.void
          )
        )

      yield* wakeup.onWake((lane) => Effect.flatMap(owns(lane), (isOwn) => (isOwn ? enqueue(lane) : Effect.void)), owns)
      for (let worker = 0; worker < settings.lanesSideBySide; worker++) {
        yield* Supervised.forkLoop(
          `dispatcher worker ${worker}`,
          Effect.flatMap(Effect.timeoutOption(Queue.take(line), idleMillis), (lane) =>
            // A batch in flight is not cut off by a stop: the lane stays held, and nothing is sent twice because of it.
            Option.isSome(lane) ? Effect.uninterruptible(work(lane.value)) : Effect.void
          )
        )
      }
      // Who was woken for a lane may be gone: a lane that comes to this process is looked at at once, and not at the next poll.
      yield* Effect.forkScoped(
        Stream.runForEach(membership.changes, (held) =>
          Effect.suspend(() => {
            const lost = allLanes.filter((lane) => !held.includes(lane))
            for (const lane of lost) stopped.delete(lane)
            return Effect.andThen(queue.forgetFloors(lost), look.open)
          })
        )
      )
      /** Until the next look: the poll's time, or the end of the first wait of a partition or a lane, or of an aggregate that is not sent. */
      const waitMillis = Effect.fnUntraced(function* (isMisordered: boolean) {
        const now = yield* Monotonic.millis
        const waits = [...stopped.values()].map(({ untilMillis }) => untilMillis - now).filter((millis) => millis > 0)
        if (isMisordered) waits.push(OutOfOrderVersions.lookMillis)
        // A timer may be early by the fraction of a millisecond that it does not know.
        return 1 + Math.min(settings.pollMillis, (yield* dispatcher.nextTryMillis) ?? Infinity, ...waits)
      })
      const pause = (stamp: Effect.Effect<void>, millis: number) =>
        Effect.raceAllFirst([
          look.await,
          dispatcher.paused.await,
          Effect.sleep(millis),
          // A long poll is no fiber that hangs.
          Effect.forever(Effect.andThen(Effect.sleep(idleMillis), stamp))
        ])
      let known: ReadonlyArray<Lane> = []
      yield* Supervised.forkLoop("dispatcher poll", (stamp) =>
        Effect.gen(function* () {
          yield* look.close
          yield* dispatcher.paused.close
          const lanes = yield* heldLanes
          const before = known
          known = lanes
          if (lanes.some((lane) => !before.includes(lane))) yield* faults.at("dispatcher.after-acquire")
          // Asked before the look: a wait that ends during it has left its lanes out of it, and is looked after once more.
          const misordered = (yield* dispatcher.misordered)
            .map(({ lane }) => lane)
            .filter((lane) => lanes.includes(lane))
          const millis = yield* waitMillis(misordered.length > 0)
          const ready = lanes.length === 0 ? [] : yield* queue.ready(lanes, yield* dispatcher.pausedTopics(lanes))
          // A lane in which something is wrong is well when a turn of it has said so, though there be nothing left in it.
          const unwell = [...stopped.keys()].filter((lane) => lanes.includes(lane))
          // Those that are well first. And where a part of a topic is away, who finds out whether it is back is not always the same.
          const inTurn = ready.toSorted((one, other) => dispatcher.failedMillis(one) - dispatcher.failedMillis(other))
          yield* Effect.forEach(new Set([...inTurn, ...unwell, ...misordered]), enqueue, { discard: true })
          yield* pause(stamp, millis)
        })
      )
      yield* Supervised.forkLoop(
        "dispatcher floors",
        Effect.andThen(
          Effect.flatMap(heldLanes, (lanes) => queue.raiseFloors(lanes, dispatcher.failedIn)),
          Effect.sleep(floorsMillis)
        )
      )
      yield* Supervised.forkLoop(
        "dispatcher metrics",
        Effect.gen(function* () {
          const pending = yield* queue.pending
          yield* Metric.update(pendingGauge, pending.count)
          yield* Metric.update(oldestGauge, pending.oldestSeconds)
          const { dead, parked } = yield* holds.counts
          yield* Metric.update(parkedGauge, parked)
          yield* Metric.update(deadGauge, dead)
          yield* Effect.sleep(sampleMillis)
        })
      )
      yield* Supervised.forkLoop(
        "dispatcher topics",
        Effect.andThen(Effect.forEach(settings.topics, publisher.prepare, { discard: true }), Effect.sleep(idleMillis))
      )

      return LaneWorkers.of({
        lanes: membership.held,
        reachesBroker: Effect.sync(reach.isAble),
        stopped: Effect.sync(() =>
          [...new Map([...retries.failing(), ...stopped])].map(([lane, { attempt }]) => ({ lane, attempt }))
        )
      })
    })
  )
}
