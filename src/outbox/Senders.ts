/** The senders: one for each topic and partition. A sender runs its work items one after the other, and no sender waits for another. */
import { Effect, FiberSet } from "effect"
import * as Supervised from "../platform/Supervised.ts"

/** What a sender runs. It handles its own failures. */
export type Work = () => Effect.Effect<void>

/** Returns a function that gives work to a sender. Closing the scope waits for the work in progress. */
export const make = Effect.gen(function* () {
  const fibers = yield* Supervised.Fibers
  const runFork = yield* FiberSet.makeRuntime<never, void, never>()
  const lines = new Map<string, Array<Work>>()
  /** A sender lives as long as it has work. Health reports one that hangs. */
  const sender = Effect.fnUntraced(
    function* (key: string, line: Array<Work>) {
      const name = `dispatcher sender ${key}`
      for (let work = line.shift(); work !== undefined; work = line.shift()) {
        yield* fibers.update(name, (state) => state)
        // The line goes on after a defect.
        yield* Effect.exit(
          Effect.tapCause(Effect.suspend(work), (cause) => Effect.logError(`${name}: work ended in a defect`, cause))
        )
        yield* fibers.remove(name)
      }
      lines.delete(key)
    },
    Effect.uninterruptible,
    // Its statements belong to no request, so they are not traced.
    Effect.withTracerEnabled(false)
  )
  return (topic: string, partition: number | undefined, work: Work) => {
    // The partitions of a topic are unknown until something was sent to it.
    const key = partition === undefined ? topic : `${topic}/${partition}`
    const line = lines.get(key)
    if (line !== undefined) line.push(work)
    else {
      const started = [work]
      lines.set(key, started)
      runFork(sender(key, started))
    }
  }
})
