/** Mistakes of one line in the inbox: the lost guard between the two steps of a protocol. */
import type { Mutant } from "./mutants.ts"

const cursors = "src/inbox/Cursors.ts"
const applyHeld = "src/inbox/holds/ApplyHeld.ts"
const applySlice = "src/inbox/ApplySlice.ts"
const parking = "src/inbox/holds/Parking.ts"
const parkedRows = "src/inbox/holds/ParkedRows.ts"
const park = "src/inbox/holds/Park.ts"
const letters = "src/operations/InboxDeadLetters.ts"
const racesTest = "test/inbox/Interleavings.test.ts"
const cursorsTest = "test/inbox/Cursors.test.ts"
const parkingRacesTest = "test/inbox/ParkingRaces.test.ts"

export const inboxRaceMutants: ReadonlyArray<Mutant> = [
  {
    name: "inbox-skip-without-lock",
    breaks: "a skip that waits for an open slice is written down with versions that the slice has applied",
    file: letters,
    find: "AND aggregate_type = ${type}\n    FOR UPDATE`",
    replace: "AND aggregate_type = ${type}`",
    seenBy: { file: racesTest, test: "a skip that waits for a member" }
  },
  {
    name: "inbox-cursor-from-before-the-lock",
    breaks: "an arrival that waited for a hold's end takes the next version for one that is too early",
    file: applySlice,
    find: "return { places: yield* cursors.read(consumer, aggregates), waiting }",
    replace: "return { places, waiting }",
    seenBy: { file: racesTest, test: "an arrival that waited for a hold's end" }
  },
  {
    name: "inbox-postpones-the-dead",
    breaks: "a try that failed for the moment brings back what died between its two transactions",
    file: applyHeld,
    find: "if (hold?.isDue === true) yield*",
    replace: "if (hold !== undefined) yield*",
    seenBy: { file: racesTest, test: "a try that fails for the moment" }
  },
  {
    name: "inbox-operator-passes-by",
    breaks: "an operator who comes while an event is tried is told that it can't be decided about",
    file: letters,
    find: 'ParkedRows.lockHold(held, "decide")',
    replace: 'ParkedRows.lockHold(held, "try")',
    seenBy: { file: racesTest, test: "an operator who waits for a try" }
  },
  {
    name: "inbox-advances-what-was-taken",
    breaks: "two members that apply the same version both keep their effect",
    file: cursors,
    find: "if (row?.moved !== moves.length) return",
    replace: "if (false) return",
    seenBy: { file: cursorsTest, test: "were there no marks" }
  },
  {
    name: "inbox-decides-beside-arrivals",
    breaks: "a hold ends while an arrival parks behind it",
    file: parkedRows,
    find: '"FOR NO KEY UPDATE SKIP LOCKED" : "FOR UPDATE"',
    replace: '"FOR NO KEY UPDATE SKIP LOCKED" : "FOR NO KEY UPDATE"',
    seenBy: { file: cursorsTest, test: "what arrives while a gap is written down" }
  },
  {
    name: "inbox-decides-without-lock",
    breaks: "a hold ends, or is decided about, while it is tried",
    file: parkedRows,
    find: '"FOR NO KEY UPDATE SKIP LOCKED" : "FOR UPDATE"',
    replace: '"FOR NO KEY UPDATE SKIP LOCKED" : ""',
    seenBy: { file: cursorsTest, test: "what arrives while a gap is written down" }
  },
  {
    name: "inbox-two-try-one-hold",
    breaks: "two processes try one hold at once",
    file: parkedRows,
    find: '"FOR NO KEY UPDATE SKIP LOCKED" :',
    replace: '"" :',
    seenBy: { file: racesTest, test: "a hold that one process tries" }
  },
  {
    name: "inbox-tries-wait-for-each-other",
    breaks: "a round waits for the hold that another process is at",
    file: parkedRows,
    find: '"FOR NO KEY UPDATE SKIP LOCKED" :',
    replace: '"FOR NO KEY UPDATE" :',
    seenBy: { file: racesTest, test: "a hold that one process tries" }
  },
  {
    name: "inbox-holds-without-head",
    breaks: "a hold is made for an event that was given up meanwhile, and never ends",
    file: parking,
    find: "if (parked === 0) return yield*",
    replace: "if (false) return yield*",
    seenBy: { file: parkingRacesTest, test: "an unreadable record that is given up while" }
  },
  {
    name: "inbox-parks-what-was-buried",
    breaks: "an event is dead and waits as well",
    file: park,
    find: "const withdrawn = yield* withdraw(\n    consumer,\n    inserted.map(({ id }) => id)\n  )",
    replace: "const withdrawn = new Set<string>()",
    seenBy: { file: parkingRacesTest, test: "an event that dies while another member parks" }
  },
  {
    name: "inbox-discards-what-was-applied",
    breaks: "an event that another member has applied is written down as discarded",
    file: letters,
    find: "if (row.version !== null && cursor >= version)",
    replace: "if (false)",
    seenBy: { file: racesTest, test: "a held event that another member has applied" }
  },
  {
    name: "inbox-discards-past-a-gap",
    breaks: "an earlier version that is missing is given up unseen",
    file: letters,
    find: "version > cursor + 1)",
    replace: "version > 2 ** 31)",
    seenBy: { file: racesTest, test: "an event that has become due and was not tried" }
  },
  {
    name: "inbox-ends-a-hold-early",
    breaks: "what is ahead is applied",
    file: applyHeld,
    find: 'if (place === "ahead") return end("rest")',
    replace: "",
    seenBy: { file: cursorsTest, test: "an operator goes on without what is missing" }
  },
  {
    name: "inbox-parks-without-lock",
    breaks: "a hold ends while an arrival parks behind it",
    file: parking,
    find: "ORDER BY h.aggregate_id FOR KEY SHARE OF h`",
    replace: "ORDER BY h.aggregate_id`",
    seenBy: { file: racesTest, test: "an arrival that waited for a hold's end" }
  }
]
