/** The progress of a command that lasts. */
import { Console, Effect } from "effect"

/** A line of progress at most so often: a person reads it, and a log keeps it. */
const everyMillis = 1_000

/** Tells progress on stderr, so that stdout has the result alone: as text, or as a JSON object in each line. A new phase is told at once. */
export const tellingOf = <A>(asJson: boolean, phaseOf: (progress: A) => string, line: (progress: A) => string) => {
  let toldMillis = -Infinity
  let phase = ""
  return (progress: A) =>
    Effect.suspend(() => {
      const now = performance.now()
      const next = phaseOf(progress)
      if (phase === next && now - toldMillis < everyMillis) return Effect.void
      toldMillis = now
      phase = next
      return Console.error(asJson ? JSON.stringify(progress) : line(progress))
    })
}
