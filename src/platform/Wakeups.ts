/**
 * Wake-ups: "something may have changed under this name". This process hears them at once, the others through NOTIFY.
 *
 * A wake-up is a hint and may be lost, so its listeners also poll. It is sent after the commit, outside the business transaction: a NOTIFY inside
 * takes an instance-wide lock at commit. Equal wake-ups that wait to be sent are sent once.
 */
import { Context, Effect, Latch, Layer, Scope } from "effect"
import { ControlConnection } from "./ControlConnection.ts"
import * as Monotonic from "./Monotonic.ts"
import * as Supervised from "./Supervised.ts"

/** Whether wake-ups reach other processes. Without them everything still happens, at the pace of the polls. */
export const WakeupSettings = Context.Reference<{ readonly crossProcess: boolean }>(
  "paid-once/platform/WakeupSettings",
  {
    defaultValue: () => ({ crossProcess: true })
  }
)

/** Wake-ups sent together are lines of one notification: every listener, the sender included, pays for each notification. */
const separator = "\n"
/** A notification may have 8000 bytes. A character has at most 3, and a surrogate pair 4. */
const maxPayloadLength = 2_000

/**
 * Wake-ups at least this far apart are sent at once, each by itself. Closer ones are collected. With thousands of commits a second, a NOTIFY for each
 * would add half the cost of its event, and a busy lane needs no earlier wake-up.
 */
const calmMillis = 1
/** How long wake-ups are collected: longer when there are more of them, and still within milliseconds. */
const gapMillis = { least: 1, most: 5 }

/** Without any wake-up the loop turns this often, which shows health that it is alive. */
const idleMillis = 10_000

export class Wakeups extends Context.Service<
  Wakeups,
  {
    /**
     * Wakes every listener of the subject, here and elsewhere. Never fails and never waits for the network. There is no newline in either, and no
     * space in `subject`.
     */
    readonly send: (subject: string, details: ReadonlyArray<string>) => Effect.Effect<void>
    /**
     * Calls `handle` for each wake-up of the subject while the scope is open. Returns when this process hears those of other processes, too.
     * `handle` is plain code and short, since there may be thousands of wake-ups a second: it notes a name, or opens a latch (whose waiter runs at once).
     */
    readonly on: (subject: string, handle: (detail: string) => void) => Effect.Effect<void, never, Scope.Scope>
  }
>()("paid-once/platform/Wakeups") {
  static readonly layer = Layer.effect(
    Wakeups,
    Effect.gen(function* () {
      const control = yield* ControlConnection
      const { crossProcess } = yield* WakeupSettings
      const listeners = new Map<string, Set<(detail: string) => void>>()
      let pending = new Set<string>()
      const latch = yield* Latch.make(false)

      const deliver = (subject: string, detail: string) => {
        for (const handle of listeners.get(subject) ?? []) handle(detail)
      }
      const receive = (payload: string) => {
        for (const line of payload.split(separator)) {
          const space = line.indexOf(" ")
          // Anyone may NOTIFY on the channel: a line without a subject is ignored.
          if (space >= 0) deliver(line.slice(0, space), line.slice(space + 1))
        }
      }
      // Once, when the first listener comes. Uninterruptible: that listener may leave before the others.
      const hear = yield* Effect.cached(
        Effect.uninterruptible(Effect.provideService(control.onNotification(receive), Scope.Scope, yield* Effect.scope))
      )

      let waiting = 0
      let flushedMillis = Number.NEGATIVE_INFINITY
      /** Sends the collected wake-ups, and returns how long to collect the next ones. */
      const flush = Effect.clockWith((clock) => {
        const now = Monotonic.millisUnsafe(clock)
        const isBusy = waiting * calmMillis > now - flushedMillis
        const gap = isBusy ? Math.min(Math.max(gapMillis.least, waiting), gapMillis.most) : 0
        flushedMillis = now
        waiting = 0
        const payloads = joined(pending)
        pending = new Set()
        latch.closeUnsafe()
        // A wake-up that can't be sent is dropped: after an outage everyone polls anyway.
        return Effect.as(Effect.ignore(control.notify(payloads)), gap)
      })
      if (crossProcess) {
        // Runs after the loop has ended: the last wake-up of a process says that its lanes are free.
        yield* Effect.addFinalizer(() => flush)
        yield* Supervised.forkLoop("wake-ups", (stamp) => {
          // The fiber that has just committed runs first: a NOTIFY takes a twentieth of the time that a request takes.
          const sendNext = latch.await.pipe(Effect.andThen(Effect.yieldNow), Effect.andThen(flush))
          const turn = Effect.flatMap(sendNext, (gap) =>
            Effect.andThen(stamp, gap === 0 ? Effect.void : Effect.sleep(gap))
          )
          // A timeout for each wait would cost more than the rest of a turn.
          const tick = Effect.andThen(Effect.sleep(idleMillis), latch.open)
          return Effect.raceFirst(Effect.forever(turn), Effect.forever(tick))
        })
      }

      return Wakeups.of({
        send: (subject, details) =>
          Effect.sync(() => {
            if (crossProcess) {
              for (const detail of details) pending.add(`${subject} ${detail}`)
              waiting += details.length
              latch.openUnsafe()
            }
            for (const detail of details) deliver(subject, detail)
          }),
        on: (subject, handle) =>
          Effect.acquireRelease(
            Effect.sync(() => {
              const set = listeners.get(subject) ?? new Set()
              listeners.set(subject, set.add(handle))
            }),
            () => Effect.sync(() => listeners.get(subject)?.delete(handle))
          ).pipe(Effect.andThen(hear))
      })
    })
  )
}

/** As few payloads as hold all wake-ups. */
const joined = (wakeups: Iterable<string>): ReadonlyArray<string> => {
  const payloads: Array<string> = []
  for (const wakeup of wakeups) {
    const last = payloads.at(-1)
    if (last !== undefined && last.length + separator.length + wakeup.length <= maxPayloadLength) {
      payloads[payloads.length - 1] = last + separator + wakeup
    } else payloads.push(wakeup)
  }
  return payloads
}
