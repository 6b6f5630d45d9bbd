/** A sender for each topic and partition: its work is done one after the other, and no sender waits for another. */
import { Effect, FiberSet } from "effect"
import * as Supervised from "../platform/Supervised.ts"

type Work = () => Effect.Effect<void>

/** Returns what hands work to a sender. Closing the scope waits for the work that is under way. `work` handles its own failures. */
export const make = Effect.gen(function* () {
  const fibers = yield* Supervised.Fibers
  const runFork = yield* FiberSet.makeRuntime<never, void, never>()
  const lines = new Map<string, Array<Work>>()
  /** A sender lives as long as there is work for it; health sees one that hangs. */
  const sender = Effect.fnUntraced(
    function* (key: string, line: Array<Work>) {
      const name = `dispatcher sender ${key}`
      for (let work = line.shift(); work !== undefined; work = line.shift()) {
        yield* fibers.update(name, (state) => state)
        yield* work()
        yield* fibers.remove(name)
      }
      lines.delete(key)
    },
    Effect.uninterruptible,
    // Its statements belong to nobody's trace.
    Effect.withTracerEnabled(false)
  )
  return (topic: string, partition: number | undefined, work: Work) => {
    // A topic that nothing was sent to has no partitions yet.
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
