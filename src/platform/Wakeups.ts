/**
 * Wake-ups: "something may have changed at this name". In this process at once, in the others through NOTIFY.
 *
 * A signal is a hint and may be lost; whoever waits for one also polls. It is sent after the commit, outside the business
 * transaction, for a NOTIFY inside takes an instance-wide lock at commit. Equal signals that pile up are sent once.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Latch, Layer, Scope } from "effect"
import { channel, ControlConnection } from "./ControlConnection.ts"
import * as Monotonic from "./Monotonic.ts"
import * as Supervised from "./Supervised.ts"

/** Whether signals reach other processes. Off, everything still happens, at the pace of the polls. */
export const WakeupSettings = Context.Reference<{ readonly crossProcess: boolean }>(
  "paid-once/platform/WakeupSettings",
  {
    defaultValue: () => ({ crossProcess: true })
  }
)

/** What goes out together is one notification, a line each: whoever listens, the sender too, pays for each that Postgres delivers. */
const separator = "\n"
/** A notification may have 8000 bytes. A character has at most 3, and a surrogate pair 4. */
const maxPayloadLength = 2_000

/**
 * Signals that come at this distance or farther apart go out at once, each by itself. Closer ones wait for each other: a NOTIFY for
 * each of thousands of commits a second costs the writer half as much again as its event, and a lane that is busy anyway is woken in time.
 */
const calmMillis = 1
/** So long, and the longer the more there are, up to what still is "within milliseconds". */
const gapMillis = { least: 3, most: 10 }

/** Without a signal it looks after so long, so that the flusher shows health that it is alive. */
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
     * Calls `handle` for each signal of the subject while the scope is open; those of other processes from when this one listens, which it waits
     * for. `handle` must be short.
     */
    readonly on: (
      subject: string,
      handle: (detail: string) => Effect.Effect<void>
    ) => Effect.Effect<void, never, Scope.Scope>
  }
>()("paid-once/platform/Wakeups") {
  static readonly layer = Layer.effect(
    Wakeups,
    Effect.gen(function* () {
      const control = yield* ControlConnection
      const { crossProcess } = yield* WakeupSettings
      const listeners = new Map<string, Set<(detail: string) => Effect.Effect<void>>>()
      const pending = new Set<string>()
      const latch = yield* Latch.make(false)

      const deliver = (subject: string, detail: string) =>
        Effect.forEach([...(listeners.get(subject) ?? [])], (handle) => handle(detail), { discard: true })

      // Anyone may NOTIFY on the channel: what is no signal is nobody's subject.
      const receive = (payload: string) =>
        Effect.forEach(
          payload.split(separator),
          (line) => {
            const space = line.indexOf(" ")
            return space < 0 ? Effect.void : deliver(line.slice(0, space), line.slice(space + 1))
          },
          { discard: true }
        )
      // Asked for when somebody first waits for a signal, and then once: not to be cut off in the middle, whoever came first.
      const hear = yield* Effect.cached(
        Effect.uninterruptible(Effect.provideService(control.onNotification(receive), Scope.Scope, yield* Effect.scope))
      )

      let waiting = 0
      let flushedMillis = Number.NEGATIVE_INFINITY
      /** Sends what has piled up, and says how long to wait for more. */
      const flush = Effect.clockWith((clock) => {
        const now = Monotonic.millisUnsafe(clock)
        const isBusy = waiting * calmMillis > now - flushedMillis
        const gap = isBusy ? Math.min(Math.max(gapMillis.least, waiting), gapMillis.most) : 0
        flushedMillis = now
        waiting = 0
        const payloads = joined(pending)
        pending.clear()
        latch.closeUnsafe()
        // A signal that can't be sent is lost on purpose: queueing hints through an outage helps nobody.
        return Effect.as(Effect.ignore(control.notify(payloads)), gap)
      })
      if (crossProcess) {
        // Runs after the loop has ended: "my lanes are free" is what a process says last.
        yield* Effect.addFinalizer(() => flush)
        yield* Supervised.forkLoop("signals", (stamp) => {
          // Whoever has just committed goes first: a NOTIFY takes a twentieth of the time in which a request is answered.
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
          Effect.suspend(() => {
            if (crossProcess) {
              for (const detail of details) pending.add(`${subject} ${detail}`)
              waiting += details.length
              latch.openUnsafe()
            }
            return listeners.has(subject)
              ? Effect.forEach(details, (detail) => deliver(subject, detail), { discard: true })
              : Effect.void
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

  /**
   * For a process that ends at once: signals go out on a connection of the pool before `send` returns, and none comes in. One that
   * can't be sent is lost, as everywhere.
   */
  static readonly layerDirect: Layer.Layer<Wakeups, never, PgClient.PgClient> = Layer.effect(
    Wakeups,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const { crossProcess } = yield* WakeupSettings
      return Wakeups.of({
        send: (subject, details) =>
          crossProcess
            ? Effect.forEach(details, (detail) => client.notify(channel, `${subject} ${detail}`), {
                discard: true
              }).pipe(Effect.ignore)
            : Effect.void,
        on: () => Effect.void
      })
    })
  )
}

/** As few payloads as hold all signals. */
const joined = (wakeups: Iterable<string>): ReadonlyArray<string> => {
  const payloads: Array<string> = []
  for (const signal of wakeups) {
    const last = payloads.at(-1)
    if (last !== undefined && last.length + separator.length + signal.length <= maxPayloadLength) {
      payloads[payloads.length - 1] = last + separator + signal
    } else payloads.push(signal)
  }
  return payloads
}
