/**
 * Watches the lanes while wake-ups come fast: a dispatcher then looks at all its lanes every few milliseconds, and says that it needs no wake-ups.
 *
 * At 500 events a second a wake-up takes more CPU than its event's part of such a look, and is on its way for longer than a look is waited for
 * (docs/performance-log.md). At 100 a second it is the other way round.
 *
 * Other processes may be quiet for {@link WatchedLanes.quietMillis} after a watch has ended, and after a watched lane has got another owner
 * (QuietWakeups.ts). Looks therefore end later than that, and new lanes are polled once more. Looks are hints all the same: the regular poll finds the
 * event where the machine has stood still, or where the next owner is of a release without this file.
 */
import { Clock, Context, Effect, Latch, Layer, type Scope, Stream } from "effect"
import { Dispatcher } from "../../outbox/Dispatcher.ts"
import { allLanes } from "../../outbox/Lane.ts"
import { LaneOwnership } from "../../outbox/LaneOwnership.ts"
import { LaneWakeup } from "../../outbox/LaneWakeup.ts"
import { PollRequests } from "../../outbox/PollRequests.ts"
import { ControlConnection } from "../../platform/ControlConnection.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { WakeupSettings } from "../../platform/Wakeups.ts"
import * as WatchedLanes from "./WatchedLanes.ts"

/** An event waits so long for its look at most. With 1 ms its CPU is a fifth more, and its p99 no less (docs/performance-log.md). */
const lookMillis = 2

/** Rates are taken over this time: a hundred events at 500 a second. */
const windowMillis = 200

export const WatchSettings = Context.Reference<{
  /** So many wake-ups within a window begin a watch. */
  readonly beginsAt: number
  /** Fewer events within a window end it. */
  readonly endsBelow: number
  /** After three watches that found little the next one waits for so long: events of a paused topic wake, and are not fetched. */
  readonly backOffMillis: number
}>("paid-once/postgres/fast/WatchSettings", {
  // 400 and 150 a second, between the two rates that were measured. Far apart, for in 200 ms a count of 60 varies by 8.
  defaultValue: () => ({ beginsAt: 80, endsBelow: 30, backOffMillis: 10_000 })
})

/** A watch that ends sooner has found little: five windows. Two such watches in a row may come from a machine that stood still; three do not. */
const soonMillis = 1_000
const soonLimit = 3

/** Others may be quiet for half of it. The rest is for machines that are slow. */
const tailMillis = 2 * WatchedLanes.quietMillis

/** How often missing locks are tried again. Another session had them, or this process has a new session. */
const renewMillis = 1_000

/** The looks between two signs of life: one a second. */
const looksOfStep = 500

/** A loop that has nothing to do shows health this often that it is alive. */
const idleMillis = 5_000

/** Watches until the scope closes. */
export const make = Effect.fnUntraced(function* (options: {
  /** Looks for events in all lanes of this process. */
  readonly look: () => void
  /** How many events the dispatcher has found so far. */
  readonly found: () => number
  /** Says that this process needs no wake-ups for its lanes, or that it needs them. */
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
  const { backOffMillis, beginsAt, endsBelow } = yield* WatchSettings
  const clock = yield* Clock.Clock
  const now = () => Monotonic.millisUnsafe(clock)
  let isOn = false
  let began = 0
  let endedSoon = 0
  let notBefore = 0
  /** Whether others may still read that this process needs no wake-ups. */
  let mayBeRead = false
  let tailUntil = 0
  /**
   * Of the present window: its begin, the wake-ups of others and of this process, and what was found before it. A wake-up of several events counts once, and
   * the rest of them as others': then a watch may last longer than it has to.
   */
  let window = { since: 0, elsewhere: 0, here: 0, foundBefore: 0 }
  const isLooking = yield* Latch.make(false)
  const isChanged = yield* Latch.make(false)

  const beginWindow = () => {
    window = { since: now(), elsewhere: 0, here: 0, foundBefore: options.found() }
  }
  const begin = () => {
    isOn = mayBeRead = true
    began = now()
    beginWindow()
    isLooking.openUnsafe()
    isChanged.openUnsafe()
  }
  const end = () => {
    isOn = false
    endedSoon = now() < began + soonMillis ? endedSoon + 1 : 0
    if (endedSoon === soonLimit) {
      endedSoon = 0
      notBefore = now() + backOffMillis
    }
    isChanged.openUnsafe()
  }

  const look = Effect.sync(() => {
    options.look()
    if (!isOn || now() < window.since + windowMillis) return
    if (options.found() - window.foundBefore - window.here < endsBelow) end()
    else beginWindow()
  })
  const isDue = () => isOn || mayBeRead || now() < tailUntil
  let nextMillis = 0
  const nextLook = Effect.suspend(() => {
    // Late timers don't add up: else a busy process would look less often.
    nextMillis = Math.max(nextMillis + lookMillis, now())
    return Effect.andThen(Effect.sleep(nextMillis - now()), look)
  })

  const tell = Effect.suspend(() => {
    isChanged.closeUnsafe()
    const isWatching = isOn
    return Effect.map(options.tell(isWatching), () => {
      if (isWatching || isOn || !mayBeRead) return
      mayBeRead = false
      tailUntil = now() + tailMillis
    })
  })

  // Runs after the loops have ended: a lock that one of them was just taking would stay.
  yield* Effect.addFinalizer(() => Effect.ignore(options.tell(false)))
  yield* Supervised.forkLoop(
    "lane watch",
    Effect.suspend(() => {
      if (!isDue()) {
        isLooking.closeUnsafe()
        return Effect.timeoutOption(isLooking.await, idleMillis)
      }
      let left = looksOfStep
      return Effect.whileLoop({ while: () => isDue() && left-- > 0, body: () => nextLook, step: () => undefined })
    })
  )
  // Apart from the looks, which must not wait for an answer.
  yield* Supervised.forkLoop(
    "lane watch locks",
    Effect.andThen(Effect.timeoutOption(isChanged.await, renewMillis), Effect.ignore(tell))
  )

  return {
    woken: (isHere) => {
      if (isHere) window.here++
      else if (!isOn && now() >= notBefore) {
        if (window.since + windowMillis <= now()) beginWindow()
        if (++window.elsewhere >= beginsAt) begin()
      }
    },
    lanesChanged: () => void isChanged.openUnsafe()
  }
})

/** Decorates the two services of the work on lanes: a look wakes all lanes, as if somebody had written into each, and a fetch counts its events. */
export const layer: Layer.Layer<
  LaneWakeup | Dispatcher,
  never,
  LaneWakeup | Dispatcher | LaneOwnership | PollRequests | ControlConnection | Supervised.Fibers
> = Layer.effectContext(
  Effect.gen(function* () {
    const wakeup = yield* LaneWakeup
    const dispatcher = yield* Dispatcher
    const ownership = yield* LaneOwnership
    const polls = yield* PollRequests
    const fibers = yield* Supervised.Fibers
    const replace = WatchedLanes.make(yield* ControlConnection)
    const { crossProcess } = yield* WakeupSettings
    let found = 0
    const onWake: LaneWakeup["Service"]["onWake"] = Effect.fnUntraced(
      function* (handle, owns) {
        if (owns === undefined || !crossProcess) return yield* wakeup.onWake(handle, owns)
        const watch = yield* make({
          look: () => handle(allLanes, true),
          found: () => found,
          tell: (isWatching) => Effect.flatMap(isWatching ? ownership.held : Effect.succeed([]), replace)
        })
        yield* Effect.forkScoped(
          Stream.runForEach(ownership.changes, () => {
            watch.lanesChanged()
            return polls.after(tailMillis)
          })
        )
        yield* wakeup.onWake((lanes, isHere) => {
          for (const lane of lanes) if (owns(lane)) watch.woken(isHere)
          handle(lanes, isHere)
        }, owns)
      },
      Effect.provideService(Supervised.Fibers, fibers)
    )
    return Context.make(LaneWakeup, LaneWakeup.of({ wake: wakeup.wake, onWake })).pipe(
      Context.add(
        Dispatcher,
        Dispatcher.of({
          ...dispatcher,
          fetch: (parts, without) =>
            Effect.map(dispatcher.fetch(parts, without), (fetched) => {
              for (const { events } of fetched.batches) found += events.length
              return fetched
            })
        })
      )
    )
  })
)
