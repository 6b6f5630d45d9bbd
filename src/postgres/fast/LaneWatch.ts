/**
 * Watches the lanes while wake-ups come fast: a dispatcher then looks at all its lanes every few milliseconds, and says that it needs no wake-ups.
 *
 * At 500 events a second a wake-up takes more CPU than its event's part of such a look, and is on its way for longer than a look is waited for
 * (docs/performance-log.md). At 100 a second it is the other way round. Wake-ups of this process cost nothing, and count neither way.
 *
 * Other processes may be quiet for some time after the watch has ended, and after a watched lane has got another owner (QuietWakeups.ts). So the looks
 * go on for longer than that after a watch, and after this process got lanes. All of it are hints still: the poll finds every event.
 */
import { Clock, Context, Effect, Latch, Layer, type Scope, Stream } from "effect"
import { Dispatcher } from "../../outbox/Dispatcher.ts"
import { allLanes, type Lane } from "../../outbox/Lane.ts"
import { LaneOwnership } from "../../outbox/LaneOwnership.ts"
import { LaneWakeup } from "../../outbox/LaneWakeup.ts"
import { ControlConnection } from "../../platform/ControlConnection.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { WakeupSettings } from "../../platform/Wakeups.ts"
import * as WatchedLanes from "./WatchedLanes.ts"

/** As long as fetches are kept apart (Gathering.ts). */
const lookMillis = 4

/** Rates are taken over this time: a hundred events at 500 a second. */
const windowMillis = 200

export const WatchSettings = Context.Reference<{
  /** So many wake-ups within a window begin a watch. */
  readonly beginsAt: number
  /** Fewer events within a window end it. */
  readonly endsBelow: number
}>("paid-once/postgres/fast/WatchSettings", {
  // 400 and 250 a second: between the rates of the head comment. Rates between these two change nothing.
  defaultValue: () => ({ beginsAt: 80, endsBelow: 50 })
})

const tailMillis = 2 * WatchedLanes.quietMillis

/** How often locks are tried again that another session had at that moment. */
const renewMillis = 1_000

/** The looks between two signs of life: one a second. A sign for each look would cost more than the look. */
const looksOfStep = 250

/** A loop that has nothing to do shows health this often that it is alive. */
const idleMillis = 5_000

/** Watches until the scope closes. */
export const make = Effect.fnUntraced(function* (options: {
  /** Looks for events in all lanes of this process. */
  readonly look: () => void
  /** How many events the dispatcher has found so far. */
  readonly found: () => number
  /** Says for which lanes this process needs no wake-ups, or for none. Fails if that is not known now. */
  readonly tell: (isWatching: boolean) => Effect.Effect<void, unknown>
}): Effect.fn.Return<
  {
    /** A lane was woken, by this process or another one. */
    readonly woken: (isHere: boolean) => void
    /** This process owns other lanes than before. */
    readonly lanesChanged: () => void
  },
  never,
  Supervised.Fibers | Scope.Scope
> {
  const { beginsAt, endsBelow } = yield* WatchSettings
  const clock = yield* Clock.Clock
  const now = () => Monotonic.millisUnsafe(clock)
  let isOn = false
  /** Whether others may still read that this process needs no wake-ups. */
  let isTold = false
  let tailUntil = 0
  /** Of the present window: its begin, the wake-ups of others and of this process, and what was found before it. */
  let window = { since: 0, elsewhere: 0, here: 0, foundBefore: 0 }
  const isLooking = yield* Latch.make(false)
  const isChanged = yield* Latch.make(false)

  const beginWindow = () => {
    window = { since: now(), elsewhere: 0, here: 0, foundBefore: options.found() }
  }
  const set = (on: boolean) => {
    isOn = on
    isTold ||= on
    beginWindow()
    tailUntil = now() + tailMillis
    isLooking.openUnsafe()
    isChanged.openUnsafe()
  }

  const look = Effect.sync(() => {
    options.look()
    if (!isOn || now() < window.since + windowMillis) return
    if (options.found() - window.foundBefore - window.here < endsBelow) set(false)
    else beginWindow()
  })
  const isDue = () => isOn || isTold || now() < tailUntil
  let nextMillis = 0
  /** Late timers don't add up: else the looks of a busy process would be half as long again apart. */
  const next = Effect.suspend(() => {
    nextMillis = Math.max(nextMillis + lookMillis, now())
    return Effect.andThen(Effect.sleep(nextMillis - now()), look)
  })
  yield* Supervised.forkLoop(
    "lane watch",
    Effect.suspend(() => {
      if (!isDue()) {
        isLooking.closeUnsafe()
        return Effect.timeoutOption(isLooking.await, idleMillis)
      }
      let left = looksOfStep
      return Effect.whileLoop({ while: () => isDue() && left-- > 0, body: () => next, step: () => undefined })
    })
  )

  const tell = Effect.suspend(() => {
    isChanged.closeUnsafe()
    const isWatching = isOn
    return Effect.map(options.tell(isWatching), () => {
      if (isWatching || isOn || !isTold) return
      isTold = false
      tailUntil = now() + tailMillis
    })
  })
  // Apart from the looks, which must not wait for an answer. A lost session has taken its locks with it, and the next one is told within a second.
  yield* Supervised.forkLoop(
    "lane watch locks",
    Effect.andThen(Effect.timeoutOption(isChanged.await, renewMillis), Effect.ignore(tell))
  )
  yield* Effect.addFinalizer(() => Effect.ignore(options.tell(false)))

  return {
    woken: (isHere) => {
      if (isHere) window.here++
      else if (!isOn) {
        if (window.since + windowMillis <= now()) beginWindow()
        if (++window.elsewhere >= beginsAt) set(true)
      }
    },
    lanesChanged: () => set(isOn)
  }
})

/** Wakes the lanes of the watch as if somebody had written into each of them. */
export const layer: Layer.Layer<
  LaneWakeup | Dispatcher,
  never,
  LaneWakeup | Dispatcher | LaneOwnership | ControlConnection | Supervised.Fibers
> = Layer.effectContext(
  Effect.gen(function* () {
    const wakeup = yield* LaneWakeup
    const dispatcher = yield* Dispatcher
    const ownership = yield* LaneOwnership
    const fibers = yield* Supervised.Fibers
    const replace = WatchedLanes.make(yield* ControlConnection)
    const { crossProcess } = yield* WakeupSettings
    let found = 0
    /** Lanes in flight are not looked at: each is fetched in the turn that marks it or after it, once. */
    const inFlight = new Set<Lane>()
    const onWake: LaneWakeup["Service"]["onWake"] = Effect.fnUntraced(
      function* (handle, owns) {
        if (owns === undefined || !crossProcess) return yield* wakeup.onWake(handle, owns)
        const watch = yield* make({
          look: () => {
            for (const lane of allLanes) if (owns(lane) && !inFlight.has(lane)) handle(lane, true)
          },
          found: () => found,
          tell: (isWatching) =>
            Effect.flatMap(isWatching ? ownership.held : Effect.succeed<ReadonlyArray<Lane>>([]), replace)
        })
        yield* Effect.forkScoped(Stream.runForEach(ownership.changes, () => Effect.sync(watch.lanesChanged)))
        yield* wakeup.onWake((lane, isHere) => {
          if (owns(lane)) watch.woken(isHere)
          handle(lane, isHere)
        }, owns)
      },
      Effect.provideService(Supervised.Fibers, fibers)
    )
    return Context.make(LaneWakeup, LaneWakeup.of({ wake: wakeup.wake, onWake })).pipe(
      Context.add(
        Dispatcher,
        Dispatcher.of({
          ...dispatcher,
          fetch: (parts, without) => {
            for (const { lane } of parts) inFlight.add(lane)
            return Effect.map(dispatcher.fetch(parts, without), (fetched) => {
              for (const { events } of fetched.batches) found += events.length
              return fetched
            })
          },
          leave: (lanes) => {
            for (const lane of lanes) inFlight.delete(lane)
            dispatcher.leave(lanes)
          }
        })
      )
    )
  })
)
