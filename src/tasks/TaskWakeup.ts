/** Wakes workers when a task is due, or soon will be. A hint: the poll finds the row anyway. */
import { Context, Effect, Layer, type Scope } from "effect"
import { Wakeups } from "../platform/Wakeups.ts"

const subject = "tasks"

/** A worker of this process. */
interface Listener {
  readonly handle: (typeName: string) => void
  readonly wants: (typeName: string) => boolean
}

export class TaskWakeup extends Context.Service<
  TaskWakeup,
  {
    /** Wakes this process if it has room for a task of the type, and else all processes. */
    readonly wake: (typeName: string) => Effect.Effect<void>
    /**
     * Calls `handle` for each wake-up of this or another process while the scope is open. A wake-up of this process for a type that it `wants` (it
     * handles the type, and has room) goes to no other process, and costs no NOTIFY.
     */
    readonly onWake: (listener: Listener) => Effect.Effect<void, never, Scope.Scope>
  }
>()("paid-once/tasks/TaskWakeup") {
  static readonly layer: Layer.Layer<TaskWakeup, never, Wakeups> = Layer.effect(
    TaskWakeup,
    Effect.map(Wakeups, (wakeups) => {
      const listeners = new Set<Listener>()
      return TaskWakeup.of({
        wake: (typeName) =>
          Effect.suspend(() => {
            for (const { handle, wants } of listeners) {
              if (wants(typeName)) return Effect.sync(() => handle(typeName))
            }
            return wakeups.send(subject, [typeName])
          }),
        onWake: Effect.fnUntraced(function* (listener) {
          yield* Effect.acquireRelease(
            Effect.sync(() => listeners.add(listener)),
            () => Effect.sync(() => listeners.delete(listener))
          )
          yield* wakeups.on(subject, listener.handle)
        })
      })
    })
  )
}
