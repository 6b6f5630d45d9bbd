/** One-line mistakes in the inbox: a missing guard between the two steps of a protocol. */
import type { Mutant } from "./mutants.ts"

const cursors = "src/inbox/Cursors.ts"
const holdRetries = "src/inbox/holds/HoldRetries.ts"
const applySlice = "src/inbox/ApplySlice.ts"
const retryHold = "src/inbox/holds/RetryHold.ts"
const holds = "src/inbox/holds/ParkedHolds.ts"
const heldRows = "src/inbox/holds/HeldRows.ts"
const park = "src/inbox/holds/ParkRecords.ts"
const letters = "src/operations/InboxDeadLetters.ts"
const racesTest = "test/inbox/Interleavings.test.ts"
const cursorsTest = "test/inbox/Cursors.test.ts"
const holdRacesTest = "test/inbox/HoldRaces.test.ts"

export const inboxRaceMutants: ReadonlyArray<Mutant> = [
  {
    name: "inbox-skip-without-lock",
    breaks: "a skip that waits for an open slice is recorded with versions that the slice has applied",
    file: letters,
    find: "AND aggregate_type = ${type}\n    FOR UPDATE`",
    replace: "AND aggregate_type = ${type}`",
    seenBy: { file: racesTest, test: "a skip that waits for a member" }
  },
  {
    name: "inbox-cursor-from-before-the-lock",
    breaks: "an arrival that waited for a hold's end takes the next version for one that is too early",
    file: applySlice,
    find: "return { cursors: yield* cursors.read(consumer, aggregates), holds: locked }",
    replace: "return { cursors: found, holds: locked }",
    seenBy: { file: racesTest, test: "an arrival that waited for a hold's end" }
  },
  {
    name: "inbox-postpones-the-dead",
    breaks:
      "an attempt that failed transiently revives an event that became a dead letter between its two transactions",
    file: holdRetries,
    find: "if (hold?.isDue === true) yield*",
    replace: "if (hold !== undefined) yield*",
    seenBy: { file: racesTest, test: "an attempt that fails transiently" }
  },
  {
    name: "inbox-operator-passes-by",
    breaks: "an operator who decides during an attempt is refused",
    file: letters,
    find: 'HeldRows.lockHold(held, "exclusive")',
    replace: 'HeldRows.lockHold(held, "attempt")',
    seenBy: { file: racesTest, test: "an operator's decision waits for a running attempt" }
  },
  {
    name: "inbox-forgets-a-failure",
    breaks:
      "a failure that one process counts while another one ends its attempt is lost, and the event is tried again at once",
    file: retryHold,
    find: "hold.eventId === id && hold.attempts > 0",
    replace: "false",
    seenBy: { file: holdRacesTest, test: "a failure that another member counts between" }
  },
  {
    name: "inbox-advances-what-was-taken",
    breaks: "two members that apply the same version both keep their effect",
    file: cursors,
    find: "if (row?.moved !== moves.length) {",
    replace: "if (false) {",
    seenBy: { file: cursorsTest, test: "without marks the cursors alone" }
  },
  {
    name: "inbox-decides-beside-arrivals",
    breaks: "a hold ends while an arrival parks behind it",
    file: heldRows,
    find: '"FOR NO KEY UPDATE SKIP LOCKED" : "FOR UPDATE"',
    replace: '"FOR NO KEY UPDATE SKIP LOCKED" : "FOR NO KEY UPDATE"',
    seenBy: { file: cursorsTest, test: "an event that arrives while its gap is recorded is" }
  },
  {
    name: "inbox-decides-without-lock",
    breaks: "a hold ends, or an operator decides about it, during an attempt",
    file: heldRows,
    find: '"FOR NO KEY UPDATE SKIP LOCKED" : "FOR UPDATE"',
    replace: '"FOR NO KEY UPDATE SKIP LOCKED" : ""',
    seenBy: { file: cursorsTest, test: "an event that arrives while its gap is recorded is" }
  },
  {
    name: "inbox-two-try-one-hold",
    breaks: "two processes try one hold at once",
    file: heldRows,
    find: '"FOR NO KEY UPDATE SKIP LOCKED" :',
    replace: '"" :',
    seenBy: { file: racesTest, test: "a hold that one process attempts" }
  },
  {
    name: "inbox-tries-wait-for-each-other",
    breaks: "a round waits for a hold that another process attempts",
    file: heldRows,
    find: '"FOR NO KEY UPDATE SKIP LOCKED" :',
    replace: '"FOR NO KEY UPDATE" :',
    seenBy: { file: racesTest, test: "a hold that one process attempts" }
  },
  {
    name: "inbox-holds-without-head",
    breaks: "a hold is made for an event that was given up meanwhile, and never ends",
    file: holds,
    find: "if (parked === 0) return yield*",
    replace: "if (false) return yield*",
    seenBy: { file: holdRacesTest, test: "an unreadable record that is discarded while another" }
  },
  {
    name: "inbox-parks-what-was-buried",
    breaks: "an event is a dead letter and parked at once",
    file: park,
    find: "const withdrawn = yield* withdraw(\n    consumer,\n    inserted.map(({ id }) => id)\n  )",
    replace: "const withdrawn = new Set<string>()",
    seenBy: { file: holdRacesTest, test: "an event that becomes a dead letter while another" }
  },
  {
    name: "inbox-discards-what-was-applied",
    breaks: "an event that another member has applied is recorded as discarded",
    file: letters,
    find: "if (row.version !== null && cursor >= version)",
    replace: "if (false)",
    seenBy: { file: racesTest, test: "a held event that another member has applied" }
  },
  {
    name: "inbox-discards-past-a-gap",
    breaks: "an earlier missing version is given up without a decision",
    file: letters,
    find: "version > cursor + 1)",
    replace: "version > 2 ** 31)",
    seenBy: { file: racesTest, test: "an event that has become due and was not tried" }
  },
  {
    name: "inbox-ends-a-hold-early",
    breaks: "an event ahead of its predecessor is applied",
    file: retryHold,
    find: 'order === "ahead" ? "missing" : "duplicate"',
    replace: '"duplicate"',
    seenBy: { file: cursorsTest, test: "an operator skips a missing version" }
  },
  {
    name: "inbox-parks-without-lock",
    breaks: "a hold ends while an arrival parks behind it",
    file: holds,
    find: "ORDER BY h.aggregate_id FOR KEY SHARE OF h`",
    replace: "ORDER BY h.aggregate_id`",
    seenBy: { file: racesTest, test: "an arrival that waited for a hold's end" }
  }
]
