/**
 * Wake-ups: "something may have changed at this name". In this process at once, in the others through NOTIFY.
 *
 * A signal is a hint and may be lost; whoever waits for one also polls. It is sent after the commit, outside the business
 * transaction, for a NOTIFY inside takes an instance-wide lock at commit. Equal signals that pile up are sent once.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Latch, Layer, type Scope } from "effect"
import { channel, ControlConnection } from "./database/ControlConnection.ts"
import * as Supervised from "./Supervised.ts"

/** Whether signals reach other processes. Off, everything still happens, at the pace of the polls. */
export const SignalSettings = Context.Reference<{ readonly crossProcess: boolean }>(
  "paid-once/platform/SignalSettings",
  {
    defaultValue: () => ({ crossProcess: true })
  }
)

/** A notification's payload may have 8000 bytes; a name of ours has some dozens. Anything longer is somebody else's. */
const maxPayloadLength = 512

/**
 * Signals that come at this distance or farther apart go out at once, each by itself. Closer ones wait for those of the next few
 * milliseconds: a NOTIFY for each of thousands of commits a second costs the writer half as much again as its event, and a lane that is
 * busy anyway is woken in time.
 */
const calmMillis = 1
const gapMillis = 3

/** Waits without a signal for so long before looking again, so that the flusher shows health that it is alive. */
const idleMillis = 10_000

export class Signals extends Context.Service<
  Signals,
  {
    /** Wakes every listener of the subject, here and elsewhere. Never fails and never waits for the network. */
    readonly send: (subject: string, details: ReadonlyArray<string>) => Effect.Effect<void>
    /** Calls `handle` for each signal of the subject while the scope is open. `handle` must be short. */
    readonly on: (
      subject: string,
      handle: (detail: string) => Effect.Effect<void>
    ) => Effect.Effect<void, never, Scope.Scope>
  }
>()("paid-once/platform/Signals") {
  static readonly layer = Layer.effect(
    Signals,
    Effect.gen(function* () {
      const control = yield* ControlConnection
      const { crossProcess } = yield* SignalSettings
      const listeners = new Map<string, Set<(detail: string) => Effect.Effect<void>>>()
      const pending = new Set<string>()
      const latch = yield* Latch.make(false)

      const deliver = (subject: string, detail: string) =>
        Effect.forEach([...(listeners.get(subject) ?? [])], (handle) => handle(detail), { discard: true })

      yield* control.onNotification((payload) => {
        const space = payload.indexOf(" ")
        return space < 0 || payload.length > maxPayloadLength
          ? Effect.void
          : deliver(payload.slice(0, space), payload.slice(space + 1))
      })

      let waiting = 0
      let flushedMillis = 0
      /** Sends what has piled up; true where that came thick and fast. */
      const flush = Effect.clockWith((clock) => {
        const now = clock.currentTimeMillisUnsafe()
        const busy = waiting * calmMillis > now - flushedMillis
        flushedMillis = now
        waiting = 0
        const payloads = [...pending]
        pending.clear()
        // A signal that can't be sent is lost on purpose: queueing hints through an outage helps nobody.
        return Effect.as(Effect.ignore(control.notify(payloads)), busy)
      })
      if (crossProcess) {
        // Runs after the loop has ended: "my lanes are free" is what a process says last.
        yield* Effect.addFinalizer(() => flush)
        yield* Supervised.forkLoop(
          "signals",
          latch.await.pipe(
            Effect.andThen(latch.close),
            Effect.andThen(flush),
            Effect.flatMap((busy) => (busy ? Effect.sleep(gapMillis) : Effect.void)),
            Effect.timeoutOption(idleMillis)
          )
        )
      }

      return Signals.of({
        send: (subject, details) =>
          Effect.andThen(
            Effect.forEach(details, (detail) => deliver(subject, detail), { discard: true }),
            crossProcess
              ? Effect.suspend(() => {
                  for (const detail of details) pending.add(`${subject} ${detail}`)
                  waiting += details.length
                  return latch.open
                })
              : Effect.void
          ).pipe(Effect.asVoid),
        on: (subject, handle) =>
          Effect.acquireRelease(
            Effect.sync(() => {
              const set = listeners.get(subject) ?? new Set()
              listeners.set(subject, set.add(handle))
            }),
            () => Effect.sync(() => listeners.get(subject)?.delete(handle))
          )
      })
    })
  )

  /**
   * For a process that ends at once: signals go out on a connection of the pool before `send` returns, and none comes in. One that
   * can't be sent is lost, as everywhere.
   */
  static readonly layerDirect: Layer.Layer<Signals, never, PgClient.PgClient> = Layer.effect(
    Signals,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const { crossProcess } = yield* SignalSettings
      return Signals.of({
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
