/** The wake-up of a consumer's holds: after an operator's redrive the next attempt starts at once, and not at the next poll. */
import { Effect, type Scope } from "effect"
import { Wakeups } from "../../platform/Wakeups.ts"

const subject = "inbox"

/** Tells the consumer's members in all processes that an operator changed one of its holds. As every wake-up it may be lost. */
export const announce = (consumer: string): Effect.Effect<void, never, Wakeups> =>
  Effect.flatMap(Wakeups, (wakeups) => wakeups.send(subject, [consumer]))

/** Runs `wake` at each wake-up of the consumer's holds, for as long as the scope lives. */
export const onWake = (consumer: string, wake: () => void): Effect.Effect<void, never, Wakeups | Scope.Scope> =>
  Effect.flatMap(Wakeups, (wakeups) => wakeups.on(subject, (name) => void (name === consumer && wake())))
