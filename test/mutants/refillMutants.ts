/** One-line mistakes in filling the archive from the topic: rows that are overwritten, and events that are none of this database's. */
import type { Mutant } from "./mutants.ts"

const room = "src/operations/refill"
const tests = "test/operations/Refill.test.ts"
const named = "what is there stays"

export const refillMutants: ReadonlyArray<Mutant> = [
  {
    name: "refill-overwrites",
    breaks: "an event of the archive is replaced by what the topic has under its id",
    file: `${room}/Standings.ts`,
    find: 'if (isSame === false) return "different"',
    replace: 'if (isSame === false) return "present"',
    seenBy: { file: tests, test: named }
  },
  {
    name: "refill-believes-the-archives-time",
    breaks: "what reconcile says of an event's time is not borne out by the comparison that it names",
    file: `${room}/Standings.ts`,
    find: "AND date_trunc('milliseconds', l.occurred_at) = date_trunc('milliseconds', r.occurred_at) AS is_alike",
    replace: "AS is_alike",
    seenBy: { file: tests, test: named }
  },
  {
    name: "refill-calls-damage-erased",
    breaks: "a damaged event of the archive hides behind the erased ones",
    file: `${room}/Standings.ts`,
    find: "isErased === true",
    replace: "isErased !== null",
    seenBy: { file: tests, test: "an event that an erasure has changed in the archive counts apart" }
  },
  {
    name: "refills-what-nobody-applied",
    breaks: "events of a history that the database does not have get into its archive",
    file: `${room}/Standings.ts`,
    find: 'if (!isApplied) return "unknown"',
    replace: 'if (!isApplied) return "lost"',
    seenBy: { file: tests, test: named }
  },
  {
    name: "refills-two-of-one-version",
    breaks: "a version of an aggregate is in the archive twice, and a rebuild takes any of them",
    file: `${room}/Standings.ts`,
    find: "if (hasOther || first !== event.eventId)",
    replace: "if (first !== event.eventId)",
    seenBy: { file: tests, test: named }
  },
  {
    name: "refills-two-of-one-version-at-once",
    breaks: "of two events of one version in a slice both are filled in",
    file: `${room}/Standings.ts`,
    find: "if (hasOther || first !== event.eventId)",
    replace: "if (hasOther)",
    seenBy: { file: tests, test: named }
  },
  {
    name: "refills-what-is-queued",
    breaks: "an event is in the queue and in the archive at once, and its mark finds its id taken",
    file: `${room}/Standings.ts`,
    find: "if (isSame === true || isInOutbox)",
    replace: "if (isSame === true)",
    seenBy: { file: tests, test: named }
  },
  {
    name: "refills-foreign-records",
    breaks: "a record that no outbox has sent passes for an event of the archive",
    file: "src/brokers/SentEvents.ts",
    find: 'record.headers["event-id"]?.toLowerCase() !== read.success.eventId',
    replace: 'record.headers["event-id"] === "nobody"',
    seenBy: { file: tests, test: named }
  },
  {
    name: "refills-in-other-words",
    breaks: "the archive's bytes are not those that the writer encoded",
    file: "src/brokers/SentEvents.ts",
    find: "text.startsWith(head) ? text.slice(head.length, -1) : JSON.stringify(data)",
    replace: "text.startsWith(head) ? JSON.stringify(data) : JSON.stringify(data)",
    seenBy: { file: tests, test: "data comes back byte for byte" }
  },
  {
    name: "refills-for-a-round-of-upkeep",
    breaks: "what is filled in is dropped again within minutes",
    file: `${room}/Refill.ts`,
    find: "outboxDays > 0 && sinceSeconds > outboxDays * 86_400",
    replace: "outboxDays > 99_999 && sinceSeconds > outboxDays * 86_400",
    seenBy: { file: tests, test: "what upkeep would drop again" }
  },
  {
    name: "refills-as-of-now",
    breaks: "the archive tells another time of publishing than the topic",
    file: `${room}/ArchiveRows.ts`,
    find: "least(greatest(to_timestamp(r.millis / 1000), r.occurred_at), clock_now())",
    replace: "clock_now()",
    seenBy: { file: tests, test: "what retention has dropped comes back" }
  },
  {
    name: "refills-the-default-partition",
    breaks: "days of events are in the default partition, which each later day has to look through",
    file: `${room}/ArchiveRows.ts`,
    find: '"event_log",\n      events.map',
    replace: '"event_log",\n      events.slice(0, 0).map',
    seenBy: { file: tests, test: "what retention has dropped comes back" }
  },
  {
    name: "dry-run-refills",
    breaks: "a count writes into the archive",
    file: `${room}/Refill.ts`,
    find: "operator === undefined || lost.length === 0 ? lost.length",
    replace: "lost.length === 0 ? lost.length",
    seenBy: { file: tests, test: named }
  },
  {
    name: "reads-beyond-the-end",
    breaks: "beside a busy service the reading of a topic does not end",
    file: "src/brokers/TopicReader.ts",
    find: "offset >= before && offset < end)",
    replace: "offset >= before && offset < end + 9n)",
    seenBy: { file: tests, test: "a topic that grows meanwhile" }
  }
]
