/** Tells the workers that a task is due, or soon will be. A hint: the row is the promise, and the poll finds it anyway. */
import { Context, Effect, Layer, type Scope } from "effect"
import { Wakeups } from "../platform/Wakeups.ts"

const subject = "tasks"

/** A worker of this process. */
interface Listener {
  readonly handle: (typeName: string) => Effect.Effect<void>
  readonly wants: (typeName: string) => boolean
}

export class TaskWakeup extends Context.Service<
  TaskWakeup,
  {
    /** Says that a task of this type is due, or soon will be: to this process where it has room for one, and else to all. */
    readonly wake: (typeName: string) => Effect.Effect<void>
    /**
     * Calls `handle` for each wake-up, from here or from another process, while the scope is open. What this process `wants` (it handles the
     * type, and has room) no other is told of: a process that does what it enqueues sends no NOTIFY.
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
              if (wants(typeName)) return handle(typeName)
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
