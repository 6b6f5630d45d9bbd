/** Mistakes of one line in what an operator finds, reads and arms, and in how the commands say it. */
import type { Mutant } from "./mutants.ts"

const faults = "test/operations/ArmedFaults.test.ts"
const search = "test/operations/EventSearch.test.ts"
const reports = "test/operations/Reports.test.ts"

export const commandsMutants: ReadonlyArray<Mutant> = [
  {
    name: "faults-strike-for-ever",
    breaks: "a process that crashed on a fault crashes on it at each start",
    file: "src/operations/faults/FollowedFaults.ts",
    find: "DELETE FROM armed_faults WHERE point = ${point} AND times = 1 RETURNING",
    replace: "UPDATE armed_faults SET times = 1 WHERE point = ${point} AND times = 1 RETURNING",
    seenBy: { file: faults, test: "an armed fault strikes in every process" }
  },
  {
    name: "faults-roll-back",
    breaks: "a fault that fails its transaction is never used up",
    file: "src/operations/faults/FollowedFaults.ts",
    find: "Context.omit(client.transactionService)(context)",
    replace: "context",
    seenBy: { file: faults, test: "a strike is used up although its transaction rolls back" }
  },
  {
    name: "faults-without-a-trace",
    breaks: "a fault strikes, and nothing on the page says so",
    file: "src/operations/faults/FollowedFaults.ts",
    find: "SELECT ${point}, action, delay_millis, clock_now(), ${self} FROM taken",
    replace: "SELECT ${point}, action, delay_millis, clock_now(), ${self} FROM taken WHERE false",
    seenBy: { file: faults, test: "each strike is on record with its process" }
  },
  {
    name: "faults-on-record-for-ever",
    breaks: "a fault that strikes at every request fills the disk",
    file: "src/operations/faults/FollowedFaults.ts",
    find: "const keptStrikes = 1_000",
    replace: "const keptStrikes = 1_000_000",
    seenBy: { file: faults, test: "each strike is on record with its process" }
  },
  {
    name: "faults-for-nobody",
    breaks: "an operator arms a fault, and nothing ever happens",
    file: "src/operations/faults/ArmedFaults.ts",
    find: "if ((yield* Effect.orDie(processes)).length === 0) return yield* new FaultsOff()",
    replace: "",
    seenBy: { file: faults, test: "a process without FAULTS=on takes none" }
  },
  {
    name: "arms-twice",
    breaks: "a repeated click gives a fault its strikes once more, and the audit a second row",
    file: "src/operations/faults/ArmedFaults.ts",
    find: "if (isSame) return",
    replace: "if (false) return",
    seenBy: { file: faults, test: "arming and clearing are audited once" }
  },
  {
    name: "searches-the-whole-archive",
    breaks: "a search by trace reads millions of events in one statement",
    file: "src/operations/reports/EventSearch.ts",
    find: "if (slow.length > 0 && sinceSeconds === undefined) {",
    replace: "if (false) {",
    seenBy: { file: search, test: "a filter without an index needs a time" }
  },
  {
    name: "looks-without-bound",
    breaks: "a page of a search takes as long as the archive is large",
    file: "src/operations/reports/EventSearch.ts",
    find: "const last = slow.length === 0 ? undefined : yield* Effect.orDie(lastLook(filter, page))",
    replace: "const last = slow.length >= 0 ? undefined : yield* Effect.orDie(lastLook(filter, page))",
    seenBy: { file: search, test: "a page looks at a bounded number of events" }
  },
  {
    name: "search-misses-other-lanes",
    breaks: "the queued events of some of a customer's orders are not found",
    file: "src/operations/reports/EventSearch.ts",
    find: "[...new Set(aggregateIds.map(laneOf))]",
    replace: "[...new Set(aggregateIds.slice(0, 1).map(laneOf))]",
    seenBy: { file: search, test: "finds events in each state" }
  },
  {
    name: "publishing-forgets-refusals",
    breaks: "nobody can tell why an event was late",
    file: "src/outbox/holds/HeldRows.ts",
    find: "(SELECT history FROM outbox_holds",
    replace: "(SELECT NULL::jsonb FROM outbox_holds",
    seenBy: { file: reports, test: "an event that the broker took in the end keeps its refusals" }
  },
  {
    name: "applying-forgets-failures",
    breaks: "nobody can tell why a consumer was late",
    file: "src/inbox/holds/HeldRows.ts",
    find: "WHERE h.event_id = ${id} AND h.history <> '[]'",
    replace: "WHERE false AND h.event_id = ${id} AND h.history <> '[]'",
    seenBy: { file: reports, test: "an event that a consumer applied in the end keeps its failures" }
  },
  {
    name: "waiting-events-look-pending",
    breaks: "a customer's order shows nothing of an event that a consumer can't apply",
    file: "src/application/Timeline.ts",
    find: "(waiting.get(key) ?? undelivered)",
    replace: "undelivered",
    seenBy: { file: "test/http/Timeline.test.ts", test: "says what a consumer has made of an event" }
  },
  {
    name: "discarded-events-look-pending",
    breaks: "consumers seem to be behind for ever, by an event that nobody gets",
    file: "src/application/Timeline.ts",
    find: 'delivery.state === "discarded" ? "discarded" : "pending"',
    replace: '"pending"',
    seenBy: { file: "test/http/Timeline.test.ts", test: "says what a consumer has made of an event" }
  },
  {
    name: "waits-for-a-silent-broker",
    breaks: "an operator's command hangs as long as the broker does",
    file: "src/operations/reports/ConsumerLag.ts",
    find: "            Effect.timeout(askMillis),\n",
    replace: "",
    seenBy: { file: "test/operations/ConsumerLag.test.ts", test: "a broker that hangs is unknown" }
  },
  {
    name: "cuts-in-a-pipe",
    breaks: "a script gets half an id",
    file: "src/cli/Terminal.ts",
    find: "width === undefined ? widths : fitting(widths, head, width)",
    replace: "fitting(widths, head, width ?? 80)",
    seenBy: { file: "test/unit/Terminal.test.ts", test: "in a pipe has each cell whole" }
  },
  {
    name: "cuts-ids-first",
    breaks: "an operator on a usual terminal can't copy an event's id",
    file: "src/cli/Terminal.ts",
    find: "const copied = new Set([",
    replace: "const copied = new Set([]); void new Set([",
    seenBy: { file: "test/unit/Terminal.test.ts", test: "has its ids whole wherever they stand" }
  }
]
