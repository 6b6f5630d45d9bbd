/** Mistakes of one line in what an operator pauses. */
import type { Mutant } from "./mutants.ts"

const seenBy = "test/operations/Pauses.test.ts"

export const pauseMutants: ReadonlyArray<Mutant> = [
  {
    name: "pauses-unread-at-the-start",
    breaks: "a process that starts sends to a paused topic",
    file: "src/operations/pauses/Pauses.ts",
    find: "SubscriptionRef.make(yield* readNow)",
    replace: "SubscriptionRef.make<ReadonlyArray<Pause>>([])",
    seenBy: { file: seenBy, test: "a pause and its end are audited once" }
  },
  {
    name: "fetches-of-paused-topics",
    breaks: "events go to a paused topic",
    file: "src/operations/pauses/PausedTopics.ts",
    find: "fetch: (parts, without) => Effect.flatMap(running(parts), (some) => queue.fetch(some, without))",
    replace: "fetch: queue.fetch",
    seenBy: { file: seenBy, test: "a paused topic gets no event" }
  },
  {
    name: "retries-to-paused-topics",
    breaks: "an event that the broker had refused goes to a paused topic",
    file: "src/operations/pauses/PausedTopics.ts",
    find: "due: (views) => Effect.flatMap(running(views), holds.due)",
    replace: "due: holds.due",
    seenBy: { file: seenBy, test: "a paused topic gets no event" }
  },
  {
    name: "reads-while-paused",
    breaks: "a paused consumer reads on",
    file: "src/operations/pauses/PausedConsumers.ts",
    find: "consume: (options, handle) => whileRunning(options.group, broker.consume(options, handle))",
    replace: "consume: broker.consume",
    seenBy: { file: seenBy, test: "a paused consumer reads nothing" }
  },
  {
    name: "claims-while-paused",
    breaks: "tasks of a paused type begin",
    file: "src/operations/pauses/PausedTaskTypes.ts",
    find: "wanted.filter(({ typeName }) => !paused.includes(typeName))",
    replace: "wanted",
    seenBy: { file: seenBy, test: "no task of a paused type begins" }
  },
  {
    name: "resumes-at-the-next-poll",
    breaks: "tasks of a resumed type wait for the next poll",
    file: "src/operations/pauses/PausedTaskTypes.ts",
    find: "Effect.forEach(resumed, wakeup.wake, { discard: true })",
    replace: "Effect.void",
    seenBy: { file: seenBy, test: "no task of a paused type begins" }
  }
]
