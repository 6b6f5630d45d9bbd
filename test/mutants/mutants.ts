/**
 * Mistakes of one line in the service's own source, each with the test that turns red. They stand for guarantees that no
 * mistake of the failure lab does, for that one replaces whole parts (`test/lab/mistakes`): on a socket, inside a transaction's frame, between sessions.
 */

export interface Mutant {
  /** What it does wrong, as a name. */
  readonly name: string
  /** What holds no longer. */
  readonly breaks: string
  /** The file, from the root, and the place in it: exactly one. */
  readonly file: string
  readonly find: string
  readonly replace: string
  /** The test that sees it: its file, and how its name begins. */
  readonly seenBy: { readonly file: string; readonly test: string }
}

const deferredBegin = "src/platform/database/DeferredBegin.ts"
const transactionControl = "src/platform/database/TransactionControl.ts"
const shares = "src/platform/database/Shares.ts"
const dispatcher = "src/messaging/outbox/Dispatcher.ts"
const laneFloors = "src/messaging/outbox/LaneFloors.ts"

export const mutants: ReadonlyArray<Mutant> = [
  {
    name: "goes-on-after-refused-begin",
    breaks: "what follows a BEGIN that Postgres refused runs outside of any transaction",
    file: deferredBegin,
    find: "isRefused = true",
    replace: "isRefused = false",
    seenBy: { file: "test/unit/DeferredBegin.test.ts", test: "a BEGIN that Postgres refuses" }
  },
  {
    name: "begin-inside-a-message",
    breaks: "the answer to a BEGIN falls into the middle of another message",
    file: deferredBegin,
    find: "if (!isAtRest || ",
    replace: "if (",
    seenBy: { file: "test/unit/DeferredBegin.test.ts", test: "half a message that came before BEGIN" }
  },
  {
    name: "swallows-notices",
    breaks: "a notification that arrives with the answer to a BEGIN is lost",
    file: deferredBegin,
    find: "passed.push(bytes.subarray(start, end))",
    replace: "",
    seenBy: { file: "test/unit/DeferredBegin.test.ts", test: "however its answer is cut" }
  },
  {
    name: "failure-commits",
    breaks: "a use case that fails after its first write leaves that write behind",
    file: transactionControl,
    find: `if (Exit.isFailure(exit)) return undo(connection, "ROLLBACK")`,
    replace: "",
    seenBy: { file: "test/unit/TransactionControl.test.ts", test: "a success commits" }
  },
  {
    name: "savepoint-keeps-its-writes",
    breaks: "an inner failure that is recovered from leaves its writes behind",
    file: transactionControl,
    find: "undo(connection, `ROLLBACK TO SAVEPOINT ${name}`)",
    replace: "Effect.void",
    seenBy: { file: "test/unit/TransactionControl.test.ts", test: "a failure inside takes back" }
  },
  {
    name: "savepoints-side-by-side",
    breaks: "two inner transactions on one connection end one another",
    file: transactionControl,
    find: "return parent.savepoints.withPermit(",
    replace: "return ((inner) => inner)(",
    seenBy: { file: "test/unit/TransactionControl.test.ts", test: "two inner ones side by side" }
  },
  {
    name: "announces-what-was-taken-back",
    breaks: "what was to follow a savepoint's commit follows its rollback",
    file: transactionControl,
    find: "callbacks: [],",
    replace: "callbacks: parent?.callbacks ?? [],",
    seenBy: { file: "test/unit/TransactionControl.test.ts", test: "callbacks follow the commit" }
  },
  {
    name: "believes-in-commit",
    breaks: "a COMMIT that Postgres turned into a rollback is reported as a success",
    file: transactionControl,
    find: `.command === "ROLLBACK" ? Effect.fail(rolledBack()) : Effect.void`,
    replace: `.command === "ROLLBACK" ? Effect.void : Effect.void`,
    seenBy: { file: "test/unit/TransactionControl.test.ts", test: "a commit that Postgres turned" }
  },
  {
    name: "gives-up-at-once",
    breaks: "a transaction that lost against a concurrent one fails, where a second try would have gone through",
    file: "src/platform/database/Transaction.ts",
    find: "(error: unknown) => isTransient(error) && (",
    replace: "(error: unknown) => !isTransient(error) && (",
    seenBy: { file: "test/outbox/Outbox.test.ts", test: "a serialization failure runs the whole transaction again" }
  },
  {
    name: "lost-session-keeps-shares",
    breaks: "a process whose session has ended goes on as the owner of its lanes",
    file: shares,
    find: "return Effect.andThen(SubscriptionRef.set(held, new Set<number>()), wake.open)",
    replace: "return wake.open",
    seenBy: { file: "test/unit/Shares.test.ts", test: "a member whose session is ended" }
  },
  {
    name: "hands-over-in-use",
    breaks: "a lane is given up with its batch in flight",
    file: shares,
    find: "        [...leaving].filter((share) => (users.get(share) ?? 0) === 0)\n",
    replace: "        [...leaving]\n",
    seenBy: { file: "test/unit/Shares.test.ts", test: "a share in use is kept" }
  },
  {
    name: "leaves-with-the-door-open",
    breaks: "a process that stops begins new batches, and waits for ever for those in flight",
    file: shares,
    find: "      for (const share of yield* SubscriptionRef.get(held)) leaving.add(share)\n",
    replace: "",
    seenBy: { file: "test/unit/Shares.test.ts", test: "who leaves waits for those" }
  },
  {
    name: "floor-over-parked",
    breaks: "what comes back from behind a hold lies below where the lane is read from, and is never sent",
    file: laneFloors,
    find: `{ table: "outbox_parked", comesBack: "true" }`,
    replace: `{ table: "outbox_parked", comesBack: "false" }`,
    seenBy: { file: "test/outbox/LaneFloors.test.ts", test: "an event that waits in outbox_parked" }
  },
  {
    name: "floor-over-dead-letters",
    breaks: "a dead letter that is tried again lies below where the lane is read from, and is never sent",
    file: laneFloors,
    find: `comesBack: "e.status = 'dead'"`,
    replace: `comesBack: "false"`,
    seenBy: { file: "test/outbox/LaneFloors.test.ts", test: "an event that waits in outbox_dead_letters" }
  },
  {
    name: "floor-over-late-committers",
    breaks: "an event that commits late, with a smaller number, is never sent",
    file: laneFloors,
    find: "WHERE pg_snapshot_xmin(pg_current_snapshot()) >= ${xid}::text::xid8",
    replace: "WHERE pg_snapshot_xmin(pg_current_snapshot()) >= '3'::xid8",
    seenBy: { file: "test/outbox/LaneFloors.test.ts", test: "a floor waits for whoever has a smaller number" }
  },
  {
    name: "forgets-who-woke-it",
    breaks: "an event that is committed while its lane is busy waits for the next poll",
    file: "src/messaging/outbox/LaneWorkers.ts",
    find: "            again.add(lane)\n",
    replace: "",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "what is committed while a batch of its lane" }
  },
  {
    name: "worker-sleeps-for-a-lane",
    breaks: "a few lanes that fail keep all others waiting, for as long as half a minute",
    file: "src/messaging/outbox/LaneWorkers.ts",
    find: "          Effect.catchCause((cause) => failed(lane, cause)),\n",
    replace: "",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "a lane that ends in a defect" }
  },
  {
    name: "late-answer-takes-the-next",
    breaks: "a zombie's late success takes the event that is held now for published: it is lost",
    file: "src/messaging/outbox/Holds.ts",
    find: "hold.dead || hold.eventId !== event.eventId",
    replace: "hold.dead",
    seenBy: { file: "test/outbox/Holds.test.ts", test: "a late answer about a head" }
  },
  {
    name: "lost-fault-point",
    breaks: "a crash asked for between an append and its commit never comes",
    file: "src/messaging/outbox/Outbox.ts",
    find: `Effect.andThen(faults.at("outbox.after-append"), afterCommit(wakes[lane] ?? Effect.void))`,
    replace: "afterCommit(wakes[lane] ?? Effect.void)",
    seenBy: { file: "test/outbox/Outbox.test.ts", test: "a failure outbox.after-append" }
  },
  {
    name: "ignores-the-pause",
    breaks: "an outage is tried at without a backoff",
    file: "src/messaging/outbox/OutboxQueue.ts",
    find: "                  AND topic <> ALL (${[...pausedTopics]}::text[])\n                -- One more",
    replace: "                -- One more",
    seenBy: { file: "test/outbox/Pauses.test.ts", test: "sends that fail together" }
  },
  {
    name: "outage-counts-each-lane",
    breaks: "the backoff of an outage grows with the lanes that meet it, and not with its length",
    file: dispatcher,
    find: "if (current !== undefined && current.untilMillis > now) return\n",
    replace: "\n",
    seenBy: { file: "test/outbox/Pauses.test.ts", test: "sends that fail together" }
  },
  {
    name: "outage-without-end",
    breaks: "health goes on telling of an outage that is over, and the next one begins with the longest pause",
    file: dispatcher,
    find: "yield* resume(topic)\n        yield* count(publishedTotal",
    replace: "yield* count(publishedTotal",
    seenBy: { file: "test/outbox/Pauses.test.ts", test: "the first send that succeeds" }
  },
  {
    name: "claims-what-was-taken",
    breaks: "two members that have a version under two ids at once both apply it",
    file: "src/messaging/inbox/Claim.ts",
    find: "if (row.moved !== moves.length) return",
    replace: "if (false) return",
    seenBy: { file: "test/inbox/Cursors.test.ts", test: "a version that comes again under another id" }
  },
  {
    name: "wakes-up-and-charges",
    breaks: "a process that was frozen for half a day charges with a key that the gateway may have forgotten",
    file: "src/application/PayOrder.ts",
    find: "mayRepeat(payment.ageMillis + (yield* sinceRead), keyRetentionMillis)",
    replace: "mayRepeat(payment.ageMillis, keyRetentionMillis)",
    seenBy: { file: "test/application/PayOrder.test.ts", test: "a request that was frozen behind its intent" }
  },
  {
    name: "each-its-own-partition-count",
    breaks: "dispatchers that saw a topic before and after it grew send one aggregate to two partitions",
    file: "src/messaging/outbox/PartitionCounts.ts",
    find: "return row?.partitions ?? found",
    replace: "return found",
    seenBy: { file: "test/outbox/PartitionCounts.test.ts", test: "of any number that ask at once" }
  }
]
