/** One-line mistakes in the inbox: statements without `consumer_name = …`, which read or change another consumer's rows. */
import type { Mutant } from "./mutants.ts"

const applied = "src/operations/AppliedEvents.ts"
const cursors = "src/inbox/Cursors.ts"
const claim = "src/postgres/fast/OneStatementClaim.ts"
const holdRetries = "src/inbox/holds/HoldRetries.ts"
const holds = "src/inbox/holds/ParkedHolds.ts"
const heldRows = "src/inbox/holds/HeldRows.ts"
const park = "src/inbox/holds/ParkRecords.ts"
const letters = "src/operations/InboxDeadLetters.ts"
const consumersTest = "test/inbox/TwoConsumers.test.ts"

export const inboxConsumerMutants: ReadonlyArray<Mutant> = [
  {
    name: "inbox-applied-by-another-discard",
    breaks: "an event that one consumer discarded is reported as never applied by the others",
    file: applied,
    find: "WHERE d.consumer_name = c.consumer_name AND d.event_id = e.id::text",
    replace: "WHERE d.event_id = e.id::text",
    seenBy: { file: consumersTest, test: "an event that one consumer discarded" }
  },
  {
    name: "inbox-read-all-cursors",
    breaks: "a consumer reads another consumer's cursor as its own",
    file: cursors,
    find: "WHERE c.consumer_name = ${consumer} AND c.aggregate_id = a.id",
    replace: "WHERE c.aggregate_id = a.id",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-advance-any-cursor",
    breaks: "a cursor is moved for another consumer",
    file: cursors,
    find: "WHERE c.consumer_name = ${consumer} AND c.aggregate_id = m.id",
    replace: "WHERE c.aggregate_id = m.id",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-claim-any-cursor",
    breaks: "the usual slice moves the cursor of another consumer",
    file: claim,
    find: "WHERE c.consumer_name = ${consumer} AND c.aggregate_id = m.id",
    replace: "WHERE c.aggregate_id = m.id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold and that is" }
  },
  {
    name: "inbox-round-takes-all",
    breaks: "a round is spent on the holds of other consumers",
    file: holdRetries,
    find: "WHERE consumer_name = ${consumer} AND next_attempt_at <=",
    replace: "WHERE next_attempt_at <=",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-due-for-all",
    breaks: "a consumer wakes up for the holds of other consumers",
    file: holdRetries,
    find: "FROM inbox_holds WHERE consumer_name = ${consumer} AND next_attempt_at IS NOT NULL",
    replace: "FROM inbox_holds WHERE next_attempt_at IS NOT NULL",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-sweeps-all",
    breaks: "a sweep makes the holds of other consumers due",
    file: holdRetries,
    find: "WHERE h.consumer_name = ${consumer} AND h.status",
    replace: "WHERE h.status",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-sweep-by-any-parked",
    breaks: "a gap is checked because of another consumer's parked events",
    file: holdRetries,
    find: "WHERE consumer_name = h.consumer_name AND aggregate_id = h.aggregate_id ORDER BY",
    replace: "WHERE aggregate_id = h.aggregate_id ORDER BY",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-sweep-by-any-cursor",
    breaks: "a gap is checked because of another consumer's cursor",
    file: holdRetries,
    find: "ON c.consumer_name = h.consumer_name AND c.aggregate_id = h.aggregate_id",
    replace: "ON c.aggregate_id = h.aggregate_id",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-turn-behind-others",
    breaks: "an unreadable record is parked behind another consumer's parked events",
    file: holds,
    find: "WHERE p.consumer_name = h.consumer_name AND p.aggregate_id",
    replace: "WHERE p.aggregate_id",
    seenBy: { file: consumersTest, test: "an unreadable record keeps its order and" }
  },
  {
    name: "inbox-locks-all-holds",
    breaks: "a consumer takes the hold of another one for its own",
    file: holds,
    find: "WHERE h.consumer_name = ${consumer} AND h.aggregate_id = ANY",
    replace: "WHERE h.aggregate_id = ANY",
    seenBy: { file: consumersTest, test: "an unreadable record keeps its order and" }
  },
  {
    name: "inbox-known-to-anybody",
    breaks: "a record that another consumer discarded is lost for this one",
    file: holds,
    find: "ON there.consumer_name = ${consumer} AND there.event_id",
    replace: "ON there.event_id",
    seenBy: { file: consumersTest, test: "an unreadable record keeps its order and" }
  },
  {
    name: "inbox-wakes-all",
    breaks: "an event that comes for one consumer makes the gaps of the others due",
    file: holds,
    find: "WHERE consumer_name = ${consumer} AND aggregate_id = ANY (${[...aggregateIds]}::text[]) AND status",
    replace: "WHERE aggregate_id = ANY (${[...aggregateIds]}::text[]) AND status",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-tries-any-hold",
    breaks: "a consumer tries, or decides about, the hold of another one",
    file: heldRows,
    find: "FROM inbox_holds WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}\n      ${sql.literal(mode",
    replace: "FROM inbox_holds WHERE aggregate_id = ${aggregateId}\n      ${sql.literal(mode",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-first-of-any",
    breaks: "a consumer applies the parked events of another one",
    file: heldRows,
    find: "FROM inbox_parked WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}\n        ORDER",
    replace: "FROM inbox_parked WHERE aggregate_id = ${aggregateId}\n        ORDER",
    seenBy: { file: consumersTest, test: "an event that all consumers hold: each" }
  },
  {
    name: "inbox-removes-for-all",
    breaks: "an event that one consumer has applied is lost for all others that hold it",
    file: heldRows,
    find: "DELETE FROM inbox_parked WHERE consumer_name = ${consumer} AND event_id",
    replace: "DELETE FROM inbox_parked WHERE event_id",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-counts-for-all",
    breaks: "a failure counts for all consumers",
    file: heldRows,
    find: "${failure.historyLimit}::int4)\n      WHERE consumer_name = ${consumer} AND aggregate_id",
    replace: "${failure.historyLimit}::int4)\n      WHERE aggregate_id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold: each" }
  },
  {
    name: "inbox-due-by-another",
    breaks: "one consumer's retry makes the holds of the others due",
    file: heldRows,
    find: "ELSE '[]' END\n      WHERE consumer_name = ${consumer} AND aggregate_id = ${aggregateId}`)\n  )\n\n/** Stops the attempts",
    replace: "ELSE '[]' END\n      WHERE aggregate_id = ${aggregateId}`)\n  )\n\n/** Stops the attempts",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-waits-for-all",
    breaks: "the aggregate of a dead letter stops for all consumers",
    file: heldRows,
    find: "THEN '[]' ELSE history END\n      WHERE consumer_name = ${consumer} AND aggregate_id",
    replace: "THEN '[]' ELSE history END\n      WHERE aggregate_id",
    seenBy: { file: consumersTest, test: "a gap belongs to one consumer:" }
  },
  {
    name: "inbox-buries-for-all",
    breaks: "an event that is dead for one consumer is dead for all",
    file: heldRows,
    find: "DELETE FROM inbox_parked WHERE consumer_name = ${held.consumer} AND event_id",
    replace: "DELETE FROM inbox_parked WHERE event_id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold: each" }
  },
  {
    name: "inbox-buries-with-any-history",
    breaks: "a dead letter takes the failures of another consumer for its own",
    file: heldRows,
    find: "FROM head JOIN inbox_holds AS h USING (consumer_name, aggregate_id)",
    replace: "FROM head JOIN inbox_holds AS h ON h.aggregate_id = head.aggregate_id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold: each" }
  },
  {
    name: "inbox-unburies-for-all",
    breaks: "one redrive takes the dead letters of all consumers",
    file: heldRows,
    find: "DELETE FROM inbox_dead_letters WHERE consumer_name = ${consumer} AND event_id",
    replace: "DELETE FROM inbox_dead_letters WHERE event_id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold: each" }
  },
  {
    name: "inbox-releases-all",
    breaks: "a hold that ends for one consumer ends for all",
    file: heldRows,
    find: "DELETE FROM inbox_holds WHERE consumer_name = ${consumer} AND aggregate_id",
    replace: "DELETE FROM inbox_holds WHERE aggregate_id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold: each" }
  },
  {
    name: "inbox-withdraws-anybodys-dead",
    breaks: "an event that is dead for one consumer can't be parked for another",
    file: park,
    find: "AND d.consumer_name = p.consumer_name AND d.event_id = p.event_id",
    replace: "AND d.event_id = p.event_id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold: each" }
  },
  {
    name: "inbox-parks-nobodys-dead",
    breaks: "an event that is dead for one consumer is not parked for another",
    file: park,
    find: "WHERE d.consumer_name = ${consumer} AND d.event_id = parking.event_id",
    replace: "WHERE d.event_id = parking.event_id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold: each" }
  },
  {
    name: "inbox-namesakes-of-all",
    breaks: "an id that another consumer has for another aggregate turns a duplicate into a second event",
    file: park,
    find: "ON known.consumer_name = ${consumer} AND known.event_id",
    replace: "ON known.event_id",
    seenBy: { file: consumersTest, test: "an id that another consumer has" }
  },
  {
    name: "inbox-finds-anybodys-dead",
    breaks: "an operator's decision looks for the event in another consumer's aggregate",
    file: letters,
    find: "FROM inbox_dead_letters WHERE consumer_name = ${consumer} AND event_id = ${eventId}\n    UNION ALL\n    SELECT aggregate_id FROM",
    replace: "FROM inbox_dead_letters WHERE event_id = ${eventId}\n    UNION ALL\n    SELECT aggregate_id FROM",
    seenBy: { file: consumersTest, test: "an id that another consumer has" }
  },
  {
    name: "inbox-finds-anybodys-parked",
    breaks: "an operator's decision looks for the event among another consumer's parked events",
    file: letters,
    find: "SELECT aggregate_id FROM inbox_parked WHERE consumer_name = ${consumer} AND event_id",
    replace: "SELECT aggregate_id FROM inbox_parked WHERE event_id",
    seenBy: { file: consumersTest, test: "an id that another consumer has" }
  },
  {
    name: "inbox-reads-anybodys-dead",
    breaks: "an event that is dead for another consumer is treated as dead for this one",
    file: letters,
    find: "AS type FROM inbox_dead_letters\n    WHERE consumer_name = ${consumer} AND event_id",
    replace: "AS type FROM inbox_dead_letters\n    WHERE event_id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold: each" }
  },
  {
    name: "inbox-applied-by-anybody",
    breaks: "an operator is told that an event is applied that only another consumer has applied",
    file: letters,
    find: "FROM processed_events\n    WHERE consumer_name = ${key.consumer} AND event_id",
    replace: "FROM processed_events\n    WHERE event_id",
    seenBy: { file: consumersTest, test: "an operator who names a consumer" }
  },
  {
    name: "inbox-discard-by-any-cursor",
    breaks: "an event can't be discarded where another consumer has applied it",
    file: letters,
    find: "SELECT version FROM consumer_cursors\n    WHERE consumer_name = ${consumer} AND aggregate_id",
    replace: "SELECT version FROM consumer_cursors\n    WHERE aggregate_id",
    seenBy: { file: consumersTest, test: "an event that one consumer discarded" }
  },
  {
    name: "inbox-discards-for-all",
    breaks: "an event that one consumer gives up is given up for all",
    file: letters,
    find: "clock_now()\n      WHERE consumer_name = ${consumer} AND event_id",
    replace: "clock_now()\n      WHERE event_id",
    seenBy: { file: consumersTest, test: "an event that all consumers hold and that is" }
  },
  {
    name: "inbox-redrives-for-all",
    breaks: "a batch for one consumer redrives the dead letters of all",
    file: letters,
    find: "consumer_name: consumer, event_type",
    replace: "event_type",
    seenBy: { file: consumersTest, test: "dead letters are redriven for" }
  }
]
