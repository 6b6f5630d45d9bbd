/** One-line mistakes that a review planted and no test noticed at first. Each class of them has its tests now. */
import type { Mutant } from "./mutants.ts"

const statusView = "migrations/mechanism/0105_outbox_holds.sql"
const bothDeadLetters = "src/operations/DeadLetters.ts"
const deadLetters = "src/operations/OutboxDeadLetters.ts"
const inboxDeadLetters = "src/operations/InboxDeadLetters.ts"
const lowWaterMarks = "src/postgres/fast/LowWaterMarkRounds.ts"

export const netOutboxMutants: ReadonlyArray<Mutant> = [
  {
    name: "floor-over-later-numbers",
    breaks: "an event whose number was drawn after a low-water mark's proposal, and that commits late, is never sent",
    file: lowWaterMarks,
    find: "first === null || first > lastSeq ? lastSeq + 1n : first",
    replace: "first === null ? lastSeq + 1n : first",
    seenBy: { file: "test/outbox/LateNumbers.test.ts", test: "a number that is drawn after the proposal" }
  },
  {
    name: "second-mark-over-later-numbers",
    breaks:
      "an event whose number was drawn after a mark's proposal, and that commits late, waits for another, paused topic",
    file: lowWaterMarks,
    find: "const bounds = [end, ...(first === null ? [] : [first]), ",
    replace: "const bounds = [...(first === null ? [end] : [first]), ",
    seenBy: { file: "test/outbox/LateNumbers.test.ts", test: "a number that is drawn after the proposal" }
  },
  {
    name: "queued-behind-a-hold",
    breaks: "outbox_status calls an event queued that waits behind a refused one",
    file: statusView,
    find: "CASE WHEN h.event_id IS NULL THEN 'queued' ELSE 'parked' END",
    replace: "'queued'",
    seenBy: { file: "test/outbox/Status.test.ts", test: "an event behind a refused one is parked" }
  },
  {
    name: "queued-though-parked",
    breaks: "outbox_status calls a parked event queued",
    file: statusView,
    find: "CASE WHEN p.seq = h.seq THEN 'retrying' ELSE 'parked' END",
    replace: "CASE WHEN p.seq = h.seq THEN 'retrying' ELSE 'queued' END",
    seenBy: { file: "test/outbox/Status.test.ts", test: "an event behind a refused one is parked" }
  },
  {
    name: "attempts-of-its-head",
    breaks: "outbox_status shows the refused event's attempts for those that wait behind it",
    file: statusView,
    find: "CASE WHEN p.seq = h.seq THEN h.attempts ELSE 0 END",
    replace: "h.attempts",
    seenBy: { file: "test/outbox/Status.test.ts", test: "an event behind a refused one is parked" }
  },
  {
    name: "wakes-before-the-commit",
    breaks: "the owner of a lane reads the rows before an operator's change commits, and then waits for its poll",
    file: bothDeadLetters,
    find: "yield* afterCommit(Effect.provideContext(wake, context))",
    replace: "yield* Effect.provideContext(wake, context)",
    seenBy: { file: "test/outbox/OperatorWakeups.test.ts", test: "a retry of " }
  },
  {
    name: "discard-wakes-nobody",
    breaks: "events parked behind a discarded one wait for the next poll, whose interval may be minutes",
    file: deadLetters,
    find: "after: { status, attempts }, wake: wake(lane)",
    replace: "after: { status, attempts }, wake: Effect.void",
    seenBy: { file: "test/outbox/OperatorWakeups.test.ts", test: "a discard of " }
  },
  {
    name: "discard-wakes-nobody-for-the-queue",
    breaks: "events parked behind a discarded one wait for the next poll",
    file: deadLetters,
    find: "Effect.flatMap(LaneWakeup, (wakeup) => wakeup.wake(lane))",
    replace: "Effect.void",
    seenBy: { file: "test/outbox/OperatorWakeups.test.ts", test: "a discard of " }
  },
  {
    name: "retry-wakes-nobody-for-the-holds",
    breaks: "a redriven dead letter waits for the next round over the holds",
    file: deadLetters,
    find: "HoldRetries.announce(lane),",
    replace: "Effect.void,",
    seenBy: { file: "test/outbox/OperatorWakeups.test.ts", test: "a retry of " }
  },
  {
    name: "skipped-retry-wakes-nobody",
    breaks: "a redriven dead letter waits for the next round over the holds",
    file: deadLetters,
    find: "wake: wake(dead.lane)",
    replace: "wake: Effect.void",
    seenBy: { file: "test/outbox/OperatorWakeups.test.ts", test: "a retry of " }
  },
  {
    name: "hastening-wakes-nobody",
    breaks: "a refused event that an operator retries waits for the next round over the holds",
    file: deadLetters,
    find: 'due: "now" }, wake: wake(lane)',
    replace: 'due: "now" }, wake: Effect.void',
    seenBy: { file: "test/outbox/OperatorWakeups.test.ts", test: "a retry of " }
  },
  {
    name: "wakes-consumer-before-the-commit",
    breaks: "a consumer reads the rows before an operator's change commits, and then waits for its poll",
    file: bothDeadLetters,
    find: "yield* afterCommit(Effect.provideContext(wake, context))",
    replace: "yield* Effect.provideContext(wake, context)",
    seenBy: { file: "test/inbox/OperatorWakeups.test.ts", test: "the consumer is woken after the commit" }
  },
  {
    name: "inbox-discard-wakes-nobody",
    breaks: "events parked behind a discarded one wait for the consumer's next poll",
    file: inboxDeadLetters,
    find: "after: { status, attempts }, wake: announce(consumer)",
    replace: "after: { status, attempts }, wake: Effect.void",
    seenBy: { file: "test/inbox/OperatorWakeups.test.ts", test: "the consumer is woken after the commit" }
  },
  {
    name: "inbox-retry-wakes-nobody",
    breaks: "an event that an operator tries again waits for the consumer's next poll",
    file: inboxDeadLetters,
    find: 'due: "now" }, wake: announce(key.consumer)',
    replace: 'due: "now" }, wake: Effect.void',
    seenBy: { file: "test/inbox/OperatorWakeups.test.ts", test: "the consumer is woken after the commit" }
  },
  {
    name: "inbox-skip-wakes-nobody",
    breaks: "an aggregate that is to go on without a version waits for the consumer's next poll",
    file: inboxDeadLetters,
    find: "version: passed }, wake: announce(key.consumer)",
    replace: "version: passed }, wake: Effect.void",
    seenBy: { file: "test/inbox/OperatorWakeups.test.ts", test: "the consumer is woken after the commit" }
  },
  {
    name: "consumer-hears-no-operator",
    breaks: "a consumer finds out about an operator's decision by its poll alone",
    file: "src/inbox/holds/HoldWakeup.ts",
    find: "name === consumer && wake()",
    replace: "name",
    seenBy: { file: "test/inbox/OperatorWakeups.test.ts", test: "a consumer that never polls" }
  }
]
