/** Mistakes of a database that is rolled forward: what it would lose, invent, or ask a person about for ever. */
import type { Mutant } from "./mutants.ts"

const room = "src/application/rollforward"
const file = "test/application/rollforward/RollForward.test.ts"
const together = { file, test: "events of many orders are written together" }
const gap = { file, test: "an order of which the topic has lost an event" }
const mended = {
  file: "test/application/reconciliation/RolledForward.test.ts",
  test: "events of the database that no consumer has read"
}
const marks = { file, test: "a version that was used for another event" }

export const rollForwardMutants: ReadonlyArray<Mutant> = [
  {
    name: "rolls-copies-forward",
    breaks: "a second copy of an event in the topic passes for another history of its order",
    file: `${room}/RollForward.ts`,
    find: "if (own.events.has(eventId)) continue",
    replace: "",
    seenBy: together
  },
  {
    name: "rolls-without-days",
    breaks: "events of days that the backup does not have fill the default partition, and upkeep can't move them",
    file: "src/operations/refill/ArchiveRows.ts",
    find: "events.map(({ eventId }) => eventId)\n    ),",
    replace: "[]\n    ),",
    seenBy: together
  },
  {
    name: "order-behind-the-topic",
    breaks: "the order's next event has a version that the topic has, and no consumer applies it",
    file: `${room}/LeftOut.ts`,
    find: "WHERE o.id = r.id AND o.version < r.version",
    replace: "WHERE o.id = r.id AND o.version < 0",
    seenBy: gap
  },
  {
    name: "cursors-behind-the-topic",
    breaks: "consumers apply events that their order has not, or wait for one that never comes",
    file: `${room}/LeftOut.ts`,
    find: "DO UPDATE SET version = excluded.version WHERE c.version < excluded.version",
    replace: "DO NOTHING",
    seenBy: gap
  },
  {
    name: "passed-without-a-gap",
    breaks: "a rebuild looks for events that the consumer has passed, and refuses",
    file: `${room}/LeftOut.ts`,
    find: "FROM target WHERE was < version",
    replace: "FROM target WHERE was < 0",
    seenBy: gap
  },
  {
    name: "stops-at-the-unreadable",
    breaks: "one record of a stranger keeps a whole database from being rolled forward",
    file: `${room}/RollForward.ts`,
    find: "yield* Effect.option(decodeOrderEvent(record.envelope))",
    replace: "Option.some(yield* decodeOrderEvent(record.envelope))",
    seenBy: { file, test: "an event that can't be read, and those behind it" }
  },
  {
    name: "own-events-in-the-gap",
    breaks: "a sale that consumers had not read is never revenue, and its refund is subtracted",
    file: `${room}/LeftOut.ts`,
    find: "greatest(c.version, o.version, 0) AS was",
    replace: "coalesce(c.version, 0) AS was",
    seenBy: mended
  },
  {
    name: "doubts-what-was-passed-over",
    breaks: "an order that was rolled forward is left to a person, where a program can mend it",
    file: "src/application/reconciliation/rules/EventRules.ts",
    find: "t.order_id = o.id AND",
    replace: "false AND",
    seenBy: mended
  },
  {
    name: "decides-without-end",
    breaks: "an order that a person has decided about is behind for ever, and no other finding gets a fix",
    file: `${room}/Unknown.ts`,
    find: "OR EXISTS (SELECT FROM left_out_events AS e WHERE e.event_id = r.id) AS is_known",
    replace: "AS is_known",
    seenBy: gap
  },
  {
    name: "decides-without-audit",
    breaks: "nobody knows who left which events of an order out",
    file: `${room}/LeftOut.ts`,
    find: "for (const { events, orderId, why } of orders) {",
    replace: "for (const { events, orderId, why } of orders.slice(0, 0)) {",
    seenBy: gap
  },
  {
    name: "gap-jumped",
    breaks: "an event is written on an order that lacks the one before",
    file: `${room}/RollForward.ts`,
    find: 'standing === "collision" || aggregateVersion !== own.version + 1 ||',
    replace: 'standing === "collision" || aggregateVersion <= own.version ||',
    seenBy: gap
  },
  {
    name: "collision-by-archive-alone",
    breaks: "once the archive has dropped its event, a version that was used twice passes for known",
    file: `${room}/Unknown.ts`,
    find: `literal(keptSince("processed_events"))} THEN 'collision'`,
    replace: `literal(keptSince("processed_events"))} THEN 'known'`,
    seenBy: marks
  },
  {
    name: "other-history-goes-on",
    breaks: "a refund of the lost history is written on an order that was paid anew",
    file: `${room}/RollForward.ts`,
    find: "if (left !== undefined) left.events.set(eventId, record)",
    replace: "if (left !== undefined && standing === 'collision') left.events.set(eventId, record)",
    seenBy: marks
  },
  {
    name: "rewinds-under-members",
    breaks: "a database is rolled forward while consumers read, and what they commit skips the events that it lost",
    file: "src/brokers/kafkajs/KafkaRewind.ts",
    find: 'refusal === undefined || KafkaErrors.isProtocolError(refusal, "GROUP_ID_NOT_FOUND")',
    replace: 'refusal === undefined || KafkaErrors.isProtocolError(refusal, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP")',
    seenBy: { file: "test/brokers/kafkajs/KafkaRewind.test.ts", test: "a group with members is named" }
  },
  {
    name: "forgotten-passes",
    breaks: "events of which nothing tells any more pass for known, and nobody hears of it",
    file: `${room}/Unknown.ts`,
    find: "ELSE 'forgotten' END",
    replace: "ELSE 'known' END",
    seenBy: { file, test: "where the marks are past their retention" }
  }
]
