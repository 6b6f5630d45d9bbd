/** One-line mistakes in the inbox: in what is applied, parked and reported, and for which consumer. */
import { inboxConsumerMutants } from "./inboxConsumerMutants.ts"
import { inboxRaceMutants } from "./inboxRaceMutants.ts"
import type { Mutant } from "./mutants.ts"

const applied = "src/operations/AppliedEvents.ts"
const cursors = "src/inbox/Cursors.ts"
const park = "src/inbox/holds/ParkRecords.ts"

const appliedTest = "test/inbox/Applied.test.ts"
const cursorsTest = "test/inbox/Cursors.test.ts"
const holdsTest = "test/inbox/Holds.test.ts"

export const inboxMutants: ReadonlyArray<Mutant> = [
  {
    name: "inbox-skipped-counts-as-applied",
    breaks: "a version that an operator skipped is reported as applied once its mark could be gone",
    file: applied,
    find: "a.subject = 'inbox event' AND a.action = 'skip'\n                  -- An ARRAY",
    replace: "false\n                  -- An ARRAY",
    seenBy: { file: appliedTest, test: "a version that an operator skipped" }
  },
  {
    name: "inbox-skip-reaches-its-head",
    breaks: "the event that followed a skip is reported as never applied",
    file: applied,
    find: "(a.after ->> 'version')::int4 >= e.version",
    replace: "(a.after ->> 'version')::int4 + 1 >= e.version",
    seenBy: { file: appliedTest, test: "a version that an operator skipped" }
  },
  {
    name: "inbox-skip-reaches-what-was-before",
    breaks: "an event that was applied before a skip is reported as never applied",
    file: applied,
    find: "(a.before ->> 'version')::int4 < e.version",
    replace: "(a.before ->> 'version')::int4 <= e.version",
    seenBy: { file: appliedTest, test: "a version that an operator skipped" }
  },
  {
    name: "inbox-discarded-in-outbox-counts-as-applied",
    breaks: "an event that was never sent is reported as applied once its mark could be gone",
    file: applied,
    find: "FROM outbox_dead_letters AS d WHERE d.event_id = e.id",
    replace: "FROM outbox_dead_letters AS d WHERE false",
    seenBy: { file: appliedTest, test: "an event that is " }
  },
  {
    name: "inbox-passes-over-the-dead",
    breaks: "an event that is dead in the outbox counts as given up: redriven, it is never applied",
    file: cursors,
    find: "AND topic = ${topic} AND status = 'discarded'",
    replace: "AND topic = ${topic}",
    seenBy: { file: cursorsTest, test: "a consumer waits for an event that is dead in the outbox" }
  },
  {
    name: "inbox-sweeps-past-the-dead",
    breaks: "a hold that waits for an event that is dead in the outbox is checked in every round",
    file: "src/inbox/holds/HoldRetries.ts",
    find: "AND d.topic = h.topic AND d.status = 'discarded'",
    replace: "AND d.topic = h.topic",
    seenBy: { file: cursorsTest, test: "a consumer waits for an event that is dead in the outbox" }
  },
  {
    name: "inbox-park-drops-the-trace",
    breaks: "an event that was parked is applied outside of the trace that it belongs to",
    file: park,
    find: "record_headers: storableHeaders(record.headers)",
    replace: "record_headers: {}",
    seenBy: { file: holdsTest, test: "an event that was parked, dead and redriven" }
  },
  ...inboxConsumerMutants,
  ...inboxRaceMutants
]
