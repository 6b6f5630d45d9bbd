/** One-line mistakes in `src/outbox`: in what it sends, and in what waits. */
import type { Mutant } from "./mutants.ts"

const dispatcher = "src/outbox/Dispatcher.ts"
const laneWorkers = "src/outbox/LaneWorkers.ts"
const pipeline = "src/outbox/Pipeline.ts"
const laneByLane = "src/outbox/LaneByLane.ts"
const flights = "src/outbox/Flights.ts"

const smallTurns = "src/postgres/fast/SmallTurns.ts"
const smallTurnsTest = "test/postgres/fast/SmallTurns.test.ts"

export const outboxMutants: ReadonlyArray<Mutant> = [
  {
    name: "publishes-the-first-alone",
    breaks: "of a batch only the first event is sent, and all are marked as published",
    file: "src/outbox/Publisher.ts",
    find: "records: toRecords(events)",
    replace: "records: toRecords(events.slice(0, 1))",
    seenBy: { file: "test/outbox/Dispatcher.test.ts", test: "committed events are published in version order" }
  },
  {
    name: "sends-what-it-could-not-mark",
    breaks: "a lane whose mark fails is sent again at each attempt, though its acknowledgements are in hand",
    file: pipeline,
    find: "([lane, ofLane]) => void unmarked.set(lane, [...new Set([...(unmarked.get(lane) ?? []), ...ofLane])])",
    replace: "() => undefined",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "a failed mark is repeated lane by lane" }
  },
  {
    name: "one-lane-stops-all",
    breaks: "a lane whose rows can't be fetched keeps every other lane that is ready with it from being sent",
    file: laneByLane,
    find: "if (!isLost && all.length > 1) {",
    replace: "if (!isLost && all.length < 1) {",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "a failed fetch is repeated lane by lane" }
  },
  {
    name: "lost-connection-stops-lanes",
    breaks: "a connection that is lost for a moment stops every lane of the statement, each with its own backoff",
    file: laneByLane,
    find: "const isLost = DatabaseOutage.inCause(cause) !== undefined",
    replace: "const isLost = false",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "a lost connection stops no lane" }
  },
  {
    name: "a-timeout-for-each-lane",
    breaks: "a slow database keeps all lanes waiting for as many timeouts as there are lanes",
    file: laneByLane,
    find: "timeout === undefined ? run(some)",
    replace: "timeout !== null ? run(some)",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "of many lanes whose statements time out" }
  },
  {
    name: "poll-comes-last",
    breaks: "after an outage of Postgres the poll waits for half a minute, when the turns work again",
    file: laneWorkers,
    find: "{ restartCapMillis: Pipeline.longestWaitMillis }",
    replace: "{}",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "after an outage of Postgres the poll is back" }
  },
  {
    name: "stops-without-its-marks",
    breaks: "what was acknowledged and could not be marked is sent again after a stop, though Postgres is back",
    file: pipeline,
    find: "dispatcher.mark([...unmarked.values()].flat())",
    replace: "dispatcher.mark([])",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "a lane whose mark failed, and that waits" }
  },
  {
    name: "takes-the-next-for-stuck",
    breaks: "a lane waits for the poll with what its other topics have, when a new topic's first batch gets no answer",
    file: pipeline,
    find: "const lanes = [...new Set(events.map(({ lane }) => lane))]",
    replace: `const lanes = [...new Set(events.map(({ lane }) => lane))]
      for (const lane of lanes) flights.of(lane).isStuck = true`,
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "while a new topic gets no answer" }
  },
  {
    name: "head-beside-its-batch",
    breaks: "after a start a partition has two sends in flight: a batch, and the due head of the same lane",
    file: pipeline,
    find: "known === undefined && dispatcher.partitionOf(head) !== undefined",
    replace: "(known as unknown) === null",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "also while a topic's partitions are unknown" }
  },
  {
    name: "ends-with-its-work",
    breaks: "after one defect nothing is sent to the partition any more",
    file: "src/outbox/Senders.ts",
    find: "yield* Effect.exit(",
    replace: "yield* Effect.asVoid(",
    seenBy: { file: "test/outbox/Senders.test.ts", test: "work that ends in a defect" }
  },
  {
    name: "in-flight-for-ever",
    breaks: "a lane whose failure ends in a defect itself is never fetched again",
    file: pipeline,
    find: "Effect.ensuring(Effect.sync(end))",
    replace: "Effect.andThen(Effect.sync(end))",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "a lane whose failure can't even be logged" }
  },
  {
    name: "all-heads-at-once",
    breaks: "the due heads of many held aggregates keep the lanes' other events waiting",
    file: pipeline,
    find: ".filter((lane) => lanes.includes(lane)).slice(0, dueLimit)",
    replace: ".filter((lane) => lanes.includes(lane))",
    seenBy: { file: "test/outbox/HeldHeads.test.ts", test: "due heads are sent eight at most" }
  },
  {
    name: "the-same-heads-first",
    breaks: "the heads of eight lanes are always tried first, and those of the other lanes wait",
    file: pipeline,
    find: "for (const lane of turn) due.delete(lane)",
    replace: "",
    seenBy: { file: "test/outbox/HeldHeads.test.ts", test: "due heads are sent eight at most" }
  },
  {
    name: "marks-in-any-order",
    breaks: "a zombie's mark and its successor's deadlock, and Postgres ends one of them",
    file: "src/outbox/Queue.ts",
    find: "padded(inLockOrder(runs))",
    replace: "padded(runs)",
    seenBy: { file: "test/outbox/RowLocks.test.ts", test: "two marks of the same runs" }
  },
  {
    name: "padding-without-a-type",
    breaks: "Postgres plans a wide mark anew nearly each time, which takes some forty milliseconds",
    file: "src/outbox/Queue.ts",
    find: "events.length === 0 ? [0n] : events.map",
    replace: "events.map",
    seenBy: {
      file: "test/outbox/MarkStatements.test.ts",
      test: "as many lanes as fit into one width are one statement"
    }
  },
  {
    name: "deletes-in-the-order-of-runs",
    breaks: "the archive has events at offsets of others, and rows without one are sent for ever",
    file: smallTurns,
    find: ".toSorted((one, other) => (one.seq < other.seq ? -1 : 1))",
    replace: "",
    seenBy: { file: smallTurnsTest, test: "whatever is acknowledged" }
  },
  {
    name: "keeps-a-taken-id",
    breaks: "an event whose id the archive has keeps its batch in the queue, and is sent for ever",
    file: smallTurns,
    find: "Effect.catchIf(isIdTaken, () => queue.mark(runs)),",
    replace: "",
    seenBy: { file: smallTurnsTest, test: "an event whose id the archive has" }
  },
  {
    name: "scans-no-further",
    breaks: "events behind the hundred and twenty-eighth wait for the next look",
    file: smallTurns,
    find: "rows.length > mostEvents || ",
    replace: "",
    seenBy: { file: smallTurnsTest, test: "after a scan that did not come to the end" }
  },
  {
    name: "scans-more-than-a-part",
    breaks: "a fetch brings more events or bytes of a lane than it may",
    file: smallTurns,
    find: "return found.every((ofLane, index) => fits(ofLane, parts[index]!)) ? found : undefined",
    replace: "return found",
    seenBy: { file: smallTurnsTest, test: "more of a lane than its part" }
  },
  {
    name: "scans-from-the-first-mark",
    breaks: "events of lanes whose low-water mark is smaller than the first lane's wait for ever",
    file: smallTurns,
    find: "(from.seq < least.seq ? from : least)",
    replace: "least",
    seenBy: { file: smallTurnsTest, test: "a lane whose mark lies behind those of the others" }
  },
  {
    name: "scans-large-records",
    breaks: "a scan brings a hundred and twenty-eight of the largest events at once",
    file: smallTurns,
    find: "CASE WHEN e.record_bytes <= ${mostRecordBytes} THEN e.data::text END",
    replace: "e.data::text",
    seenBy: { file: smallTurnsTest, test: "large records are left" }
  },
  {
    name: "two-orders-of-locks",
    breaks: "the marks of a zombie and of its successor deadlock in a lane with two topics",
    file: smallTurns,
    find: "const mixed = mixedLanes(all)",
    replace: "const mixed = new Set()",
    seenBy: { file: smallTurnsTest, test: "a lane with runs of two topics" }
  },
  {
    name: "scans-far-lanes",
    breaks: "one dead letter makes each scan step over the dead rows of all lanes",
    file: smallTurns,
    find: "farthest - from.seq <= mostApart",
    replace: "true",
    seenBy: { file: smallTurnsTest, test: "a lane whose mark lies far behind" }
  },
  {
    name: "marks-a-number-in-any-lane",
    breaks:
      "a mark deletes another lane's event, which has a number of its own only as long as no server gives numbers again",
    file: smallTurns,
    find: " AND lane = ($3::int2[])[width_bucket(seq, $2::int8[])]",
    replace: " AND cardinality($3::int2[]) > 0",
    seenBy: { file: smallTurnsTest, test: "a number of another lane" }
  },
  {
    name: "marks-by-the-whole-lane",
    breaks: "each mark reads its whole lane, planned when the queue was empty",
    file: "src/outbox/MarkStatements.ts",
    find: "seq BETWEEN (${seqs})[1] AND (${seqs})[cardinality(${seqs})] AND ",
    replace: "",
    seenBy: { file: smallTurnsTest, test: "both read ranges of one index" }
  },
  {
    name: "scans-what-is-paused",
    breaks: "events of a paused topic are sent",
    file: smallTurns,
    find: "parts.some(leavesOut)",
    replace: "false",
    seenBy: { file: smallTurnsTest, test: "lanes without a mark, and lanes that leave" }
  },
  {
    name: "scans-beside-few",
    breaks: "a turn of few lanes, of which one is far behind, takes two statements in place of one",
    file: smallTurns,
    find: "near.length >= fewLanes",
    replace: "true",
    seenBy: { file: smallTurnsTest, test: "few lanes, of which one is far behind" }
  },
  {
    name: "scans-by-void-marks",
    breaks: "after a failover events below the marks of the old server wait for ever",
    file: smallTurns,
    find: "CASE WHEN ${serverStartText} = $2::text THEN $3::int8 ELSE 0 END",
    replace: "CASE WHEN ${serverStartText} = $2::text THEN $3::int8 ELSE $3::int8 END",
    seenBy: { file: smallTurnsTest, test: "marks from before a restart" }
  },
  {
    name: "goes-on-after-the-stop",
    breaks: "a stop waits for all pieces of a batch, which may be a thousand sends",
    file: flights,
    find: "isOurs: (lane: Lane) => !isStopping && ",
    replace: "isOurs: (lane: Lane) => ",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "a stop lets the send end" }
  },
  {
    name: "sends-without-its-session",
    breaks: "a process that has lost its lanes sends all events that it had fetched of them",
    file: flights,
    find: "options.owns(lane) && !of(lane)",
    replace: "!of(lane)",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "after a lost session the send in flight" }
  },
  {
    name: "one-sender-for-all",
    breaks: "a partition that is slow keeps all the others waiting",
    file: "src/outbox/Senders.ts",
    find: "partition === undefined ? topic : `${topic}/${partition}`",
    replace: "topic",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "acknowledgements may come in any order" }
  },
  {
    name: "forgets-who-woke-it",
    breaks: "an event that is committed while its lane is busy waits for the next poll",
    file: flights,
    find: "flight.isWoken = true",
    replace: "if (isInFlight(flight)) return",
    seenBy: { file: "test/outbox/Flights.test.ts", test: "a wake-up of a lane in flight makes it ready" }
  },
  {
    name: "late-answer-takes-the-next",
    breaks: "a zombie's late success marks the event that is held now as published: it is lost",
    file: "src/outbox/holds/Parking.ts",
    find: "hold.dead || hold.eventId !== event.eventId",
    replace: "hold.dead",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "a late answer for a published" }
  },
  {
    name: "lost-fault-point",
    breaks: "a crash asked for between an append and its commit never comes",
    file: "src/outbox/Outbox.ts",
    find: `Effect.andThen(faults.at("outbox.after-append"), afterCommit(wakes[lane] ?? Effect.void))`,
    replace: "afterCommit(wakes[lane] ?? Effect.void)",
    seenBy: { file: "test/outbox/Outbox.test.ts", test: "a failure outbox.after-append" }
  },
  {
    name: "ignores-the-pause",
    breaks: "events behind the backlog of an unavailable topic are never fetched",
    file: "src/outbox/Queue.ts",
    find: "${topics.length === 0 ? sql`` : withoutTopics}",
    replace: "",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "events behind the backlog of" }
  },
  {
    name: "skips-and-sleeps",
    breaks: "events behind one that is dead at its first refusal, and skipped, wait for the next poll",
    file: dispatcher,
    find: "return hasReturned || ",
    replace: "return ",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "a turn in which an event was skipped" }
  },
  {
    name: "sends-at-each-look",
    breaks:
      "a refused event that the broker accepts and Postgres can't mark is sent again in each round, without a backoff",
    file: "src/outbox/holds/HoldRetries.ts",
    find: "Math.max(dueMillis, (failing.get(lane)?.untilMillis ?? 0) - now)",
    replace: "dueMillis",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "an event that the broker" }
  },
  {
    name: "well-by-another-one",
    breaks: "an answer for one refused event resets the failures of another one, which can't be marked",
    file: "src/outbox/holds/HoldRetries.ts",
    find: "if (!isDue && failing.get(lane) === before) failing.delete(lane)",
    replace: "if (failing.get(lane) === before) failing.delete(lane)",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "an answer for another" }
  },
  {
    name: "tells-of-what-is-done",
    breaks: "health still reports a refused event that could not be marked, long after it was marked",
    file: "src/outbox/holds/HoldRetries.ts",
    find: "one.lane === lane && one.isDue",
    replace: "one.lane === lane",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "its failure is no longer reported once" }
  },
  {
    name: "tells-of-lanes-of-others",
    breaks: "health still reports a failed lane that another process owns now",
    file: "src/outbox/StoppedLanes.ts",
    find: "if (options.owns(lane)) {",
    replace: "{",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "a lane that is lost while its turn ends" }
  },
  {
    name: "only-the-poll-looks-at-lanes",
    breaks: "after a defect of a moment its lane waits for the next poll",
    file: "src/outbox/StoppedLanes.ts",
    find: "yield* options.wakeAfter(waitMillis)",
    replace: "",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "what a defect stopped" }
  },
  {
    name: "unwell-for-ever",
    breaks: "health still reports a lane that failed, and has nothing left to send, until its next event",
    file: laneWorkers,
    find: "[...ready, ...failed.map(({ lane }) => lane)]",
    replace: "ready",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "a lane that failed and has nothing left" }
  },
  {
    name: "reads-names-together",
    breaks: "two aggregates with equal type and id when joined are taken for one with out-of-order versions, and stop",
    file: "src/outbox/Queue.ts",
    find: "`${aggregateType}\\0${aggregateId}`",
    replace: "`${aggregateType} ${aggregateId}`",
    seenBy: { file: "test/guards/OutOfOrderVersions.test.ts", test: "aggregates are told apart by type" }
  },
  {
    name: "parks-in-front-of-all",
    breaks: "events of a held aggregate make its lane wait until the last of them is parked",
    file: dispatcher,
    find: "ofHeld.length > 0 && isCut",
    replace: "ofHeld.length < 0 && isCut",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "however many events a held aggregate has in the" }
  },
  {
    name: "moves-rows-of-any-size",
    breaks:
      "an aggregate with large events behind its refused one can neither be held nor released: the statement takes longer than a socket waits",
    file: "src/outbox/holds/HeldRows.ts",
    find: "const moveBytes = 4_000_000",
    replace: "const moveBytes = 4_000_000_000",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "an aggregate with large events behind a refused one" }
  },
  {
    name: "broken-hold-stops-its-lane",
    breaks: "a hold in an invalid state keeps every other held aggregate of its lane from being tried",
    file: "src/outbox/holds/Parking.ts",
    find: "return rows.filter((row) => row.isFirst)",
    replace: "return rows.every((row) => row.isFirst) ? rows : []",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "a hold with an earlier event parked behind" }
  },
  {
    name: "buries-under-a-taken-id",
    breaks: "a refused event whose id a dead letter has is sent again and again, without a pause",
    file: "src/outbox/holds/Parking.ts",
    find: " || (yield* HeldRows.isBuried(hold.eventId))",
    replace: "",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "a refused event whose id a dead letter already" }
  },
  {
    name: "no-timer-for-retries",
    breaks: "a refused event is retried by the next poll, however long ago it was due",
    file: "src/outbox/holds/HoldRetries.ts",
    find: `if (millis > 0) waitMillis = Math.min(waitMillis, Math.ceil(millis))
        else `,
    replace: "if (millis <= 0) ",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "a refused event is retried when it is due, without" }
  },
  {
    name: "lane-sleeps-after-a-refusal",
    breaks: "events behind a refused one in its lane wait for the refused event's delay",
    file: dispatcher,
    find: 'yield* faults.at("dispatcher.after-hold")',
    replace: 'yield* Effect.interruptible(Effect.sleep("1 hour"))',
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "no other partition waits for a send" }
  },
  {
    name: "lane-sleeps-after-a-retry",
    breaks: "a lane waits when one of its refused events is refused again",
    file: dispatcher,
    find: "yield* holds.rejected(head, error)",
    replace: 'yield* Effect.andThen(holds.rejected(head, error), Effect.interruptible(Effect.sleep("1 hour")))',
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "no other partition waits for a send" }
  },
  {
    name: "refusal-without-names",
    breaks: "the log line about a refused event does not name the event",
    file: "src/outbox/holds/RefusalLog.ts",
    find: `      event_id: event.eventId,
      event_type: event.eventType,
      aggregate_id: event.aggregateId,
      trace_id: event.traceId,
      attempt,
`,
    replace: "",
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "each refusal leaves a line in the log" }
  },
  {
    name: "refusal-without-trace",
    breaks: "the log line about a refused event has no trace id of its request",
    file: "src/outbox/holds/RefusalLog.ts",
    find: "trace_id: event.traceId,\n      attempt",
    replace: "attempt",
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "each refusal leaves a line in the log" }
  },
  {
    name: "lane-fails-unseen",
    breaks: "lanes that end in a defect are not counted, and no rule can warn of them",
    file: "src/outbox/StoppedLanes.ts",
    find: `yield* Metric.update(laneFailuresTotal, 1)
`,
    replace: `
`,
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "a lane that ends in a defect" }
  },
  {
    name: "leaves-lanes-with-a-backlog",
    breaks: "a lane with a backlog that did not fit into a fetch waits for the next poll",
    file: flights,
    find: "if (ready.size > 0) isReady.openUnsafe()\n      return lanes",
    replace: "return lanes",
    seenBy: { file: "test/outbox/Flights.test.ts", test: "a fetch takes few of the lanes with a backlog" }
  },
  {
    name: "fresh-lanes-wait-for-deep-ones",
    breaks: "a fresh event waits until the backlogs of other lanes were fetched",
    file: flights,
    find: "deep.has(lane) && ++deepLanes",
    replace: "++deepLanes",
    seenBy: { file: "test/outbox/Flights.test.ts", test: "a fetch takes few of the lanes with a backlog" }
  },
  {
    name: "late-marks-in-a-turn",
    breaks: "a lock on one lane's rows keeps the marks of all lanes waiting, at each attempt",
    file: pipeline,
    find: "for (const lane of lanes) if (unmarked.has(lane)) markLate(lane)",
    replace: `for (const lane of lanes) {
      if (!unmarked.has(lane)) continue
      addMark({ acknowledged: unmarked.get(lane)! })
      unmarked.delete(lane)
    }`,
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "a mark that failed and is tried again keeps" }
  },
  {
    name: "idle-turns-look-stuck",
    breaks: "a service without orders turns degraded after a minute",
    file: "src/outbox/LaneWorkers.ts",
    find: "            yield* pipeline.stamp\n",
    replace: "",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "turns without work show that they are alive" }
  }
]
